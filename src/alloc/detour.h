/* detour.h - makes the next call of a thread leave the fast path, so that the thread looks at the
 * clock although it allocates rarely.
 *
 * Memory that was idle for an epoch (purge.h) is given back by a thread that reaches a slow path.
 * A thread that frees much, and then uses a few blocks again and again, reaches none: its lists
 * serve every call. While there is something to give back, a thread therefore puts its heap aside.
 * thread_heap is then heap_away, a heap whose lists are all empty, and the next call takes a
 * detour: its slow path calls detour_end(), serves the request from the heap, and calls
 * detour_begin(). The fast paths have no instruction for this.
 *
 * A thread earns one detour for each 2^TICKS_SHIFT ticks of the clock (detour.c). If it has made
 * all that it earned, its heap stays in place until the next slow path. The detours that are left
 * tell how often a thread calls the allocator. Many are left after a pause. The thread is then
 * quiet, and heap_trim() gives back more.
 *
 * A signal handler may interrupt a thread anywhere: thread_heap changes last when the heap is put
 * aside, and the heap that is aside stays known.
 */
#ifndef CAIRN_ALLOC_DETOUR_H
#define CAIRN_ALLOC_DETOUR_H

#include "alloc/purge.h"
#include "alloc/thread.h"

/* Puts the heap aside if the thread may make a detour. Called at the end of a slow path, without a
 * lock. */
void detour_begin(void) __attribute__((cold));

/* Puts the heap back, and looks at the clock. Called only while thread_is_away() is true. */
void detour_end(void) __attribute__((cold));

/* Called at the end of a slow path of the thread's heap. */
static inline void detour_look(struct heap *heap)
{
    if (!CAIRN_HARDENED && UNLIKELY(heap->trim.due | purge_is_due()))
        detour_begin();
}

#endif
