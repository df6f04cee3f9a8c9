/* explore.h - the interface between memory.c and the explorer: memory.c announces each step of a
 * thread, and the explorer decides when the thread takes it. */
#ifndef CAIRN_MODEL_EXPLORE_H
#define CAIRN_MODEL_EXPLORE_H

#include "memory.h"

enum explore_kind {
    EXPLORE_NOTHING,
    EXPLORE_LOAD,
    EXPLORE_STORE,
    EXPLORE_CHANGE, /* read-modify-write */
    /* Takes a lock, whose first four bytes are 0 while it is free. */
    EXPLORE_TAKE,
    EXPLORE_STOP, /* stops all other threads */
};

/* Announces the next step of the current thread, and waits until the explorer lets the thread take
 * it. For a load, returns the age of the message that the load must return: 0 is the newest
 * message, 1 the message before it. */
unsigned explore_step(enum explore_kind kind, struct memory_object *object);

/* Reports the value that the step loaded, or left in the object, for the printed schedule. */
void explore_came_to(uint64_t value);

/* Reports that a lock is free again. This is no step, because no other thread can observe when it
 * happens. */
void explore_dropped(struct memory_object *lock);

#endif
