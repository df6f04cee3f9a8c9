/* sites.c - has one function for each allocation function of libc. Each is the call site of one
 * large block, which stays allocated until the end. pairs() allocates and frees blocks in turn.
 * behind() is a wrapper of malloc with two callers, deep() and shallow(). */
#include "conformance.h"

enum { LARGE = 100000, PAIRS = 50, SMALL = 1000 };

static void *volatile kept;
static volatile size_t large = LARGE;

#define SITE(name, expression)                                                                     \
    __attribute__((noinline)) void name(void);                                                     \
    void name(void)                                                                                \
    {                                                                                              \
        kept = (expression);                                                                       \
    }

SITE(by_malloc, malloc(large))
SITE(by_calloc, calloc(1, large))
SITE(by_realloc, realloc(NULL, large))
SITE(by_reallocarray, reallocarray(NULL, 1, large))
SITE(by_aligned_alloc, aligned_alloc(64, large))
SITE(by_memalign, memalign(1 << 20, large))
SITE(by_valloc, valloc(large))
SITE(by_pvalloc, pvalloc(large))
SITE(grown, realloc(malloc(SMALL), large))

__attribute__((noinline)) void by_posix_memalign(void);
void by_posix_memalign(void)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, large) == 0)
        kept = p;
}

__attribute__((noinline)) void pairs(void);
void pairs(void)
{
    for (int i = 0; i < PAIRS; i++) {
        void *p = malloc(3 * large);
        kept = p;
        free(p);
    }
}

__attribute__((noinline)) void *behind(size_t bytes);
void *behind(size_t bytes)
{
    void *p = malloc(bytes);
    kept = p;
    return p;
}

/* Uses about 64 bytes more of the stack than shallow(). By this depth, the allocator distinguishes
 * the two callers of behind(). */
__attribute__((noinline)) void deep(void);
void deep(void)
{
    volatile char room[64] = {0};
    kept = behind(5 * large + (size_t)room[0]);
    room[0] = 1;
}

__attribute__((noinline)) void shallow(void);
void shallow(void)
{
    kept = behind(5 * large);
}

int main(void)
{
    require_cairn();
    static void (*const sites[])(void) = {
        by_malloc,   by_calloc, by_realloc, by_reallocarray, by_aligned_alloc,
        by_memalign, by_valloc, by_pvalloc, grown,           by_posix_memalign,
        pairs,       deep,      shallow,
    };
    for (size_t i = 0; i < COUNT(sites); i++)
        sites[i]();
    return 0;
}
