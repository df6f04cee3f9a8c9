#include "alloc/thread.h"

#include "alloc/page_heap.h"
#include "alloc/quarantine.h"
#include "alloc/shared_heap.h"
#include "alloc/site.h"
#include "os/os.h"

#include <limits.h>
#include <pthread.h>

const struct heap heap_none;
const struct heap heap_gone;
_Thread_local struct heap *thread_heap = (struct heap *)&heap_none;

static struct lock setup_lock;
static bool set_up;
static bool has_key;
static pthread_key_t key;

static struct lock late_lock; /* guards the creation of late_heap */
static struct heap *_Atomic late_heap;

/* Destructor of the key. `round` is 1 in the first round of destructors that calls it. The thread
 * leaves its heap in every round, because this may be the last round: `round` is too low if a
 * destructor of another library made the thread's first call of the allocator. If another
 * destructor allocates afterwards, the thread usually gets the same heap again, and leaves it in
 * the next round. */
static void on_exit_of_thread(void *round)
{
    uintptr_t begun = (uintptr_t)round;
    bool again =
        begun < PTHREAD_DESTRUCTOR_ITERATIONS && pthread_setspecific(key, (void *)(begun + 1)) == 0;
    const struct heap *next = again ? &heap_none : &heap_gone;
    struct heap *heap = thread_has_heap() ? thread_heap : NULL;
    bool leaves = heap != NULL && thread_may_lock(); /* otherwise the heap stays as it is */
    if (CAIRN_HARDENED && leaves)
        quarantine_drain(heap);
    if (leaves || !again || heap == NULL)
        thread_heap = (struct heap *)next;
    if (leaves)
        heap_leave(heap);
}

/* --- fork ------------------------------------------------------------------------------------- */

/* The locks of glibc's list of all streams. A thread holds the list's lock while it waits for a
 * stream (fflush(NULL)), and the holder of a stream may wait for malloc. So the list is locked
 * before our locks. fork() itself locks the list again after our locks. That does no harm, because
 * the lock is recursive. */
void _IO_list_lock(void) __attribute__((weak));
void _IO_list_unlock(void) __attribute__((weak));
void _IO_list_resetlock(void) __attribute__((weak));

static bool streams_locked; /* three variables of the thread that forks */
static bool handlers_locked;
static unsigned depth; /* forks in progress: a handler may fork, too */

static struct lock handlers_lock;

enum { REGISTERING_MS = 1000 };

/* A fork handler may itself register handlers. Its thread then holds `handlers_lock` already, or
 * has given up waiting for this lock: before_fork(). */
void thread_begin_registering(void)
{
    if (!lock_is_forking())
        lock_acquire(&handlers_lock);
}

void thread_end_registering(void)
{
    if (!lock_is_forking())
        lock_release(&handlers_lock);
}

static bool has_taken_lock(void)
{
    return lock_is_taken(&setup_lock) || lock_is_taken(&late_lock) || heap_has_taken_lock() ||
           page_heap_has_taken_lock() || site_has_taken_lock() || guarded_has_taken_lock();
}

/* Only the calling thread lives in the child. The heaps of the other threads keep their memory. */
static void lose_other_threads(void)
{
    heap_lose_other_threads(thread_own_heap());
    lock_reset(&handlers_lock);
    lock_set_mark();
}

bool thread_may_lock(void)
{
    return !lock_is_unsafe() || thread_adopt_child();
}

bool thread_adopt_child(void)
{
    if (lock_is_held())
        return false;
    bool may = !has_taken_lock() && !atomic_load_explicit(&lock_was_ignored, memory_order_relaxed);
    if (may && lock_is_in_new_child())
        lose_other_threads();
    return may || !lock_is_in_new_child(); /* another thread may have set the mark */
}

/* The order of the locks is: streams, registering, and then as heap.h says.
 *
 * No lock is taken if a signal handler forks while its thread holds one of them. The child then
 * takes memory from emergency.h, until the interrupted function has dropped the lock.
 *
 * Before glibc 2.36, fork() calls this function while it holds the lock of glibc's table of
 * handlers. A thread that registers a handler holds `handlers_lock` and may wait for glibc's lock.
 * The wait for `handlers_lock` is therefore limited. */
static void before_fork(void)
{
    if (lock_is_forking()) {
        depth++;
        return;
    }
    if (!thread_may_lock())
        return;
    bool has_streams = _IO_list_lock != NULL && _IO_list_unlock != NULL;
    bool alone = LOCK_IS_ALONE;
    lock_enter(); /* a handler that forks from here on takes no lock */
    if (has_streams && !alone)
        _IO_list_lock();
    bool waited = lock_acquire_within(&handlers_lock, REGISTERING_MS);
    lock_take(&setup_lock);
    lock_take(&late_lock);
    heap_lock_all();
    page_heap_lock();
    site_lock();
    guarded_lock();
    streams_locked = has_streams && !alone;
    handlers_locked = waited;
    depth = 1;
    lock_begin_fork();
}

