/* own_stack.h - stacks of the probe's own, because the program's stack may be small.
 *
 * A program may allocate on the stack of a fibre, which may have less than 4 KiB. There the probe's
 * frames on every path of an allocation take less than 512 bytes
 * (tests/python/test_probe_stack.py). Two things would take more, so they have stacks of their own:
 *
 *     rare functions that take long, such as the beginning of a thread: own_stack_call()
 *     the frame of a signal, some 3.5 KiB with AVX-512: own_stack_arm()
 *
 * Stacks are reused and never unmapped. Any thread may call these functions.
 */
#ifndef CAIRN_PROBE_OWN_STACK_H
#define CAIRN_PROBE_OWN_STACK_H

#include "probe/thread_state.h"

#include <signal.h>

/* Calls `function` with `argument` on another stack. All signals but SIGSYS are blocked meanwhile,
 * because a handler of the program may need a large stack, or may expect the stack of its thread.
 * If there is no memory for a stack, calls the function on the present one. */
void own_stack_call(void (*function)(void *), void *argument);

/* own_stack_arm() gives the calling thread an alternate signal stack, if it has none.
 * own_stack_disarm() takes this stack away, unless the program has replaced it. */
void own_stack_arm(struct thread_state *me);
void own_stack_disarm(struct thread_state *me);

/* Called in the child of a fork. Frees the locks of the two kinds of unused stacks. Forgets the
 * unused stacks of a kind if another thread was taking or giving back one during the fork. */
void own_stack_forked(void);

/* Returns true if `stack` is the signal stack that own_stack_arm() gave to the thread. */
bool own_stack_is_ours(const struct thread_state *me, const stack_t *stack);

/* Returns true if `address` lies in the signal stack that own_stack_arm() gave to the thread. */
bool own_stack_holds(const struct thread_state *me, uintptr_t address);

/* own_stack_note_programs() notes that the program has given some thread an alternate signal stack.
 * From then on, own_stack_program_has_some() returns true. */
bool own_stack_program_has_some(void);
void own_stack_note_programs(void);

#endif
