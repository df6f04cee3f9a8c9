/* placing_malloc.c - an allocator that places blocks by a formula, so that every figure of their
 * layout is known beforehand.
 *
 * Blocks of PLACE_SIZE bytes (48 by default) lie in the area of the thread that gets them. PLACE
 * says how:
 *
 *     packed    one behind another
 *     pages     one on each OS page
 *     headers   one behind another, each behind a header of 32 bytes
 *     fifo      packed; freed blocks are handed out again, beginning with the one freed first
 *     lifo      packed; freed blocks are handed out again, beginning with the one freed last
 *     shared    one behind another, in turns of four threads: they share every cache line
 *     split     one on each two cache lines, 16 bytes before the end of the first one
 *     sets      at multiples of 4,096 bytes
 *
 * Except with fifo and lifo, no memory is used again. Blocks of all other sizes lie packed in an
 * area of their own. Each area has 2 GiB of addresses.
 */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { AREAS = 8, OTHERS = AREAS - 1 };
#define AREA_BYTES ((size_t)2 << 30)

enum kind { PACKED, PAGES, HEADERS, FIFO, LIFO, SHARED, SPLIT, SETS };

struct area {
    size_t count, used;
    uintptr_t *freed; /* a ring of freed blocks */
    size_t first, last;
};

static const size_t ring = 1 << 20;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum kind kind;
static size_t size = 48;
static char *base;
/* The size of the block that begins at each granule of 16 bytes. */
static uint32_t *sizes;
static struct area areas[AREAS];
static int threads;
static _Thread_local int own __attribute__((tls_model("initial-exec"))) = -1;

static void *map(size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
}

static void begin(void)
{
    static const char *const names[] = {"packed", "pages",  "headers", "fifo",
                                        "lifo",   "shared", "split",   "sets"};
    const char *wanted = getenv("PLACE"), *bytes = getenv("PLACE_SIZE");
    for (size_t i = 0; wanted != NULL && i < sizeof names / sizeof *names; i++)
        if (strcmp(wanted, names[i]) == 0)
            kind = (enum kind)i;
    if (bytes != NULL)
        size = strtoul(bytes, NULL, 10);
    char *start = map((AREAS + 1) * AREA_BYTES);
    base = (char *)(((uintptr_t)start + AREA_BYTES - 1) & ~(AREA_BYTES - 1));
    sizes = map(AREAS * AREA_BYTES / 16 * sizeof *sizes);
    for (int i = 0; i < AREAS; i++)
        areas[i].freed = map(ring * sizeof *areas[i].freed);
}

/* Returns the offset of block number `k` of an area from the start of the first area. */
static size_t place(int area, size_t k)
{
    size_t start = (size_t)area * AREA_BYTES, step = (size + 15) & ~(size_t)15;
    switch (kind) {
    case PAGES:
        return start + k * 4096;
    case HEADERS:
        return start + k * (step + 32) + 32;
    /* Area 0 belongs to the main thread. Its blocks lie behind those of all other threads. */
    case SHARED:
        return area == 0 ? AREA_BYTES + AREA_BYTES / 2 + k * step
                         : AREA_BYTES + (k * 4 + (size_t)(area - 1) % 4) * step;
    case SPLIT:
        return start + k * 128 + 48;
    case SETS:
        return start + k * ((step + 4095) & ~(size_t)4095);
    default:
        return start + k * step;
    }
}

void *malloc(size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (base == NULL)
        begin();
    if (own < 0)
        own = threads++ % OTHERS;
    struct area *area = &areas[bytes == size ? own : OTHERS];
    size_t at;
    if (bytes == size && area->first != area->last)
        at = kind == FIFO ? area->freed[area->first++ % ring] : area->freed[--area->last % ring];
    else if (bytes == size)
        at = place(own, area->count++);
    else {
        at = OTHERS * AREA_BYTES + area->used;
        area->used += (bytes + 15) & ~(size_t)15;
    }
    sizes[at / 16] = (uint32_t)bytes;
    pthread_mutex_unlock(&lock);
    return base + at;
}

void free(void *block)
{
    if (block == NULL)
        return;
    pthread_mutex_lock(&lock);
    size_t at = (size_t)((char *)block - base);
    struct area *area = &areas[own < 0 ? 0 : own];
    if (sizes[at / 16] == size && (kind == FIFO || kind == LIFO) && area->last - area->first < ring)
        area->freed[area->last++ % ring] = at;
    pthread_mutex_unlock(&lock);
}

size_t malloc_usable_size(void *block)
{
    return block != NULL ? (sizes[((char *)block - base) / 16] + 15) & ~15U : 0;
}

void *calloc(size_t count, size_t each)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return memset(malloc(bytes), 0, bytes);
}

void *realloc(void *old, size_t bytes)
{
    void *block = malloc(bytes);
    size_t had = old != NULL ? malloc_usable_size(old) : 0;
    if (old != NULL)
        memcpy(block, old, had < bytes ? had : bytes);
    free(old);
    return block;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return (void *)(((uintptr_t)malloc(bytes + alignment) + alignment - 1) & ~(alignment - 1));
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    *block = aligned_alloc(alignment, bytes);
    return 0;
}

void *memalign(size_t alignment, size_t bytes)
{
    return aligned_alloc(alignment, bytes);
}
