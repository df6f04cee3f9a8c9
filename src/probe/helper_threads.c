/* helper_threads.c - libc's functions that make threads for libc itself: asynchronous input and
 * output, getaddrinfo_a(), mq_notify() and, before version 2.32 of glibc, timer_create().
 *
 * Such a function blocks every signal by an internal call, which signals.c does not see. Then it
 * makes the thread, which allocates. So the system calls of the calling thread are not dispatched
 * within these functions (kernel_calls_pause()). The threads that libc makes are armed like any
 * other.
 */
#include "probe/kernel_calls.h"
#include "probe/next.h"
#include "probe/thread.h"

#include <aio.h>
#include <mqueue.h>
#include <netdb.h>
#include <time.h>

#define INTERPOSED __attribute__((visibility("default")))

/* The thread begins first. If it began within libc's function, it would be armed there. */
static bool pause_calls(void)
{
    thread_begin_early();
    return kernel_calls_pause(&thread_state);
}

/* Before version 2.34 of glibc, these functions lie in libraries that a plugin may load for itself.
 * NEXT_ALONE() does not find them there. */
#define FUNCTION(name, PARAMETERS, ARGUMENTS)                                                      \
    INTERPOSED int name PARAMETERS                                                                 \
    {                                                                                              \
        static int(*real) PARAMETERS;                                                              \
        if (UNLIKELY(real == NULL))                                                                \
            next_find(&real, #name);                                                               \
        int(*call) PARAMETERS = real;                                                              \
        if (UNLIKELY(call == NULL))                                                                \
            *(void **)&call = next_of_object(__builtin_return_address(0), #name);                  \
        bool paused = pause_calls();                                                               \
        int result = call ARGUMENTS;                                                               \
        if (paused)                                                                                \
            kernel_calls_resume(&thread_state);                                                    \
        return result;                                                                             \
    }

FUNCTION(aio_read, (struct aiocb * request), (request))
FUNCTION(aio_read64, (struct aiocb64 * request), (request))
FUNCTION(aio_write, (struct aiocb * request), (request))
FUNCTION(aio_write64, (struct aiocb64 * request), (request))
FUNCTION(aio_fsync, (int operation, struct aiocb *request), (operation, request))
FUNCTION(aio_fsync64, (int operation, struct aiocb64 *request), (operation, request))
FUNCTION(lio_listio,
         (int mode, struct aiocb *const requests[], int count, struct sigevent *notification),
         (mode, requests, count, notification))
FUNCTION(lio_listio64,
         (int mode, struct aiocb64 *const requests[], int count, struct sigevent *notification),
         (mode, requests, count, notification))
FUNCTION(getaddrinfo_a,
         (int mode, struct gaicb *requests[], int count, struct sigevent *notification),
         (mode, requests, count, notification))
FUNCTION(timer_create, (clockid_t clock, struct sigevent *event, timer_t *timer),
         (clock, event, timer))
FUNCTION(mq_notify, (mqd_t queue, const struct sigevent *notification), (queue, notification))
