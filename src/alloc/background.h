/* background.h - a thread that gives back what nobody needs while the program sleeps; only where it is asked for.
 *
 * Without it idle memory is looked at by who frees or allocates, so that a program that frees much and then sleeps keeps what was
 * idle for less than a quarter of a second. The thread begins when 2 MiB are in use, blocks all signals, and sleeps for good where
 * nothing is idle, until a run is freed. In the child of a fork there is none until the child allocates.
 */
#ifndef CAIRN_ALLOC_BACKGROUND_H
#define CAIRN_ALLOC_BACKGROUND_H

#include "base/base.h"

#include <stdatomic.h>

/* There is to be one, and there is none yet. */
extern _Atomic bool background_due __attribute__((visibility("hidden")));

/* There is to be one. */
void background_want(void);

/* Begins it, if it is time. By any thread, while background_due; not under a lock. Where the machine refuses, a line on stderr says so. */
void background_begin(void) __attribute__((cold));

#endif
