/* os/lock.h - in a model: a lock for which the explorer knows who waits. Stands before src/os/lock.h. */
#ifndef CAIRN_OS_LOCK_H
#define CAIRN_OS_LOCK_H

#include "os/os.h"

#include <stdatomic.h>

struct lock {
    uint32_t holder; /* 0: free */
};

/* memory.c */
void lock_take(struct lock *lock);
void lock_drop(struct lock *lock);

#endif
