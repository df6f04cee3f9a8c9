/* slow_new_memory: an allocation of new memory does $ILL turns of a loop. An allocation counts as
 * one of new memory if its block lies behind all blocks of its thread so far. Blocks of 64 KiB and
 * more do not count: they may have mappings of their own, which lie anywhere.
 *
 * In comparison with the allocator behind this library, Cairn must report the finding slow-new. The
 * allocator behind must take new memory in rising order, as glibc does in its heap.
 */
#include "ill.h"

enum { COUNTED_MAX = 64 << 10 };

static void note(void *block, bool is_new)
{
    (void)is_new;
    static _Thread_local char *last __attribute__((tls_model("initial-exec")));
    if ((char *)block <= last || next_usable(block) >= COUNTED_MAX)
        return;
    last = block;
    ill_rounds(ill_strength);
}

__attribute__((constructor)) static void begin(void)
{
    ill_gave = note;
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
