#include "alloc/background.h"

#include "alloc/heap.h"
#include "alloc/page_heap.h"
#include "alloc/purge.h"
#include "base/loaded.h"

#include <errno.h>
#include <link.h>
#include <signal.h>

enum {
    PERIOD_MS = 260, /* a little more than EPOCH_MS of purge.c */
    PERIOD_MOST_MS = 5000,
    STACK_BYTES = 1 << 20, /* must also hold the program's thread-local data */
};

_Atomic int background_due;
background_create *(*background_next_create)(void);

static bool failure_reported; /* a forked child inherits the value */

/* The result of find_create(), looked up when the thread is wanted. A later lookup could wait for a
 * thread that loads a library and waits for the caller of malloc. */
static background_create *create;

/* The thread's body. If the kernel takes no memory back, for example because the memory is locked,
 * the thread doubles its period, up to PERIOD_MOST_MS. */
static void *body(void *nothing)
{
    unsigned period = PERIOD_MS;
    for (;;) {
        os_sleep_ms(period);
        heap_sweep();
        purge_look();
        period = purge_is_refused() ? 2 * period : PERIOD_MS;
        if (period > PERIOD_MOST_MS)
            period = PERIOD_MOST_MS;
        if (purge_rest(PERIOD_MOST_MS))
            period = PERIOD_MS;
    }
    return nothing;
}

/* A forked child does not have the thread, so the thread is due again. */
static void after_fork_in_child(void)
{
    atomic_store_explicit(&background_due, 1, memory_order_relaxed);
}

/* Called by dl_iterate_phdr() for its first object, which is the program. Sets `*found` if body()
 * lies in the program. Returns 1, which ends the iteration. */
static int look_into_program(struct dl_phdr_info *object, size_t bytes, void *found)
{
    (void)bytes;
    *(bool *)found = loaded_contains(object, (uintptr_t)body);
    return 1;
}

bool background_may_be_closed(void)
{
    bool is_program = false;
    if (background_next_create != NULL)
        return false;
    dl_iterate_phdr(look_into_program, &is_program);
    return !is_program;
}

/* Returns the pthread_create() to use. Returns NULL if this allocator is part of a library that can
 * be closed. */
static background_create *find_create(void)
{
    if (background_next_create != NULL)
        return background_next_create();
    return background_may_be_closed() ? NULL : pthread_create;
}

void background_want(void)
{
    run_cache_keep_nothing();
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next)
        heap->runs.most = 0;
    purge_is_watched();
    create = find_create();
    if (pthread_atfork(NULL, NULL, after_fork_in_child) == 0)
        atomic_store_explicit(&background_due, 1, memory_order_relaxed);
}

/* Creates the thread. The thread does not inherit the priority of its creator, because its work can
 * wait. It blocks all signals. Returns false if the thread cannot be created. */
static bool begin(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    if (create == NULL)
        create = find_create();
    if (create == NULL || pthread_attr_init(&attributes) != 0)
        return false;
    sigfillset(&all);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool done = create(&thread, &attributes, body, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return done;
}

void background_begin(void)
{
    static const char line[] =
        "cairn: CAIRN_BACKGROUND: no thread could be created, so memory goes back only "
        "when the program frees or allocates\n";
    int saved = errno;
    if (page_heap_level().use.used >= CHUNK_SLICES &&
        atomic_exchange_explicit(&background_due, 0, memory_order_relaxed) && !begin() &&
        !failure_reported) {
        failure_reported = true;
        os_say(line, sizeof line - 1);
    }
    errno = saved;
}
