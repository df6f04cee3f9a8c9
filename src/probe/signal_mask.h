/* signal_mask.h - blocks the program's signals while the probe holds a lock in an operation.
 *
 * A handler of the program may leave an operation by a jump (siglongjmp). If the jump left a lock
 * taken, the thread would wait for itself at its next operation, forever.
 */
#ifndef CAIRN_PROBE_SIGNAL_MASK_H
#define CAIRN_PROBE_SIGNAL_MASK_H

#include "base/base.h"

/* True if the program has installed a handler for any signal. signals.c sets this variable. */
extern _Atomic bool signal_handlers __attribute__((visibility("hidden")));

/* Blocks all signals except SIGSYS, by which the probe sees the allocator's system calls. Returns
 * those that were not blocked before. */
uint64_t signals_block(void);

/* Unblocks the signals that signals_block() returned. Another thread may have installed a filter
 * since then. If the filter does not permit rt_sigprocmask, the signals stay blocked, because the
 * system call would kill the process. */
void signals_unblock(uint64_t blocked);

/* The same as signals_block(), without a system call if the program has no handlers. */
static inline uint64_t signals_block_handlers(void)
{
    return signal_handlers ? signals_block() : 0;
}

#endif
