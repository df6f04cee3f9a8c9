#include "alloc/thread.h"

#include "alloc/page_heap.h"
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

static struct lock late_lock; /* guards late_heap */
static struct heap *late_heap;

/* The low bits of the key's value count how often this thread's destructors have been run so
 * far. */
enum { ROUNDS = PTHREAD_DESTRUCTOR_ITERATIONS };
_Static_assert((ROUNDS & (ROUNDS - 1)) == 0 && ROUNDS <= 16, "a heap's low bits are zero");

/* Destructor of the key. Keeps the heap until the last round of destructors, because destructors of
 * other libraries may still allocate. */
static void on_exit_of_thread(void *value)
{
    uintptr_t round = (uintptr_t)value & (ROUNDS - 1);
    if (round < ROUNDS - 1 && pthread_setspecific(key, (char *)value + 1) == 0)
        return;
    thread_heap = (struct heap *)&heap_gone;
    heap_leave((struct heap *)((uintptr_t)value - round));
}

static void before_fork(void)
{
    lock_take(&setup_lock);
    lock_take(&late_lock);
    heap_lock_all();
    page_heap_lock();
    site_lock();
}

static void after_fork(void)
{
    site_unlock();
    page_heap_unlock();
    heap_unlock_all();
    lock_drop(&late_lock);
    lock_drop(&setup_lock);
}

/* Only the calling thread lives in the child. The heaps of the other threads keep their memory. */
static void after_fork_in_child(void)
{
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next)
        heap->has_thread = heap == thread_heap;
    after_fork();
}

/* Runs once in a process: when the library is initialised, or when the first heap is made, if that
 * is earlier. A process without a heap needs the fork handlers, too: large blocks take the page
 * heap's lock, which a fork must not leave taken. The functions called here may allocate, so no
 * lock is held. */
__attribute__((constructor)) static void set_up_process(void)
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

struct heap *thread_birth(void)
{
    if (thread_heap != &heap_none)
        return NULL;
    struct heap *heap = heap_acquire(false);
    if (heap == NULL)
        return NULL;
    thread_heap = heap;
    set_up_process();
    if (has_key)
        pthread_setspecific(key, heap);
    return heap;
}

void *thread_late(size_t size)
{
    lock_take(&late_lock);
    if (late_heap == NULL)
        late_heap = shared_heap_create();
    struct heap *heap = late_heap;
    lock_drop(&late_lock);
    bool zero;
    return heap == NULL ? NULL : shared_heap_allocate(heap, size, 1, &zero);
}
