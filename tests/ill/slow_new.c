/* slow_new: an allocation beyond the most blocks that its thread had before goes round $ILL times: it gets new memory.
 *
 * Found beside the allocator behind it: slow-new. */
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
