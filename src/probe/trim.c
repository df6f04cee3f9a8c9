#include "probe/trim.h"

#include "base/cpu.h"
#include "probe/account.h"
#include "probe/direct_syscall.h"
#include "probe/kernel_calls.h"
#include "probe/next.h"
#include "probe/objects.h"
#include "probe/own_stack.h"
#include "probe/unwind.h"

#include <dlfcn.h>
#include <errno.h>

/* Functions of the allocator. A member is NULL if the allocator has no such function. */
static struct {
    int (*malloc_trim)(size_t);
    void (*mi_collect)(bool);
    int (*mallctl)(const char *, void *, size_t *, void *, size_t);
    void (*release)(void);
} allocator;

/* Stores the address of a function that lies in the same library as malloc, or NULL. Without this
 * check, the probe would trim libc's heap and not that of the allocator. */
static void find(void *where, const char *name)
{
    Dl_info of_malloc, of_function;
    void *found = NULL;
    next_find(&found, name);
    bool same = found != NULL && next.malloc != NULL &&
                dladdr((const void *)(uintptr_t)next.malloc, &of_malloc) != 0 &&
                dladdr(found, &of_function) != 0 && of_malloc.dli_fbase == of_function.dli_fbase;
    *(void **)where = same ? found : NULL;
}

static bool has_any(void)
{
    return allocator.malloc_trim != NULL || allocator.mi_collect != NULL ||
           allocator.mallctl != NULL || allocator.release != NULL;
}

static void ask(void)
{
    if (allocator.mi_collect != NULL)
        allocator.mi_collect(true);
    else if (allocator.mallctl != NULL)
        allocator.mallctl("arena.4096.purge", NULL, NULL, NULL, 0);
    else if (allocator.release != NULL)
        allocator.release();
    else
        allocator.malloc_trim(0);
}

/* Adds a moment. Returns false if another thread is adding one and does not finish soon. */
static bool add_moment(void)
{
    enum { TRIES = 10000 };
    for (int i = 0; i < TRIES; i++) {
        uint64_t due = atomic_load_explicit(&session.next_moment_ticks, memory_order_relaxed);
        if (due != UINT64_MAX &&
            atomic_compare_exchange_strong(&session.next_moment_ticks, &due, UINT64_MAX)) {
            session_moment(live_now());
            return true;
        }
        direct_try(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    }
    return false;
}

/* Returns true if the signal interrupted a function of the allocator's library. The thread may be
 * in a function that the probe does not interpose, such as jemalloc's mallctl(), and hold a lock
 * that the request would wait for. Of glibc, whose library has much more than the allocator, these
 * functions are interposed (interpose_inspecting.c). */
static __attribute__((noinline)) bool in_library(const struct unwind_start *interrupted)
{
    struct unwind_stack stack;
    if (session.of_glibc)
        return false;
    unwind(interrupted, &stack);
    for (size_t i = 0; i < stack.count; i++) {
        uint32_t number = stack.frames[i].object;
        const struct object *object = number != 0 ? objects_get(number) : NULL;
        if (object != NULL && (uintptr_t)next.malloc - object->start < object->end - object->start)
            return true;
    }
    return false;
}

/* Runs in the handler of SIGSYS, on the probe's signal stack. All of it happens on this stack. If
 * the handler changed to another stack, the next signal would begin at the top of the signal stack
 * and overwrite the frames of this handler. If the program has a signal stack of its own, which may
 * be too small, nothing happens. Nor does anything if the signal interrupted another handler on
 * this stack, because that one may have interrupted the allocator.
 *
 * The signal may interrupt the beginning of an operation, which has set `frame` and `function` but
 * not yet the guard. So this function restores both. */
static void on_request(const struct unwind_start *interrupted)
{
    struct thread_state *me = &thread_state;
    if (me->guard != THREAD_OUTSIDE || me->forking || me->inspecting || session.head == NULL ||
        direct_forbidden || own_stack_program_has_some() || own_stack_holds(me, interrupted->stack))
        return;
    int error = errno;
    uintptr_t frame = me->frame;
    uint8_t function = me->function;
    me->frame = cpu_stack;
    me->function = PROFILE_TRIM;
    me->guard = THREAD_INSIDE;
    if (!in_library(interrupted) && add_moment()) {
        ask();
        (void)add_moment();
        me->counts->released[PROFILE_TRIM - PROFILE_ALLOCATING][account_phase()]++;
    }
    me->guard = THREAD_OUTSIDE;
    me->frame = frame;
    me->function = function;
    errno = error;
}

void trim_begin(void)
{
    if (!session_option_is("CAIRN_PROBE_TRIM", "on"))
        return;
    find(&allocator.mi_collect, "mi_collect");
    find(&allocator.mallctl, "mallctl");
    find(&allocator.release, "MallocExtension_ReleaseFreeMemory");
    find(&allocator.malloc_trim, "malloc_trim");
    if (!has_any())
        return;
    objects_begin();
    kernel_calls_serve(on_request);
}
