/* interpose_nonallocating.c - the interposed functions that do not allocate: threads, the end of
 * the process, jumps, and libc's memory functions.
 */
#include "base/cpu.h"
#include "base/ticks.h"
#include "probe/direct_syscall.h"
#include "probe/futex_lock.h"
#include "probe/kernel_calls.h"
#include "probe/next.h"
#include "probe/spare.h"
#include "probe/thread.h"
#include "probe/trim.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define INTERPOSED __attribute__((visibility("default")))

/* Writes the code passed to exit() into the file. probe_begin() registers this handler before main.
 * So the handler runs after the program's exit handlers and after all destructors, including
 * probe_end(). */
static void note_exit(int code, void *nothing)
{
    (void)nothing;
    if (session.head != NULL &&
        (!direct_permits_getpid || (uint32_t)direct_call0(SYS_getpid) == session.head->process))
        session.head->exit_code = (uint32_t)code;
}

static int quick_exit_code;

/* probe_begin() registers this handler before main. So it runs after the program's handlers of
 * quick_exit(). */
static void note_quick_exit(void)
{
    thread_end_process(quick_exit_code);
}

static void on_fork(void);

/* Runs before main. If the constructor of a library allocates earlier, this allocation starts the
 * search for the allocator's functions. */
__attribute__((constructor)) static void probe_begin(void)
{
    (void)next_found();
    if (session_option("CAIRN_PROBE") != NULL) {
        kernel_calls_expect();
        on_exit(note_exit, NULL);
        at_quick_exit(note_quick_exit);
        spare_open(session_option("CAIRN_PROBE_SPARE"));
        pthread_atfork(NULL, NULL, on_fork);
        trim_begin();
    }
}

__attribute__((destructor)) static void probe_end(void)
{
    thread_end_process(0);
}

/* Chromium makes a child by clone() whose thread-local storage was not set up by libc. The storage
 * is all zeroes and has no room for the probe's data. Of the functions in this file, such a child
 * calls only _exit(). */
INTERPOSED void _exit(int code)
{
    if (LIKELY(pthread_self() != 0))
        thread_end_process(code);
    for (;;)
        direct_call3(SYS_exit_group, code, 0, 0);
}

INTERPOSED void _Exit(int code)
{
    _exit(code);
}

/* libc's functions do not call _exit() by its public name. */
INTERPOSED _Noreturn void quick_exit(int code)
{
    static void (*real)(int);
    if (real == NULL)
        next_find(&real, "quick_exit");
    quick_exit_code = code;
    real(code);
    __builtin_unreachable();
}

/* The parent ends within libc's function. If libc can make no child, it returns to the parent, and
 * the file is that of a running process again. */
INTERPOSED int daemon(int keep_folder, int keep_files)
{
    static int (*real)(int, int);
    if (real == NULL)
        next_find(&real, "daemon");
    thread_end_process(0);
    int result = real(keep_folder, keep_files);
    if (result != 0 && session.head != NULL)
        session.head->state = PROFILE_RUNNING;
    return result;
}

/* --- threads ---------------------------------------------------------------------------------- */

/* The start function and argument of a thread that pthread_create() is making. After the thread has
 * started, the struct is reused for a later thread. */
struct start {
    void *(*run)(void *);
    void *argument;
    struct start *next;
};

static struct futex_lock starts_lock;
static struct start *starts;

static struct start *start_take(void)
{
    enum { BYTES = 4096 };
    futex_lock_take(&starts_lock);
    struct start *start = starts;
    if (start == NULL) {
        start = direct_map(BYTES);
        for (size_t i = 0; start != NULL && i + 1 < BYTES / sizeof *start; i++)
            start[i].next = &start[i + 1];
    }
    starts = start != NULL ? start->next : NULL;
    futex_lock_drop(&starts_lock);
    return start;
}

static void start_drop(struct start *start)
{
    futex_lock_take(&starts_lock);
    start->next = starts;
    starts = start;
    futex_lock_drop(&starts_lock);
}

/* Runs in the child of a fork. If another thread held the lock during the fork, the list may be
 * broken and is forgotten. */
static void forget_starts(void)
{
    if (futex_lock_reset(&starts_lock))
        starts = NULL;
}

static void on_fork(void)
{
    forget_starts();
    session_retry();
}

static void *run_thread(void *argument)
{
    struct start start = *(struct start *)argument;
    start_drop(argument);
    thread_begin_announced();
    void *result = start.run(start.argument);
    thread_ends();
    return result;
}

INTERPOSED int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                              void *(*run)(void *), void *argument)
{
    (void)next_found();
    struct start *start = session.head != NULL ? start_take() : NULL;
    if (start == NULL)
        return next.pthread_create(thread, attributes, run, argument);
    start->run = run;
    start->argument = argument;
    uint64_t live = session_thread_comes();
    int error = next.pthread_create(thread, attributes, run_thread, start);
    if (error == 0) {
        session_thread_came(live);
    } else {
        session_thread_stays_away();
        start_drop(start);
    }
    return error;
}

/* --- leaving an operation by a jump or an exception ------------------------------------------- */

/* Called before a jump. Allocators do not call setjmp(), so the target of the jump lies outside the
 * allocator. The jump restores a saved signal mask. If the mask was saved before SIGSYS belonged to
 * the probe, it may block SIGSYS, so SIGSYS is removed from it. */
