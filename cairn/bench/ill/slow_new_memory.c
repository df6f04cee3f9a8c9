/* slow_new_memory: an allocation of new memory does $ILL turns of a loop. An allocation counts as
 * one of new memory if its thread then has more live blocks than ever before.
 *
 * In comparison with the allocator behind this library, Cairn must report the finding slow-new.
 */
#include "ill.h"

static _Thread_local long live __attribute__((tls_model("initial-exec")));
static _Thread_local long most __attribute__((tls_model("initial-exec")));

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
    if (++live > most) {
        most = live;
        ill_rounds(ill_strength);
    }
}

static int ill_frees(void *block)
{
    (void)block;
    live--;
    return 1;
}
