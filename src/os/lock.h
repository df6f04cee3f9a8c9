/* lock.h - a lock of four bytes. A thread waits for it in the kernel. A lock whose bytes are all
 * zero is free.
 *
 * The lock has three states, so that a thread which does not have to wait makes no system call
 * (Drepper, "Futexes Are Tricky", mutex 3). The lock is not recursive and not fair. The next
 * lock_take() sees everything that was written before lock_drop(). The lock may be used within
 * malloc. A fork handler may take the lock before the fork, and another handler may drop it after
 * the fork.
 *
 * While glibc says that the process has only one thread, the lock uses no atomic exchange, because
 * an atomic exchange takes as long as twenty other instructions. With other C libraries, which do
 * not say this, the lock always uses an atomic exchange. No thread may be created while a lock is
 * held.
 *
 * Each thread counts the locks that it holds or waits for. A signal handler may interrupt a thread
 * while it holds a lock, and may then call malloc, for example in the child of a fork. The handler
 * would wait forever for a lock of its own thread, so it asks lock_is_held() first.
 *
 * A thread that is about to fork takes all locks of the allocator, and then calls
 * lock_begin_fork(). Until it calls lock_end_fork(), also in the child, its own calls of
 * lock_take() and lock_drop() do nothing. So fork handlers may allocate while all locks are taken.
 */
#ifndef CAIRN_OS_LOCK_H
#define CAIRN_OS_LOCK_H

#include "os/os.h"

#include <stdatomic.h>

#if __has_include(<sys/single_threaded.h>) /* glibc 2.32 */
#include <sys/single_threaded.h>
#define LOCK_IS_ALONE __libc_single_threaded
#else
#define LOCK_IS_ALONE false
#endif

struct lock {
    _Atomic uint32_t state; /* 0: free, 1: taken, 2: taken, and a thread may wait */
};

/* The number of locks that the calling thread holds or waits for. A lock that is taken by
 * lock_acquire() alone does not count. A signal handler of the thread reads the same value. The
 * variable's address identifies the thread. */
extern _Thread_local volatile uint32_t lock_count
    __attribute__((visibility("hidden"), tls_model("initial-exec")));

/* The thread that called lock_begin_fork(), as the address of its lock_count; else NULL. */
extern _Atomic(volatile uint32_t *) lock_forker __attribute__((visibility("hidden")));

/* Points to a word that is 1. In the child of a fork the word is 0 until the child sets it to 1
 * again, if the parent called lock_watch_forks() before. A child of vfork() shares the word with
 * its parent, like all memory. Before lock_watch_forks() it is lock_no_mark, which is always 1. */
extern _Atomic(_Atomic uint32_t *) lock_mark __attribute__((visibility("hidden")));
extern _Atomic uint32_t lock_no_mark __attribute__((visibility("hidden")));

/* True if lock_wait() returned without the lock in the child of a fork. The data that the lock
 * guards may be damaged. */
extern _Atomic bool lock_was_ignored __attribute__((visibility("hidden")));

/* Takes a lock that is not free: spins for a while, then waits in the kernel. Returns at once and
 * without the lock in two cases: the caller is the thread that called lock_begin_fork(), or
 * lock_is_in_new_child() is true. In such a child the thread that held the lock does not exist. */
void lock_wait(struct lock *lock) __attribute__((cold));

/* From now on `lock_mark` shows whether the process has forked. If the kernel refuses, the mark is
 * always 1. Any thread may call this function. */
void lock_watch_forks(void) __attribute__((cold));

