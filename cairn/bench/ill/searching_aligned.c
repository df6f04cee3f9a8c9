/* searching_aligned: an aligned allocation takes blocks from malloc until one happens to be
 * aligned, and frees the others. After $ILL blocks in vain, it lets the allocator behind this
 * library align a block.
 *
 * In comparison with that allocator, Cairn must report the finding slow-aligned.
 */
#include "ill.h"

#include <errno.h>
#include <stdint.h>

enum { TRIES_MOST = 256 };

static int (*next_posix_memalign)(void **, size_t, size_t);

__attribute__((constructor)) static void begin(void)
{
    next_posix_memalign = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
}

int posix_memalign(void **made, size_t alignment, size_t bytes)
{
    if (next_posix_memalign == NULL || next_malloc == NULL)
        return ENOMEM;
    void *tried[TRIES_MOST], *found = NULL;
    size_t tries = 0, most = ill_strength < TRIES_MOST ? ill_strength : TRIES_MOST;
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0)
        most = 0;
    while (found == NULL && tries < most) {
        tried[tries] = next_malloc(bytes);
        if (tried[tries] != NULL && (uintptr_t)tried[tries] % alignment == 0)
            found = tried[tries];
        else
            tries++;
    }
    while (tries > 0)
        next_free(tried[--tries]);
    if (found == NULL)
        return next_posix_memalign(made, alignment, bytes);
    *made = found;
    return 0;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    void *made = NULL;
    size_t enough = alignment < sizeof(void *) ? sizeof(void *) : alignment;
    int problem = posix_memalign(&made, enough, bytes);
    if (problem != 0)
        errno = problem;
    return problem == 0 ? made : NULL;
}

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
}

static int ill_frees(void *block)
{
    (void)block;
    return 1;
}
