/* explore.h - the step: where memory.c hands over to the explorer. */
#ifndef CAIRN_MODEL_EXPLORE_H
#define CAIRN_MODEL_EXPLORE_H

#include "memory.h"

enum explore_kind {
    EXPLORE_NOTHING,
    EXPLORE_LOAD,
    EXPLORE_STORE,
    EXPLORE_CHANGE, /* read-modify-write */
    EXPLORE_TAKE,   /* a lock, whose first four bytes are 0 when it is free */
    EXPLORE_STOP,   /* of all others */
};

/* Returns when the step is the thread's to take: how many messages older than the newest a load takes. */
unsigned explore_step(enum explore_kind kind, struct memory_object *object);

/* What the step loaded or left in the object, for the printed schedule. */
void explore_came_to(uint64_t value);

/* The lock is free again; no step, since nobody can tell when exactly it happens. */
void explore_dropped(struct memory_object *lock);

#endif
