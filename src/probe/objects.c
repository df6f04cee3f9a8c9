#include "probe/objects.h"

#include "probe/futex_lock.h"
#include "probe/next.h"
#include "probe/own_memory.h"

#include <elf.h>
#include <link.h>
#include <string.h>

/* struct dl_find_object of glibc 2.35, which older headers lack. */
struct place {
    unsigned long long flags;
    void *start;
    void *end;
    struct link_map *map;
    void *table;
    unsigned long long reserved[8];
};

static int (*find_object)(void *address, struct place *place);

static struct object *objects; /* in a mapping of the probe; [0] is not used */
static _Atomic uint32_t count;
static struct futex_lock lock;

/* Hash table of the numbers of the objects, by their first address; 0: empty. If a later object
 * begins at the address of an unloaded one, both have an entry, and is_same() tells them apart. */
enum { SLOTS_SHIFT = 11 };
static _Atomic uint16_t slots[1 << SLOTS_SHIFT];
static_assert(OBJECTS * 2 <= 1 << SLOTS_SHIFT, "a search always ends at an empty slot");

void objects_begin(void)
{
    if (objects != NULL)
        return;
    next_find(&find_object, "_dl_find_object");
    objects = own_memory_map((OBJECTS + 1) * sizeof *objects);
}

const struct object *objects_get(uint32_t number)
{
    return &objects[number];
}

uint32_t objects_count(void)
{
    return atomic_load_explicit(&count, memory_order_acquire);
}

void objects_forked(void)
{
    (void)futex_lock_reset(&lock);
}

/* --- the loader ------------------------------------------------------------------------------- */

struct search {
    uintptr_t address;
    struct place place;
    const char *path;
    uintptr_t base;
};

/* For dl_iterate_phdr(): stores the object in the search if it has the address, and returns 1. */
static int compare(struct dl_phdr_info *object, size_t size, void *given)
{
    struct search *search = given;
    uintptr_t start = UINTPTR_MAX, end = 0, table = 0;
    (void)size;
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        uintptr_t at = object->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_GNU_EH_FRAME)
            table = at;
        if (segment->p_type != PT_LOAD)
            continue;
        start = at < start ? at : start;
        end = at + segment->p_memsz > end ? at + segment->p_memsz : end;
    }
    if (search->address < start || search->address >= end)
        return 0;
    search->place.start = (void *)(start & ~(uintptr_t)4095);
    search->place.end = (void *)end;
    search->place.table = (void *)table;
    search->path = object->dlpi_name;
    search->base = object->dlpi_addr;
    return 1;
}

/* Asks the loader for the object with search->address. Returns false if there is none. */
static bool ask(struct search *search)
{
    if (find_object == NULL)
        return dl_iterate_phdr(compare, search) != 0;
    if (find_object((void *)search->address, &search->place) != 0)
        return false;
    if (search->place.map != NULL) {
        search->path = search->place.map->l_name;
        search->base = search->place.map->l_addr;
    }
    return true;
}

/* --- entries ---------------------------------------------------------------------------------- */

/* Reads the build id from the program headers in memory. */
static void read_build_id(struct peek *peek, struct object *object)
{
    ElfW(Ehdr) file;
    if (!peek_at(peek, object->start, &file, sizeof file) ||
        memcmp(file.e_ident, ELFMAG, SELFMAG) != 0)
        return;
    for (size_t i = 0; i < file.e_phnum; i++) {
        ElfW(Phdr) segment;
        if (!peek_at(peek, object->start + file.e_phoff + i * sizeof segment, &segment,
                     sizeof segment))
            return;
        uintptr_t at = object->about.base + segment.p_vaddr, end = at + segment.p_memsz;
        while (segment.p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) < end) {
            ElfW(Nhdr) note;
            if (!peek_at(peek, at, &note, sizeof note))
                return;
            uintptr_t name = at + sizeof note;
            uintptr_t id = name + ((note.n_namesz + 3U) & ~3U);
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && note.n_descsz != 0 &&
                note.n_descsz <= sizeof object->about.id &&
                peek_at(peek, id, object->about.id, note.n_descsz)) {
                object->about.id_bytes = note.n_descsz;
                object->id_at = (const void *)id;
                return;
            }
            at = id + ((note.n_descsz + 3U) & ~3U);
        }
    }
}

static void read_path(struct peek *peek, const char *path, struct object *object)
{
    for (size_t i = 0; path != NULL && i + 1 < sizeof object->about.path; i++)
        if (!peek_at(peek, (uintptr_t)path + i, &object->about.path[i], 1) ||
            object->about.path[i] == '\0')
            break;
}

/* Returns the first bytes of an object's identity. They can be read, because a frame of the calling
 * thread lies in the object, so that it cannot be unloaded meanwhile. A build id may be shorter. */
static uint64_t beginning_of(const struct object *object)
{
    uint64_t beginning = 0;
    size_t bytes = object->about.id_bytes;
    if (bytes == 0 || bytes > sizeof beginning)
        bytes = sizeof beginning;
    if (object->id_at != NULL)
        memcpy(&beginning, object->id_at, bytes);
    return beginning;
}

static bool is_same(const struct object *object, const struct place *place)
{
    return object->start == (uintptr_t)place->start && object->end == (uintptr_t)place->end &&
           object->table == (uintptr_t)place->table && beginning_of(object) == object->id_beginning;
}

static uint32_t slot_of(const struct place *place)
{
    return (uint32_t)(((uintptr_t)place->start * UINT64_C(0x9e3779b97f4a7c15)) >>
                      (64 - SLOTS_SHIFT));
}

/* Returns the number of the object's entry, or 0 if it has none. */
static uint32_t known(const struct place *place)
{
    for (uint32_t slot = slot_of(place);; slot = (slot + 1) % (1 << SLOTS_SHIFT)) {
        uint32_t number = atomic_load_explicit(&slots[slot], memory_order_acquire);
        if (number == 0 || is_same(&objects[number], place))
            return number;
    }
}

static uint32_t add(struct peek *peek, const struct search *search)
{
    uint32_t number = atomic_load_explicit(&count, memory_order_relaxed) + 1;
    if (number > OBJECTS)
        return 0;
    struct object *object = &objects[number];
    *object = (struct object){
        .start = (uintptr_t)search->place.start,
        .end = (uintptr_t)search->place.end,
        .table = (uintptr_t)search->place.table,
        .about = {.start = (uintptr_t)search->place.start, .base = search->base},
    };
    read_path(peek, search->path, object);
    read_build_id(peek, object);
    /* Without a build id, the head of .eh_frame_hdr is the identity. It has the number of
     * functions, which seldom is the same in two files. */
    if (object->id_at == NULL && object->table != 0)
        object->id_at = (const void *)object->table;
    object->id_beginning = beginning_of(object);
    uint32_t slot = slot_of(&search->place);
    while (atomic_load_explicit(&slots[slot], memory_order_relaxed) != 0)
        slot = (slot + 1) % (1 << SLOTS_SHIFT);
    atomic_store_explicit(&count, number, memory_order_release /* publishes the entry */);
    atomic_store_explicit(&slots[slot], (uint16_t)number, memory_order_release /* known() */);
    return number;
}

uint32_t objects_find(struct peek *peek, uintptr_t address)
{
    struct search search = {.address = address};
    if (objects == NULL || !ask(&search))
        return 0;
    uint32_t number = known(&search.place);
    if (LIKELY(number != 0))
        return number;
    futex_lock_take(&lock);
    number = known(&search.place);
    if (number == 0)
        number = add(peek, &search);
    futex_lock_drop(&lock);
    return number;
}
