/* preemption.h - detects whether the thread lost its processor between two points. Both points
 * together take 1.5 ns and no system call.
 *
 * preemption_watch() announces a restartable sequence to the kernel (rseq(2), Linux 4.18; glibc
 * registers every thread from 2.35 on). The thread never runs the instructions of this sequence. If
 * the thread is switched, migrated or gets a signal outside an announced sequence, the kernel
 * clears the announcement, and preemption_occurred() returns true. An allocator that uses
 * restartable sequences itself overwrites the announcement with its own. preemption_occurred() then
 * returns false.
 */
#ifndef CAIRN_PROBE_PREEMPTION_H
#define CAIRN_PROBE_PREEMPTION_H

#include "base/base.h"

#if defined(__x86_64__) && __has_include(<sys/rseq.h>)

#include <sys/rseq.h>

#pragma weak __rseq_offset
#pragma weak __rseq_size

/* Returns the field of the thread's rseq area in which a sequence is announced. */
static inline volatile uint64_t *preemption_note(void)
{
    struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    return (volatile uint64_t *)&area->rseq_cs;
}

static inline bool preemption_is_detectable(void)
{
    return &__rseq_size != NULL && __rseq_size != 0;
}

extern struct rseq_cs preemption_sequence;

/* Announces the sequence. */
static inline void preemption_watch(void)
{
    if (preemption_is_detectable())
        *preemption_note() = (uintptr_t)&preemption_sequence;
}

/* Ends the announcement. Returns true if the thread lost its processor since preemption_watch().
 * Returns false if the thread kept its processor, or if this is not known. */
static inline bool preemption_occurred(void)
{
    if (!preemption_is_detectable())
        return false;
    uint64_t note = *preemption_note();
    if (note == (uintptr_t)&preemption_sequence)
        *preemption_note() = 0;
    return note == 0;
}

#else

static inline void preemption_watch(void)
{
}

static inline bool preemption_occurred(void)
{
    return false;
}

#endif

#endif