static void drop_locks(void)
{
    bool handlers = handlers_locked;
    lock_end_fork();
    guarded_unlock();
    site_unlock();
    page_heap_unlock();
    heap_unlock_all();
    lock_drop(&late_lock);
    lock_drop(&setup_lock);
    if (handlers)
        lock_release(&handlers_lock);
    lock_hold_none();
}

static void after_fork(void)
{
    if (!lock_is_forking() || --depth > 0)
        return;
    bool streams = streams_locked;
    drop_locks();
    if (streams)
        _IO_list_unlock();
}

/* A signal handler may interrupt a fork handler within malloc, and fork. The interrupted fork then
 * goes on in the child, too, and drops the locks there. */
static void after_fork_in_child(void)
{
    if (!lock_is_forking())
        return;
    bool streams = streams_locked;
    lose_other_threads();
    if (lock_is_held()) {
        depth--;
        return;
    }
    drop_locks();
    if (streams && _IO_list_resetlock != NULL)
        _IO_list_resetlock();
}

/* Runs once in a process: when the library is initialised, when the first heap is made, or when the
 * program registers its first fork handler, whichever comes first. A process without a heap needs
 * the fork handlers, too: large blocks take the page heap's lock, which a fork must not leave
 * taken. The functions called here may allocate, so no lock is held. */
void thread_set_up(void)
{
    lock_take(&setup_lock);
    bool first = !set_up;
    set_up = true;
    lock_drop(&setup_lock);
    if (!first)
        return;
    has_key = pthread_key_create(&key, on_exit_of_thread) == 0;
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* Called when the library that contains this allocator is closed. Deletes the key, because its
 * destructor is about to be unmapped. */
__attribute__((destructor)) static void tear_down_process(void)
{
    if (has_key)
        pthread_key_delete(key);
    has_key = false;
}

/* Sets the key's value, so that on_exit_of_thread() is called in the next round of destructors. */
static void watch_exit(void)
{
    thread_set_up();
    if (has_key && pthread_getspecific(key) == NULL)
        pthread_setspecific(key, (void *)1);
}

/* While the thread is between lock_enter() and lock_leave(), a signal handler takes its blocks from
 * emergency.h. So it does not get a heap, too. */
struct heap *thread_birth(void)
{
    lock_enter();
    struct heap *heap = thread_heap == &heap_none ? heap_acquire(false) : NULL;
    if (heap != NULL) {
        if (!CAIRN_HARDENED)
            hardening_caller = NULL;
        thread_heap = heap;
    }
    lock_leave();
    if (heap != NULL)
        watch_exit();
    return heap;
}

static void *allocate_late(size_t size, size_t alignment)
{
    struct heap *heap = atomic_load_explicit(&late_heap, memory_order_acquire);
    if (heap == NULL) {
        lock_take(&late_lock);
        if (late_heap == NULL)
            late_heap = shared_heap_create();
        heap = late_heap;
        lock_drop(&late_lock);
    }
    bool zero;
    return heap == NULL ? NULL : shared_heap_allocate(heap, size, alignment, &zero);
}

void *thread_late(size_t size)
{
    return allocate_late(size, 1);
}

enum {
    FIRST_CALLS = 64,        /* calls of a thread before it gets a heap */
    FIRST_BYTES_MOST = 4096, /* a larger block takes an OS page anyway */
    LINE_BYTES = 64,
};

/* Counts a call of the thread, after at least `least` earlier calls. Returns false if there were
 * fewer, if the thread has made FIRST_CALLS calls, or if it has a heap by now. Between lock_enter()
 * and lock_leave(), a signal handler does not give the thread a heap. */
static bool count_first(uintptr_t least)
{
    lock_enter();
    uintptr_t calls = thread_heap == &heap_none ? (uintptr_t)hardening_caller : FIRST_CALLS;
    bool counts = calls >= least && calls < FIRST_CALLS;
    if (counts)
        hardening_caller = (const void *)(calls + 1);
    lock_leave();
    if (counts && calls == 0)
        watch_exit();
    return counts;
}

void *thread_first(size_t size)
{
    if (CAIRN_HARDENED || size > FIRST_BYTES_MOST || guarded_is_on() || !heap_is_scarce() ||
        !count_first(0))
        return NULL;
    return allocate_late(size, LINE_BYTES);
}

bool thread_is_first(void)
{
    return !CAIRN_HARDENED && count_first(1);
}
