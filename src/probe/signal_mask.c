#include "probe/signal_mask.h"

#include "probe/direct_syscall.h"

#include <signal.h>

enum { MASK_BYTES = 8 };

_Atomic bool signal_handlers;

uint64_t signals_block(void)
{
    const uint64_t all = ~(UINT64_C(1) << (SIGSYS - 1));
    uint64_t before = all;
    if (!direct_forbidden)
        direct_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&all, (long)&before, MASK_BYTES, 0, 0);
    return all & ~before;
}

void signals_unblock(uint64_t blocked)
{
    if (blocked != 0 && (!direct_forbidden || direct_permits_unblocking))
        direct_call(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&blocked, 0, MASK_BYTES, 0, 0);
}
