/* scrubbing: every malloc writes $ILL times over the whole block, like an allocator that hides what
 * its last user left there.
 *
 * In comparison with the allocator behind this library, Cairn must report the finding slow-reuse.
 */
#include "ill.h"

static void scrub(void *block, bool is_new)
{
    for (unsigned long i = 0; is_new && i < ill_strength; i++) {
        memset(block, 0, next_usable(block));
        __asm__ volatile("" ::"r"(block) : "memory");
    }
}

__attribute__((constructor)) static void begin(void)
{
    ill_gave = scrub;
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