/* Takes the lock if it is free. Returns false if it is not. */
static inline bool lock_try(struct lock *lock)
{
    uint32_t free = 0;
    if (LOCK_IS_ALONE) {
        bool is_free = atomic_load_explicit(&lock->state, memory_order_relaxed) == 0;
        if (LIKELY(is_free))
            atomic_store_explicit(&lock->state, 1, memory_order_relaxed);
        return is_free;
    }
    return atomic_compare_exchange_strong_explicit(&lock->state, &free, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Like lock_take() and lock_drop(), for a lock that is held while the thread calls malloc. The
 * thread does not count the lock. */
static inline void lock_acquire(struct lock *lock)
{
    if (UNLIKELY(!lock_try(lock)))
        lock_wait(lock);
}

static inline void lock_release(struct lock *lock)
{
    if (LOCK_IS_ALONE && LIKELY(atomic_load_explicit(&lock->state, memory_order_relaxed) == 1))
        atomic_store_explicit(&lock->state, 0, memory_order_relaxed);
    else if (UNLIKELY(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2))
        os_wake(&lock->state);
}

/* Like lock_acquire(), but gives up after about `ms` milliseconds. Returns whether the lock is
 * taken. */
bool lock_acquire_within(struct lock *lock, unsigned ms);

/* Returns whether the calling thread holds or waits for a lock that it counts. */
static inline bool lock_is_held(void)
{
    return lock_count != 0;
}

/* Returns whether the calling thread is between lock_begin_fork() and lock_end_fork(). */
static inline bool lock_is_forking(void)
{
    return atomic_load_explicit(&lock_forker, memory_order_relaxed) == &lock_count;
}

/* lock_enter() counts a lock without taking one. A signal handler that interrupts the code before
 * lock_leave() then finds lock_is_held(). So it neither waits for a lock nor runs the same code
 * again. */
static inline void lock_enter(void)
{
    lock_count++;
    atomic_signal_fence(memory_order_seq_cst);
}

static inline void lock_leave(void)
{
    atomic_signal_fence(memory_order_seq_cst);
    lock_count--;
}

static inline void lock_take(struct lock *lock)
{
    lock_enter(); /* first, because a signal may come after lock_acquire() */
    lock_acquire(lock);
}

static inline void lock_drop(struct lock *lock)
{
    if (LIKELY(!lock_is_forking()))
        lock_release(lock);
    lock_leave();
}

/* Called after the thread has taken all locks of the allocator. */
static inline void lock_begin_fork(void)
{
    atomic_store_explicit(&lock_forker, &lock_count, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    lock_count = 0;
}

/* Called before the thread drops all locks of the allocator. Each lock_drop() counts down, and the
 * count must not become 0 before the last one: a signal handler would then wait for a lock of its
 * own thread. So the count begins above any number of locks. */
static inline void lock_end_fork(void)
{
    lock_count = UINT32_MAX;
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&lock_forker, NULL, memory_order_relaxed);
}

/* Called after lock_end_fork(), when the thread has dropped all locks of the allocator. */
static inline void lock_hold_none(void)
{
    atomic_signal_fence(memory_order_seq_cst);
    lock_count = 0;
}

/* Returns whether the process is the child of a fork and has not called lock_set_mark() yet. */
static inline bool lock_is_in_new_child(void)
{
    /* Acquire order, because lock_watch_forks() publishes the mark with release order. */
    _Atomic uint32_t *mark = atomic_load_explicit(&lock_mark, memory_order_acquire);
    return atomic_load_explicit(mark, memory_order_relaxed) == 0;
}

/* Returns whether the calling thread must not wait for a lock now. This is so if the thread holds a
 * lock itself, or if a thread that exists only in the parent process may hold one. This function is
 * called before locks are taken. It therefore also makes the mark that shows a fork, once the
 * process has a second thread. */
static inline bool lock_is_unsafe(void)
{
    if (!LOCK_IS_ALONE &&
        UNLIKELY(atomic_load_explicit(&lock_mark, memory_order_relaxed) == &lock_no_mark))
        lock_watch_forks();
    return UNLIKELY(lock_is_held() || lock_is_in_new_child()) &&
           (lock_is_held() || !lock_is_forking());
}

/* Ends the state of lock_is_in_new_child(). */
static inline void lock_set_mark(void)
{
    _Atomic uint32_t *mark = atomic_load_explicit(&lock_mark, memory_order_acquire);
    atomic_store_explicit(mark, 1, memory_order_relaxed);
}

/* Makes the lock free in the child of a fork, whichever thread held it in the parent. */
static inline void lock_reset(struct lock *lock)
{
    atomic_store_explicit(&lock->state, 0, memory_order_relaxed);
}

/* Returns whether any thread has taken the lock. */
static inline bool lock_is_taken(struct lock *lock)
{
    return atomic_load_explicit(&lock->state, memory_order_relaxed) != 0;
}

#endif
