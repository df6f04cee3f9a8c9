/* flawed_malloc.c - an allocator with one flaw, which the variable ILL names. A workload must
 * notice each of these flaws.
 *
 * Five flaws make results wrong. With them, the allocator never reuses memory. If ILL is "none", it
 * is the same allocator without a flaw:
 *
 *     overlap      one block in 64 begins inside the block before it
 *     lost         one free in 64 wipes the first bytes of the block behind the freed one
 *     cut          realloc copies only half of the contents
 *     misaligned   one block in 64 is 8 bytes off its alignment
 *     dirty        calloc does not clear
 *
 * Three flaws make the measured figures worse. With them, blocks come from glibc's allocator:
 *
 *     leaking      one free in four does nothing
 *     slow         every allocation does 5,000 more turns of an empty loop
 *     fat          every block is twice as large as requested, plus 64 bytes
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void __libc_free(void *);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

enum illness { NONE, OVERLAP, LOST, CUT, MISALIGNED, DIRTY, LEAKING, SLOW, FAT, UNKNOWN };
static const char *const names[] = {"none",  "overlap", "lost", "cut", "misaligned",
                                    "dirty", "leaking", "slow", "fat"};

enum { EVERY = 64, SPACE_GIB = 64 };
static atomic_int illness = UNKNOWN;
static _Atomic(uintptr_t) next_address;
static atomic_uint turn;

static enum illness what(void)
{
    int known = atomic_load(&illness);
    if (known != UNKNOWN)
        return (enum illness)known;
    const char *text = getenv("ILL"); /* getenv does not allocate */
    int found = NONE;
    for (int i = 0; text != NULL && i < UNKNOWN; i++)
        if (strcmp(text, names[i]) == 0)
            found = i;
    uintptr_t space = (uintptr_t)mmap(NULL, (size_t)SPACE_GIB << 30, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uintptr_t none = 0;
    atomic_compare_exchange_strong(&next_address, &none, space);
    atomic_store(&illness, found);
    return (enum illness)found;
}

static bool figures(void)
{
    return what() >= LEAKING;
}

static bool unlucky(void)
{
    return atomic_fetch_add(&turn, 1) % EVERY == EVERY - 1;
}

/* The 16 bytes before each block hold its size. */
static size_t size_of(void *start)
{
    return ((size_t *)start)[-2];
}

static void *carve(size_t alignment, size_t size)
{
    if (size > PTRDIFF_MAX / 2) {
        errno = ENOMEM;
        return NULL;
    }
    if (alignment < 16)
        alignment = 16;
    uintptr_t room = atomic_fetch_add(&next_address, (size + alignment + 31) & ~(uintptr_t)15);
    uintptr_t start = (room + 16 + alignment - 1) & ~(uintptr_t)(alignment - 1);
    bool ill = (what() == OVERLAP || what() == MISALIGNED) && unlucky();
    if (ill && what() == OVERLAP)
        /* The block's size and its first bytes are then inside the previous block. */
        start -= 32;
    if (ill && what() == MISALIGNED)
        start += 8;
    ((size_t *)start)[-2] = size;
    return (void *)start;
}

static size_t weighed(size_t size)
{
    if (what() == SLOW)
        for (volatile int i = 0; i < 5000; i = i + 1) {
        }
    return what() == FAT ? 2 * size + 64 : size;
}

void *malloc(size_t size)
{
    if (!figures())
        return carve(16, size);
    char *start = __libc_malloc(weighed(size));
    if (start != NULL && what() == FAT)
        memset(start + size, 1, size + 64); /* only touched memory is resident */
    return start;
}

void free(void *start)
{
    if (start == NULL)
        return;
    if (figures()) {
        if (what() != LEAKING || atomic_fetch_add(&turn, 1) % 4 != 0)
            __libc_free(start);
        return;
    }
    if (what() == LOST && unlucky()) {
        uintptr_t behind = ((uintptr_t)start + size_of(start) + 15 + 16) & ~(uintptr_t)15;
        memset((void *)behind, 0, 32); /* the size and first bytes of the next block */
    }
}

void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    if (figures())
        return __libc_calloc(1, weighed(bytes));
    void *start = carve(16, bytes);
    if (start != NULL && what() == DIRTY)
        memset(start, 0x5a, bytes < 64 ? bytes : 64);
    return start;
}

void *realloc(void *start, size_t size)
{
    if (figures())
        return __libc_realloc(start, weighed(size));
    void *moved = carve(16, size);
    if (start != NULL && moved != NULL) {
        size_t kept = size_of(start) < size ? size_of(start) : size;
        memcpy(moved, start, what() == CUT ? kept / 2 : kept);
    }
    return moved;
}

void *memalign(size_t alignment, size_t size)
{
    return figures() ? __libc_memalign(alignment, weighed(size)) : carve(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **result, size_t alignment, size_t size)
{
    void *start = memalign(alignment, size);
    if (start == NULL)
        return ENOMEM;
    *result = start;
    return 0;
}
