/* remote_kept: $ILL percent of the blocks that another thread frees are never used again.
 *
 * If threads free blocks of other threads, Cairn must report the finding not-reused.
 */
#include "ill.h"

#include <stdint.h>

enum {
    /* The table has one entry for each 16 bytes of 256 MiB. Two blocks whose addresses differ by a
     * multiple of 256 MiB share an entry. The last one that was allocated determines the owner. */
    PLACES = 1 << 24
};

static _Atomic unsigned char owners[PLACES];

static unsigned char me(void)
{
    static _Atomic unsigned threads;
    static _Thread_local unsigned char mine __attribute__((tls_model("initial-exec")));
    while (mine == 0)
        mine = (unsigned char)(atomic_fetch_add(&threads, 1) + 1);
    return mine;
}

static _Atomic unsigned char *owner(void *block)
{
    return &owners[(uintptr_t)block / 16 % PLACES];
}

static void note(void *block, bool is_new)
{
    (void)is_new;
    *owner(block) = me();
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
    static _Atomic unsigned long frees;
    unsigned char by = *owner(block);
    return by == 0 || by == me() || frees++ % 100 >= ill_strength;
}
