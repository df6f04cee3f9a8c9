/* catching_malloc.c - an allocator that catches every misuse by construction.
 *
 * Each block lies at the end of a mapping of its own, between two pages without access. The bytes
 * of the mapping that the program did not request hold a canary, which free() checks. A freed block
 * stays without access forever, and its addresses are never used again. A table outside the blocks
 * has every block, so that free(), realloc() and malloc_usable_size() abort for any other pointer.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, SLOTS = 1 << 17, CANARY = 0xc5 };

struct slot {
    unsigned char *block; /* NULL: the slot is empty */
    size_t size;
    unsigned char *pages; /* first accessible page */
    size_t bytes;         /* total size of the accessible pages */
    int is_free;
};

static struct slot slots[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t place_of(const void *p)
{
    return (size_t)((uintptr_t)p * UINT64_C(0x9e3779b97f4a7c15) >> 47);
}

/* Returns the slot of a live block. Any other pointer ends the program. The caller holds the
 * lock. */
static struct slot *slot_of(const void *p)
{
    for (size_t i = place_of(p);; i = (i + 1) % SLOTS) {
        if (slots[i].block == NULL)
            abort();
        if (slots[i].block == p && !slots[i].is_free)
            return &slots[i];
    }
}

static void *allocate(size_t alignment, size_t size)
{
    size_t whole = (size + alignment + PAGE) & ~(size_t)(PAGE - 1);
    unsigned char *area =
        mmap(NULL, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED || mprotect(area + PAGE, whole, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    unsigned char *end = area + PAGE + whole;
    unsigned char *block = (unsigned char *)((uintptr_t)(end - size) & ~(alignment - 1));
    for (unsigned char *p = area + PAGE; p < end; p++)
        if (p < block || p >= block + size)
            *p = CANARY;
    pthread_mutex_lock(&lock);
    size_t i = place_of(block);
    while (slots[i].block != NULL)
        i = (i + 1) % SLOTS;
    slots[i] = (struct slot){block, size, area + PAGE, whole, 0};
    pthread_mutex_unlock(&lock);
    return block;
}

void *malloc(size_t size)
{
    return allocate(16, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return allocate(alignment < 16 ? 16 : alignment, size);
}

void *memalign(size_t alignment, size_t size)
{
    return aligned_alloc(alignment, size);
}

int posix_memalign(void **result, size_t alignment, size_t size)
{
    *result = aligned_alloc(alignment, size);
    return *result == NULL ? 12 : 0;
}

void *calloc(size_t count, size_t size)
{
    return allocate(16, count * size);
}

void free(void *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&lock);
    struct slot *slot = slot_of(p);
    for (size_t i = 0; i < slot->bytes; i++) {
        unsigned char *at = slot->pages + i;
        if ((at < slot->block || at >= slot->block + slot->size) && *at != CANARY)
            abort();
    }
    slot->is_free = 1;
    mprotect(slot->pages, slot->bytes, PROT_NONE);
    pthread_mutex_unlock(&lock);
}

size_t malloc_usable_size(void *p)
{
    if (p == NULL)
        return 0;
    pthread_mutex_lock(&lock);
    size_t size = slot_of(p)->size;
    pthread_mutex_unlock(&lock);
    return size;
}

void *realloc(void *p, size_t size)
{
    if (p == NULL)
        return malloc(size);
    size_t had = malloc_usable_size(p);
    void *moved = size == 0 ? NULL : malloc(size);
    if (moved != NULL)
        memcpy(moved, p, had < size ? had : size);
    free(p);
    return moved;
}
