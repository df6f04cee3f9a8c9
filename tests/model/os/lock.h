/* os/lock.h - replaces src/os/lock.h in a model, with a lock whose waiting threads are known to the
 * explorer. */
#ifndef CAIRN_OS_LOCK_H
#define CAIRN_OS_LOCK_H

#include "os/os.h"

#include <stdatomic.h>
#include <sys/single_threaded.h>

#define LOCK_IS_ALONE __libc_single_threaded

struct lock {
    uint32_t holder; /* 0: free; otherwise the thread's number plus 2 */
};

/* Implemented in memory.c. */
void lock_take(struct lock *lock);
void lock_drop(struct lock *lock);

/* Implemented in stubs.c: true in the child of a fork without handlers (stubs.h). */
bool lock_is_unsafe(void);

/* Implemented in stubs.c. In src/os/lock.h, lock_take() calls lock_enter(). Here lock_take()
 * does not: in the model, thread_adopt_child() finds taken locks by heap_has_taken_lock(). */
void lock_enter(void);
void lock_leave(void);

static inline bool lock_is_taken(struct lock *lock)
{
    return lock->holder != 0;
}

#endif
