/* forward_malloc.c - an allocator for tests to measure: glibc's own allocator under the name of
 * another library. Environment variables change its behaviour:
 *
 * - TEST_CRASH: every process that loads it dies of SIGSEGV at its first large allocation.
 * - TEST_SLOW=N: each allocation costs about N turns of an empty loop.
 * - TEST_NOISE: the library prints on stdout, so that outputs differ.
 */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void __libc_free(void *);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static int crash;
static long slow;

__attribute__((constructor)) static void begin(void)
{
    crash = getenv("TEST_CRASH") != NULL;
    slow = getenv("TEST_SLOW") != NULL ? atol(getenv("TEST_SLOW")) : 0;
    if (getenv("TEST_NOISE") != NULL && write(1, "noise\n", 6) != 6)
        abort();
}

static void weigh(size_t size)
{
    if (crash && size >= 4096)
        raise(SIGSEGV);
    for (volatile long turn = 0; turn < slow; turn++)
        ;
}

void *malloc(size_t size)
{
    weigh(size);
    return __libc_malloc(size);
}

void free(void *block)
{
    __libc_free(block);
}

void *calloc(size_t count, size_t size)
{
    weigh(size);
    return __libc_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
    weigh(size);
    return __libc_realloc(block, size);
}

void *memalign(size_t alignment, size_t size)
{
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **result, size_t alignment, size_t size)
{
    void *block = __libc_memalign(alignment, size);
    if (block == NULL)
        return ENOMEM;
    *result = block;
    return 0;
}
