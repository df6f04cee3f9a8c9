/* thread.h - the one pointer that every thread has: its heap.
 *
 * The pointer begins as heap_none, a heap whose lists are all empty. So the fast paths need not ask
 * whether the thread has a heap: the first call finds an empty list, takes the slow path, and calls
 * thread_birth(). libc runs the destructors of thread-specific data in up to four rounds. In each
 * round, the thread leaves its heap, and gets one again if a later destructor needs it. In the last
 * round the pointer becomes heap_gone, which is empty as well. Later allocations of the thread come
 * from thread_late(): one shared heap for all such threads. If the first allocation of a thread
 * comes from a destructor of the fourth round, the thread never leaves its heap. In a process with
 * many threads, the first allocations of a thread come from the shared heap, too: thread_first().
 *
 * For a moment the pointer may be heap_away, which is empty as well: detour.h says why.
 *
 * The allocator has little static thread-local storage besides this pointer and lock_count
 * (os/lock.h). A library that is linked with it can therefore still be opened by dlopen().
 */
#ifndef CAIRN_ALLOC_THREAD_H
#define CAIRN_ALLOC_THREAD_H

#include "alloc/heap.h"

extern const struct heap heap_none __attribute__((visibility("hidden")));
extern const struct heap heap_gone __attribute__((visibility("hidden")));
extern _Thread_local struct heap *thread_heap
    __attribute__((visibility("hidden"), tls_model("initial-exec")));

extern const struct heap heap_away __attribute__((visibility("hidden")));
/* Returns whether the thread has put its heap aside for a detour (detour.h). */
static inline bool thread_is_away(void)
{
    return thread_heap == &heap_away;
}

/* Returns the thread's heap, even if the thread has put it aside (detour.h). The variable
 * hardening_caller then points to the heap: static thread-local storage is scarce, and the plain
 * build uses this variable for nothing else while the thread has a heap. Returns heap_none or
 * heap_gone if the thread has no heap. */
static inline struct heap *thread_own_heap(void)
{
    return UNLIKELY(thread_is_away()) ? (struct heap *)hardening_caller : thread_heap;
}

/* Returns true if the thread has a heap of its own. Puts the heap back if the thread has put it
 * aside. */
static inline bool thread_has_heap(void)
{
    if (UNLIKELY(thread_is_away()))
        thread_heap = thread_own_heap();
    return thread_heap != &heap_none && thread_heap != &heap_gone;
}

/* Gives the calling thread a heap, and returns it. The caller has found heap_none or heap_gone.
 * Returns NULL if the thread is ending or there is no memory. The caller then uses
 * thread_late(). */
struct heap *thread_birth(void) __attribute__((cold));

/* Returns a small block from the shared heap of all threads that have no heap. Returns NULL if
 * there is no memory. */
void *thread_late(size_t size) __attribute__((cold));

/* In a process with many threads, most threads allocate a few blocks and then wait. A heap of its
 * own takes 3 KB, and an OS page for each class that the thread uses. So if heap_is_scarce(), the
 * first small blocks of a new thread come from the heap of thread_late(). They are whole cache
 * lines, so that the first blocks of two threads share none.
 *
 * Returns such a block. Returns NULL if the calling thread, which has heap_none, gets a heap now:
 * because heaps are not scarce, because the block is larger than 4 KiB, because the thread has made
 * 64 calls, or because there is no memory. Always returns NULL in the hardened build. */
void *thread_first(size_t size) __attribute__((cold));

/* Called when the calling thread, which has heap_none, frees a block. Counts the call. Returns true
 * if the thread goes on without a heap. Returns false if it has made 64 calls, if it has no block
 * from thread_first(), and in the hardened build. */
bool thread_is_first(void) __attribute__((cold));

/* The caller is in the state of lock_is_unsafe(). Returns true if the caller may take locks from
 * now on: the process is the child of a fork that ran no fork handlers, and no thread of the parent
 * held a lock. In that case, the heaps of the other threads become heaps without a thread. */
bool thread_adopt_child(void) __attribute__((cold));

/* Returns false if the calling thread must take no lock now. There are two reasons. The caller may
 * be a signal handler that has interrupted the thread while it held a lock. Or the process may be
 * the child of a fork, and a thread that exists only in the parent holds a lock. */
bool thread_may_lock(void);

/* Registers this allocator's fork handlers, unless that was done before. It is a constructor, with
 * the earliest priority that libraries may have. The attribute stands here, because the compiler
 * ignores the priority at the definition of a function that is declared without one. */
void thread_set_up(void) __attribute__((constructor(101)));

/* Called before and after the program registers fork handlers. Between the two calls, a fork by
 * another thread waits, for one second at most. libc holds the lock of its table of fork handlers
 * while it calls malloc to enlarge the table. Without the wait, the two threads could wait for each
 * other's locks. */
void thread_begin_registering(void);
void thread_end_registering(void);

#endif
