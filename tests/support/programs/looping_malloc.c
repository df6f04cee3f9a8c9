/* The allocator of glibc, with an error: if a block is freed twice and no other call of the
 * allocator comes between, the second free never returns. */
#include <stddef.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void __libc_free(void *block);

static void *volatile last;

void *malloc(size_t size)
{
    last = NULL;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    last = NULL;
    return __libc_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
    last = NULL;
    return __libc_realloc(block, size);
}

void free(void *block)
{
    while (block != NULL && block == last) {
    }
    last = block;
    __libc_free(block);
}
