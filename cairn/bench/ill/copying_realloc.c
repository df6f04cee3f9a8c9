/* copying_realloc: every realloc copies the content of the block to another block and back, $ILL
 * times.
 *
 * In comparison with the allocator behind this library, Cairn must report the finding slow-realloc.
 * The blocks must be small enough for the heap of the allocator behind. Otherwise the other block
 * is a new mapping each time, which is another illness.
 */
#include "ill.h"

static void copy(void *block, bool is_new)
{
    size_t bytes = is_new ? 0 : next_usable(block);
    void *other = is_new ? NULL : next_malloc(bytes);
    if (other == NULL)
        return;
    for (unsigned long i = 0; i < ill_strength; i++) {
        memcpy(other, block, bytes);
        memcpy(block, other, bytes);
        __asm__ volatile("" ::"r"(block), "r"(other) : "memory");
    }
    next_free(other);
}

__attribute__((constructor)) static void begin(void)
{
    ill_gave = copy;
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
