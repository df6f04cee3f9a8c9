#include "alloc/thread.h"

#include "alloc/page_heap.h"
#include "os/os.h"

#include <pthread.h>

const struct heap heap_none;
const struct heap heap_gone;
_Thread_local struct heap *thread_heap = (struct heap *)&heap_none;

static struct lock setup_lock;
static bool set_up;
static bool has_key;
static pthread_key_t key;

static struct lock late_lock;
static struct heap *late_heap;

static void on_exit_of_thread(void *heap)
{
    thread_heap = (struct heap *)&heap_gone;
    heap_release(heap);
}

static void before_fork(void)
{
    lock_take(&setup_lock);
    lock_take(&late_lock);
    heap_lock_all();
    page_heap_lock();
}

static void after_fork(void)
{
    page_heap_unlock();
    heap_unlock_all();
    lock_drop(&late_lock);
    lock_drop(&setup_lock);
}

/* Once in a process. What is called here may allocate: this thread already has its heap, and no lock is held. */
static void set_up_process(void)
{
    lock_take(&setup_lock);
    bool first = !set_up;
    set_up = true;
    lock_drop(&setup_lock);
    if (!first)
        return;
    has_key = pthread_key_create(&key, on_exit_of_thread) == 0;
    pthread_atfork(before_fork, after_fork, after_fork);
}

struct heap *thread_birth(void)
{
    if (thread_heap != &heap_none)
        return NULL;
    if (UNLIKELY(slab_secret == 0))
        slab_secret =
            (os_random() & ~(uintptr_t)15) | 8; /* any thread would set it before it has a block; see below */
    struct heap *heap = heap_acquire();
    if (heap == NULL)
        return NULL;
    thread_heap = heap;
    set_up_process();
    if (has_key)
        pthread_setspecific(key, heap);
    return heap;
}

void *thread_late(unsigned class)
{
    lock_take(&late_lock);
    if (late_heap == NULL)
        late_heap = heap_acquire();
    struct block *block = NULL;
    if (late_heap != NULL) {
        block = late_heap->list[class];
        if (block != NULL) {
            late_heap->list[class] = block->next;
            block->key = 0;
        } else {
            block = heap_refill(late_heap, class);
        }
    }
    lock_drop(&late_lock);
    return block;
}
