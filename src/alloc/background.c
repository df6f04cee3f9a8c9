#include "alloc/background.h"

#include "alloc/heap.h"
#include "alloc/page_heap.h"
#include "alloc/purge.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    PERIOD_MS = 260, /* an epoch of purge.c, and a little more */
    STACK_BYTES = 128 << 10,
};

_Atomic bool background_due;

static void *body(void *nothing)
{
    prctl(PR_SET_NAME, "cairn-purge", 0, 0, 0);
    for (;;) {
        os_sleep_ms(PERIOD_MS);
        heap_sweep();
        purge_look();
        purge_rest();
    }
    return nothing;
}

/* The thread is not here. */
static void after_fork_in_child(void)
{
    atomic_store_explicit(&background_due, true, memory_order_relaxed);
}

void background_want(void)
{
    if (pthread_atfork(NULL, NULL, after_fork_in_child) == 0)
        atomic_store_explicit(&background_due, true, memory_order_relaxed);
}

static bool begin(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    sigfillset(&all);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool done = pthread_create(&thread, &attributes, body, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return done;
}

void background_begin(void)
{
    static const char line[] = "cairn: no thread could be had for CAIRN_BACKGROUND: memory goes back when "
                               "the program frees or allocates\n";
    int saved = errno;
    if (page_heap_level().use.used >= CHUNK_SLICES &&
        atomic_exchange_explicit(&background_due, false, memory_order_relaxed) && !begin()) {
        ssize_t written = write(STDERR_FILENO, line, sizeof line - 1);
        (void)written;
    }
    errno = saved;
}
