#define _GNU_SOURCE 1

#include "probe/lock_table.h"

#include <link.h>

/* The entry of a lock is one of the PLACES_MOST entries that begin at its hash value. The limit
 * makes the search short if the table is full. */
enum { PLACES_MOST = 32 };

static struct lock_records *_Atomic table;
static struct lock_object objects[LOCK_OBJECTS];
static size_t object_count;

static void add(uint64_t *number, uint64_t amount)
{
    __atomic_fetch_add(number, amount, __ATOMIC_RELAXED);
}

static int note_object(struct dl_phdr_info *info, size_t size, void *nothing)
{
    (void)size;
    (void)nothing;
    struct lock_object object = {.start = UINT64_MAX, .base = info->dlpi_addr};
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uint64_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD)
            continue;
        object.start = start < object.start ? start : object.start;
        object.end = start + part->p_memsz > object.end ? start + part->p_memsz : object.end;
    }
    if (object.end == 0)
        return 0;
    for (size_t i = 0; i + 1 < sizeof object.path && info->dlpi_name[i] != '\0'; i++)
        object.path[i] = info->dlpi_name[i];
    objects[object_count++] = object;
    return object_count == LOCK_OBJECTS;
}

void lock_table_find_objects(void)
{
    object_count = 0;
    dl_iterate_phdr(note_object, NULL);
}

void lock_table_begin(struct lock_records *made)
{
    for (size_t i = 0; made != NULL && i < object_count; i++)
        made->objects[i] = objects[i];
    table = made;
}

struct lock_record *lock_table_at(uintptr_t lock, uint64_t kind)
{
    struct lock_records *locks = table;
    if (UNLIKELY(locks == NULL))
        return NULL;
    size_t place = (lock * UINT64_C(0x9e3779b97f4a7c15)) >> 40;
    for (size_t i = 0; i < PLACES_MOST; i++) {
        struct lock_record *record = &locks->records[(place + i) % LOCK_RECORDS];
        uint64_t found = __atomic_load_n(&record->address, __ATOMIC_RELAXED);
        if (UNLIKELY(found == 0)) {
            __atomic_store_n(&record->kind, kind, __ATOMIC_RELAXED);
            if (__atomic_compare_exchange_n(&record->address, &found, lock, false, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED))
                found = lock;
        }
        if (LIKELY(found == lock)) {
            if (UNLIKELY(record->kind != kind && kind != LOCK_FUTEX))
                __atomic_store_n(&record->kind, kind, __ATOMIC_RELAXED);
            return record;
        }
    }
    add(&locks->beyond, 1);
    return NULL;
}

void lock_table_futex(uintptr_t address, bool is_wait, uint64_t ticks)
{
    struct lock_record *record = lock_table_at(address, LOCK_FUTEX);
    if (record == NULL)
        return;
    add(is_wait ? &record->futex_waits : &record->futex_wakes, 1);
    if (is_wait)
        add(&record->futex_wait_ticks, ticks);
}