static void leave_to(struct __jmp_buf_tag *place)
{
    thread_leaves();
    if (place->__mask_was_saved && kernel_calls_owns_signal())
        sigdelset(&place->__saved_mask, SIGSYS);
}

INTERPOSED _Noreturn void longjmp(jmp_buf place, int value)
{
    leave_to(place);
    NEXT_ALONE(longjmp)(place, value);
    __builtin_unreachable();
}

INTERPOSED _Noreturn void _longjmp(jmp_buf place, int value)
{
    longjmp(place, value);
}

INTERPOSED _Noreturn void siglongjmp(sigjmp_buf place, int value)
{
    leave_to(place);
    NEXT_ALONE(siglongjmp)(place, value);
    __builtin_unreachable();
}

/* _FORTIFY_SOURCE replaces all three functions above by this one. */
_Noreturn void __longjmp_chk(jmp_buf place, int value);
INTERPOSED _Noreturn void __longjmp_chk(jmp_buf place, int value)
{
    if (next.longjmp_checked == NULL)
        next_find(&next.longjmp_checked, "__longjmp_chk");
    leave_to(place);
    next.longjmp_checked(place, value);
    __builtin_unreachable();
}

/* The first part of a throw in the Itanium ABI: allocates the exception. */
void *__cxa_allocate_exception(size_t bytes);
INTERPOSED void *__cxa_allocate_exception(size_t bytes)
{
    if (next.allocate_exception == NULL)
        next.allocate_exception = next_of_runtime("__cxa_allocate_exception");
    void *(*allocate)(size_t) = next.allocate_exception;
    if (allocate == NULL)
        allocate = next_of_object(__builtin_return_address(0), "__cxa_allocate_exception");
    thread_throws(cpu_stack);
    return allocate(bytes);
}

/* The throw of the Itanium ABI. Operator new calls it to leave an operation with std::bad_alloc. */
_Noreturn void __cxa_throw(void *exception, void *type, void (*destroy)(void *));
INTERPOSED _Noreturn void __cxa_throw(void *exception, void *type, void (*destroy)(void *))
{
    if (next.throw == NULL)
        next.throw = next_of_runtime("__cxa_throw");
    void (*throw)(void *, void *, void (*)(void *)) = next.throw;
    if (throw == NULL)
        throw = next_of_object(__builtin_return_address(0), "__cxa_throw");
    thread_leaves();
    throw(exception, type, destroy);
    __builtin_unreachable();
}

/* --- libc's memory functions, without dispatch ------------------------------------------------ */

/* Counts a system call that was made through libc's function. The call failed if libc's function
 * returned -1. */
static void note(long number, long a, long b, long c, long result, uint64_t before)
{
    kernel_calls_note(number, (const long[3]){a, b, c}, result == -1 ? -errno : result,
                      ticks_after() - before, 0);
}

INTERPOSED void *mmap(void *start, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (LIKELY(!kernel_calls_interposed()))
        return NEXT_ALONE(mmap)(start, bytes, protection, flags, fd, offset);
    uint64_t before = ticks_before();
    void *result = NEXT_ALONE(mmap)(start, bytes, protection, flags, fd, offset);
    note(SYS_mmap, (long)start, (long)bytes, protection, (long)result, before);
    return result;
}

INTERPOSED void *mmap64(void *start, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return mmap(start, bytes, protection, flags, fd, offset);
}

INTERPOSED int munmap(void *start, size_t bytes)
{
    if (LIKELY(!kernel_calls_interposed()))
        return NEXT_ALONE(munmap)(start, bytes);
    uint64_t before = ticks_before();
    int result = NEXT_ALONE(munmap)(start, bytes);
    note(SYS_munmap, (long)start, (long)bytes, 0, result, before);
    return result;
}

INTERPOSED int madvise(void *start, size_t bytes, int advice)
{
    if (LIKELY(!kernel_calls_interposed()))
        return NEXT_ALONE(madvise)(start, bytes, advice);
    uint64_t before = ticks_before();
    int result = NEXT_ALONE(madvise)(start, bytes, advice);
    note(SYS_madvise, (long)start, (long)bytes, advice, result, before);
    return result;
}

INTERPOSED int mprotect(void *start, size_t bytes, int protection)
{
    if (LIKELY(!kernel_calls_interposed()))
        return NEXT_ALONE(mprotect)(start, bytes, protection);
    uint64_t before = ticks_before();
    int result = NEXT_ALONE(mprotect)(start, bytes, protection);
    note(SYS_mprotect, (long)start, (long)bytes, protection, result, before);
    return result;
}

INTERPOSED void *sbrk(intptr_t more)
{
    if (LIKELY(!kernel_calls_interposed()))
        return NEXT_ALONE(sbrk)(more);
    uint64_t before = ticks_before();
    void *result = NEXT_ALONE(sbrk)(more);
    uint64_t ticks = ticks_after() - before;
    const long arguments[3] = {0};
    if (result == (void *)-1)
        kernel_calls_note(SYS_brk, arguments, -ENOMEM, ticks, 0);
    else
        kernel_calls_note(SYS_brk, arguments, (long)result + more, ticks, 0);
    return result;
}
