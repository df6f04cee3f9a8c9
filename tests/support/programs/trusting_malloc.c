/* trusting_malloc.c - an allocator that catches no misuse by construction.
 *
 * It believes every pointer: free() puts any address on the list of free blocks of its size, and
 * malloc() hands it out next. An unknown address counts as a block of the size that was requested
 * last. Blocks lie side by side without a gap. It only serves programs that need no alignment
 * beyond 4 bytes, and only calloc() clears a block.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SLOTS = 1 << 17, FREE_MOST = 1 << 15 };

static struct slot {
    void *block; /* NULL: the slot is empty */
    size_t size;
} slots[SLOTS]; /* every block that was ever handed out */

static struct freed {
    void *block;
    size_t size;
} freed[FREE_MOST]; /* the newest last */
static size_t freed_count;
static unsigned char *next_block;
static size_t last_size;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns the slot of the block at address `p`. If no block has this address, returns an empty
 * slot. */
static struct slot *slot_of(const void *p)
{
    size_t i = (size_t)((uintptr_t)p * UINT64_C(0x9e3779b97f4a7c15) >> 47);
    while (slots[i].block != NULL && slots[i].block != p)
        i = (i + 1) % SLOTS;
    return &slots[i];
}

static size_t size_of(const void *p)
{
    const struct slot *slot = slot_of(p);
    return slot->block == NULL ? last_size : slot->size;
}

static void *fresh(size_t alignment, size_t size)
{
    if (next_block == NULL)
        next_block = mmap(NULL, (size_t)64 << 30, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *p =
        (unsigned char *)(((uintptr_t)next_block + alignment - 1) & ~(alignment - 1));
    next_block = p + size;
    return p;
}

static void *allocate(size_t alignment, size_t size)
{
    size = size == 0 ? 4 : (size + 3) & ~(size_t)3;
    pthread_mutex_lock(&lock);
    void *p = NULL;
    for (size_t i = freed_count; p == NULL && i-- > 0;)
        if (freed[i].size == size && alignment == 4) {
            p = freed[i].block;
            memmove(&freed[i], &freed[i + 1], (--freed_count - i) * sizeof *freed);
        }
    if (p == NULL)
        p = fresh(alignment, size);
    *slot_of(p) = (struct slot){p, size};
    last_size = size;
    pthread_mutex_unlock(&lock);
    return p;
}

void *malloc(size_t size)
{
    return allocate(4, size);
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
    return 0;
}

/* libc needs zeros and an aligned block for a new thread. */
void *calloc(size_t count, size_t size)
{
    void *p = allocate(16, count * size);
    return memset(p, 0, count * size);
}

void free(void *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&lock);
    if (freed_count < FREE_MOST)
        freed[freed_count++] = (struct freed){p, size_of(p)};
    pthread_mutex_unlock(&lock);
}

size_t malloc_usable_size(void *p)
{
    pthread_mutex_lock(&lock);
    size_t size = p == NULL ? 0 : size_of(p);
    pthread_mutex_unlock(&lock);
    return size;
}

void *realloc(void *p, size_t size)
{
    if (p == NULL)
        return malloc(size);
    size_t had = malloc_usable_size(p);
    if (size > 0 && size <= had)
        return p;
    void *moved = size == 0 ? NULL : malloc(size);
    if (moved != NULL)
        memcpy(moved, p, had);
    free(p);
    return moved;
}
