#include "probe/kernel_calls.h"

#include "base/ticks.h"
#include "probe/cpu_timer.h"
#include "probe/direct_syscall.h"
#include "probe/handed_out.h"
#include "probe/layout.h"
#include "probe/lock_table.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SYS_DISPATCH_ON /* Linux 5.11 */
#define PR_SYS_DISPATCH_OFF 0
#define PR_SYS_DISPATCH_ON  1
#endif
#ifndef SYS_USER_DISPATCH
#define SYS_USER_DISPATCH 2
#endif
#ifndef MADV_FREE
#define MADV_FREE 8
#endif

static enum profile_dispatch how = PROFILE_UNSEEN;
static uint64_t cost_ticks;
static struct sigaction theirs = {.sa_handler = SIG_DFL};
static void (*serve_request)(const struct unwind_start *interrupted);

void kernel_calls_serve(void (*serve)(const struct unwind_start *interrupted))
{
    serve_request = serve;
}

/* --- kinds of calls --------------------------------------------------------------------------- */

static _Atomic uintptr_t break_end;

static enum profile_call kind_of_advice(long advice)
{
    switch (advice) {
    case MADV_DONTNEED:
        return PROFILE_MADVISE_DONTNEED;
    case MADV_FREE:
        return PROFILE_MADVISE_FREE;
    case MADV_HUGEPAGE:
        return PROFILE_MADVISE_HUGEPAGE;
    default:
        return PROFILE_MADVISE_OTHER;
    }
}

static enum profile_call kind_of_futex(long operation)
{
    switch (operation & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
    case FUTEX_LOCK_PI:
#ifdef FUTEX_LOCK_PI2 /* Linux 5.14 */
    case FUTEX_LOCK_PI2:
#endif
        return PROFILE_FUTEX_WAIT;
    case FUTEX_WAKE:
    case FUTEX_WAKE_BITSET:
    case FUTEX_WAKE_OP:
    case FUTEX_UNLOCK_PI:
        return PROFILE_FUTEX_WAKE;
    default:
        return PROFILE_OTHER;
    }
}

/* Returns PROFILE_SLEEP for calls that can wait for a time, a file, a lock or a semaphore, and
 * PROFILE_OTHER for all others. Some architectures lack some of these calls. */
static enum profile_call kind_of_other(long number)
{
    switch (number) {
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_pselect6:
    case SYS_ppoll:
    case SYS_epoll_pwait:
    case SYS_flock:
    case SYS_semop:
    case SYS_semtimedop:
#ifdef SYS_poll
    case SYS_poll:
    case SYS_select:
    case SYS_epoll_wait:
#endif
#ifdef SYS_epoll_pwait2 /* Linux 5.11 */
    case SYS_epoll_pwait2:
#endif
#ifdef SYS_futex_waitv /* Linux 5.16 */
    case SYS_futex_waitv:
#endif
        return PROFILE_SLEEP;
    default:
        return PROFILE_OTHER;
    }
}

static enum profile_call kind_of(long number, const long arguments[3])
{
    switch (number) {
    case SYS_mmap:
        return PROFILE_MMAP;
    case SYS_munmap:
        return PROFILE_MUNMAP;
    case SYS_mremap:
        return PROFILE_MREMAP;
    case SYS_brk:
        return PROFILE_BRK;
    case SYS_mprotect:
        return PROFILE_MPROTECT;
    case SYS_madvise:
        return kind_of_advice(arguments[2]);
    case SYS_futex:
        return kind_of_futex(arguments[1]);
    case SYS_sched_yield:
        return PROFILE_SCHED_YIELD;
    default:
        return kind_of_other(number);
    }
}

/* --- mappings that a call changes ------------------------------------------------------------- */

static void hold(uintptr_t start, size_t bytes)
{
    size_t more = handed_out_hold(start, bytes);
    uint64_t before = atomic_fetch_add_explicit(&session.held_bytes, more, memory_order_relaxed);
    struct profile_head *head = session.head;
    if (head != NULL) /* see kernel_calls_note() */
        session_raise(&head->held_most, before + more);
}

/* Returns the number of bytes that the allocator held. */
static size_t give_back(uintptr_t start, size_t bytes)
{
    size_t held = handed_out_let_go(start, bytes);
    atomic_fetch_sub_explicit(&session.held_bytes, held, memory_order_relaxed);
    return held;
}

/* Records the new end of the heap (brk). Returns the number of bytes by which the end moved. */
static uint64_t note_break(uintptr_t end)
{
    uintptr_t before = atomic_exchange(&break_end, end);
    if (end >= before) {
        hold(before, end - before);
        return end - before;
    }
    give_back(end, before - end);
    handed_out_forget(end, before - end);
    return before - end;
}

/* Records the mappings that a successful call changed. Returns the number of bytes that the call
 * mapped, advised or grew, or of the held bytes that it unmapped. */
static uint64_t follow(enum profile_call kind, const long arguments[3], long result)
{
    uintptr_t start = (uintptr_t)arguments[0];
    size_t bytes = (size_t)arguments[1];
    switch (kind) {
    case PROFILE_MMAP:
        /* Memory without access is reserved addresses. They may replace memory that was held. */
        if (arguments[2] == PROT_NONE)
            give_back((uintptr_t)result, bytes);
        else
            hold((uintptr_t)result, bytes);
        handed_out_forget((uintptr_t)result, bytes);
        return bytes;
    case PROFILE_MUNMAP: {
        size_t held = give_back(start, bytes);
        handed_out_forget(start, bytes);
        return held;
    }
    case PROFILE_MREMAP:
        give_back(start, bytes);
        hold((uintptr_t)result, (size_t)arguments[2]);
        if ((uintptr_t)result != start)
            handed_out_forget(start, bytes);
        return (size_t)arguments[2];
    case PROFILE_BRK:
        return note_break((uintptr_t)result);
    case PROFILE_MADVISE_DONTNEED:
        handed_out_forget(start, bytes);
        return bytes;
    case PROFILE_MADVISE_FREE:
    case PROFILE_MADVISE_HUGEPAGE:
    case PROFILE_MADVISE_OTHER:
        return bytes;
    case PROFILE_MPROTECT:
        if (arguments[2] != PROT_NONE)
            hold(start, bytes);
        return bytes;
    default:
        return 0;
    }
}

/* Counts a call of kind PROFILE_OTHER by its number. Each number gets an entry at its first call.
 * If all entries are taken, the call is counted only in the total of PROFILE_OTHER. */
static void note_other(struct profile_head *head, long number)
{
    struct profile_other_call *others = head->other_calls;
    for (size_t i = 0; i < PROFILE_OTHER_CALLS; i++) {
        uint64_t unused = 0;
        uint64_t name = (uint64_t)number + 1;
        if (__atomic_load_n(&others[i].number, __ATOMIC_RELAXED) == name ||
            __atomic_compare_exchange_n(&others[i].number, &unused, name, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED) ||
            unused == name) {
            session_add(&others[i].calls, 1);
            return;
        }
    }
}

void kernel_calls_note(long number, const long arguments[3], long result, uint64_t ticks,
                       uint64_t cpu_ns)
{
    enum profile_call kind = kind_of(number, arguments);
    struct profile_head *head = session.head;
    /* The call is not counted if the probe caused it. Neither is it if a signal handler forked
     * during the call, this process is the child, and the child could make no file. */
    if (UNLIKELY(thread_state.asking || head == NULL)) {
        if (!direct_failed(result))
            (void)follow(kind, arguments, result);
        return;
    }
    struct profile_call_counts *counts = &head->calls[kind];
    session_add(&counts->calls, 1);
    session_add(&counts->ticks, ticks);
    session_add(&counts->cpu_ns, cpu_ns);
    session_raise(&counts->max_ticks, ticks);
    thread_state.kernel_calls++;
    thread_state.kernel_ticks += ticks;
    if (kind == PROFILE_OTHER)
        note_other(head, number);
    if (kind == PROFILE_FUTEX_WAIT || kind == PROFILE_FUTEX_WAKE)
        lock_table_futex((uintptr_t)arguments[0], kind == PROFILE_FUTEX_WAIT, ticks);
    /* brk() reports a failure by returning the old end. EAGAIN of a futex call that waits is not a
     * failure. It means that the value of the futex had changed. Of other calls it is a failure:
     * mmap() and mremap() return it if the locked memory would exceed its limit. */
    bool refused = number == SYS_brk && arguments[0] != 0 && result != arguments[0];
    bool changed = kind == PROFILE_FUTEX_WAIT && result == -EAGAIN;
    if (refused || (direct_failed(result) && !changed)) {
        session_add(&counts->failed, 1);
        return;
    }
    uint64_t bytes = follow(kind, arguments, result);
    session_add(&counts->bytes, bytes);
    if (kind == PROFILE_MPROTECT && (arguments[2] & PROT_WRITE) == 0)
        session_add(&head->sealed_bytes, bytes);
}

/* --- dispatch --------------------------------------------------------------------------------- */

#if defined(__x86_64__)

static bool calibrating;

/* Returns true for calls in which the thread may wait without using a processor. */
static bool waits(enum profile_call kind)
{
    return kind == PROFILE_FUTEX_WAIT || kind == PROFILE_SCHED_YIELD || kind == PROFILE_SLEEP;
}

/* The kernel's layout of struct sigaction. */
struct kernel_action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

enum { MASK_BYTES = 8, SA_RESTORER_FLAG = 0x04000000, SYSCALL_BYTES = 2 };

static const uint64_t our_bit = UINT64_C(1) << (SIGSYS - 1);

/* Does the work of rt_sigprocmask() for the thread: changes the mask that the thread gets when the
 * handler returns. The new mask never blocks SIGSYS. */
static long change_mask(ucontext_t *context, const greg_t *registers)
{
    uint64_t mask;
    const uint64_t *set = (const uint64_t *)registers[REG_RSI];
    uint64_t *old = (uint64_t *)registers[REG_RDX];
    uint64_t given = set != NULL ? *set : 0; /* read first, since `old` may be the same object */
    memcpy(&mask, &context->uc_sigmask, sizeof mask);
    if (old != NULL)
        *old = mask;
    if (set != NULL) {
        switch ((int)registers[REG_RDI]) {
        case SIG_BLOCK:
            mask |= given;
            break;
        case SIG_UNBLOCK:
            mask &= ~given;
            break;
        case SIG_SETMASK:
            mask = given;
            break;
        default:
            return -EINVAL;
        }
    }
    mask &= ~(our_bit | UINT64_C(1) << (SIGKILL - 1) | UINT64_C(1) << (SIGSTOP - 1));
    memcpy(&context->uc_sigmask, &mask, sizeof mask);
    return 0;
}

/* Sets the guard to THREAD_OUTSIDE and lets the thread repeat the system call, which the kernel
 * then does not dispatch. The probe does not see further system calls of this operation. */
static void let_go(greg_t *registers)
{
    thread_state.guard = THREAD_OUTSIDE;
    thread_state.special |= THREAD_UNSEEN;
    registers[REG_RIP] -= SYSCALL_BYTES;
}

/* Reads the thread's CPU clock. The system call of libc's function would be dispatched again. */
static uint64_t thread_cpu_ns(void)
{
    return direct_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

static uint64_t cpu_pair_ns; /* CPU time between two readings of the clock */

/* Returns the CPU time since `before_ns`, less the time of reading the clock. If a signal handler
 * forked after `before_ns`, the function returns 0 in the child, because the child's clock began
 * anew. */
static uint64_t cpu_since(uint64_t before_ns)
{
    uint64_t now_ns = thread_cpu_ns();
    return now_ns > before_ns + cpu_pair_ns ? now_ns - before_ns - cpu_pair_ns : 0;
}

/* Measures cpu_pair_ns. The result is the least of five measurements. */
static void calibrate_cpu(void)
{
    enum { TRIES = 5 };
    for (int i = 0; i < TRIES; i++) {
        uint64_t before_ns = thread_cpu_ns();
        uint64_t pair_ns = thread_cpu_ns() - before_ns;
        if (i == 0 || pair_ns < cpu_pair_ns)
            cpu_pair_ns = pair_ns;
    }
}

/* Carries out the program's own action for a SIGSYS that is not the probe's. */
static void pass_to_program(int signal, siginfo_t *info, void *context)
{
    const struct sigaction now = theirs;
    if (((unsigned)now.sa_flags & SA_RESETHAND) != 0)
        theirs = (struct sigaction){.sa_handler = SIG_DFL};
    if ((now.sa_flags & SA_SIGINFO) != 0) {
        now.sa_sigaction(signal, info, context);
    } else if (now.sa_handler == SIG_DFL) {
        struct kernel_action fatal = {.handler = NULL};
        direct_call(SYS_rt_sigaction, SIGSYS, (long)&fatal, 0, MASK_BYTES, 0, 0);
        direct_call3(SYS_tgkill, direct_call0(SYS_getpid), direct_call0(SYS_gettid), SIGSYS);
    } else if (now.sa_handler != SIG_IGN) {
        now.sa_handler(signal);
    }
}

/* Does the next step of the watches of shared lines (layout.h), if it is due. The timer's signal
 * also calls this, because a thread that writes to a line may not allocate for a long time. Does
 * nothing if the signal interrupted the allocator or the probe. */
static void watch_lines(struct thread_state *me, uintptr_t frame)
{
    if (me->guard != THREAD_OUTSIDE || direct_forbidden || !layout_watch_due())
        return;
    const uint64_t all = ~UINT64_C(0);
    uint64_t mask = 0;
    if (direct_failed(
            direct_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&all, (long)&mask, MASK_BYTES, 0, 0)))
        return;
    uintptr_t before = me->frame;
    me->frame = frame;
    me->guard = THREAD_INSIDE;
    layout_watch_in_handler();
    me->guard = THREAD_OUTSIDE;
    me->frame = before;
    /* If this call is forbidden by now, the kernel restores the mask when the handler returns. */
    direct_try(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, MASK_BYTES, 0, 0);
}

/* The handler of SIGSYS. The signal comes from a timer (cpu_timer.h), from a dispatched system call
 * of the allocator, from Cairn (kernel_calls_serve()), or from the program itself. */
static void on_signal(int signal, siginfo_t *info, void *given)
{
    ucontext_t *context = given;
    greg_t *registers = context->uc_mcontext.gregs;
    if (info->si_code == SI_TIMER && info->si_value.sival_ptr == &cpu_timer_mark) {
        cpu_timer_told(&thread_state, (uintptr_t)registers[REG_RIP], (uintptr_t)registers[REG_RSP]);
        watch_lines(&thread_state, (uintptr_t)registers[REG_RSP]);
        return;
    }
    if (info->si_code == SI_QUEUE && info->si_value.sival_int == KERNEL_CALLS_REQUEST &&
        serve_request != NULL) {
        serve_request(&(struct unwind_start){.instruction = (uintptr_t)registers[REG_RIP],
                                             .stack = (uintptr_t)registers[REG_RSP],
                                             .frame = (uintptr_t)registers[REG_RBP]});
        return;
    }
    if (info->si_code != SYS_USER_DISPATCH || thread_state.yielded) {
        pass_to_program(signal, info, given);
        return;
    }
    long number = info->si_syscall;
    switch (number) {
    case SYS_rt_sigreturn:
        direct_return_from_signal((uintptr_t)registers[REG_RSP]);
    case SYS_rt_sigprocmask:
        registers[REG_RAX] = change_mask(context, registers);
        return;
    /* These calls create a child. The child also returns from the call, on a stack of its own, so
     * the handler cannot make the call for the thread. */
    case SYS_clone:
    case SYS_clone3:
    case SYS_fork:
    case SYS_vfork:
        let_go(registers);
        return;
    default:
        break;
    }
    /* If the stack pointer is above the frame, a longjmp or an exception has left the operation. */
    if ((uintptr_t)registers[REG_RSP] > thread_state.frame) {
        let_go(registers);
        return;
    }
    const long arguments[3] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX]};
    bool waiting = waits(kind_of(number, arguments)) && !direct_forbidden;
    uint64_t begin = ticks_now();
    uint64_t cpu_before_ns = waiting ? thread_cpu_ns() : 0;
    thread_state.calling = true;
    uint64_t before = ticks_before();
    long result =
        direct_call_for_allocator(number, arguments[0], arguments[1], arguments[2],
                                  registers[REG_R10], registers[REG_R8], registers[REG_R9]);
    uint64_t ticks = ticks_after() - before;
    thread_state.calling = false;
    /* Another thread may have installed a filter of system calls during the call. */
    uint64_t cpu_ns = waiting && !direct_forbidden ? cpu_since(cpu_before_ns) : 0;
    /* Reading the CPU clock is not part of the operation. So the operation's beginning is moved
     * forward by the time that the readings took. */
    if (waiting)
        thread_state.began_ticks += ticks_now() - begin - ticks;
    if (!calibrating)
        kernel_calls_note(number, arguments, result, ticks, cpu_ns);
    registers[REG_RAX] = result;
}

void kernel_calls_arm(struct thread_state *me)
{
    if (me->yielded)
        kernel_calls_yielded();
    if (how != PROFILE_DISPATCH || direct_forbidden || me->yielded)
        return;
    direct_call(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&our_bit, 0, MASK_BYTES, 0, 0);
    me->armed = !direct_failed(direct_call(SYS_prctl, KERNEL_CALLS_DISPATCH, PR_SYS_DISPATCH_ON,
                                           (long)direct_begin, direct_end - direct_begin,
                                           (long)&me->guard, 0));
}

void kernel_calls_unblock(const struct thread_state *me)
{
    if (me->armed && !direct_forbidden)
        direct_call(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&our_bit, 0, MASK_BYTES, 0, 0);
}

bool kernel_calls_disarm_permitted(struct thread_state *me)
{
    if (me->armed)
        me->armed = direct_failed(
            direct_call(SYS_prctl, KERNEL_CALLS_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0, 0));
    return !me->armed;
}

bool kernel_calls_disarm(struct thread_state *me)
{
    return direct_forbidden ? !me->armed : kernel_calls_disarm_permitted(me);
}

bool kernel_calls_pause(struct thread_state *me)
{
    return me->armed && kernel_calls_disarm(me);
}

/* A signal handler may have forked since the pause. The guard of the child's thread then has a
 * value that the kernel must not find. */
void kernel_calls_resume(struct thread_state *me)
{
    if (!me->armed && (me->guard == THREAD_OUTSIDE || me->guard == THREAD_INSIDE))
        kernel_calls_arm(me);
}

/* Returns the cost of dispatching a system call, in ticks. Each try makes a call with and without
 * dispatch and takes the difference of the two times. The result is the median of the tries. */
static uint64_t calibrate(struct thread_state *me)
{
    enum { TRIES = 5 };
    uint64_t sorted[TRIES];
    calibrating = true;
    me->frame = UINTPTR_MAX;
    me->guard = THREAD_INSIDE;
    kernel_calls_arm(me);
    for (size_t i = 0; i < TRIES; i++) {
        uint64_t start = ticks_before();
        direct_call0(SYS_getppid);
        uint64_t plain = ticks_after() - start;
        start = ticks_before();
        (void)syscall(SYS_getppid);
        uint64_t dispatched = ticks_after() - start;
        uint64_t cost = dispatched > plain ? dispatched - plain : 0;
        size_t place = i;
        for (; place > 0 && sorted[place - 1] > cost; place--)
            sorted[place] = sorted[place - 1];
        sorted[place] = cost;
    }
    kernel_calls_disarm(me);
    me->guard = THREAD_BEGINNING;
    calibrating = false;
    return sorted[TRIES / 2];
}

/* Returns true within valgrind. Valgrind makes the program's system calls from its own code. So the
 * calls of direct_syscall.h would be dispatched too. The first of them would kill the process. The
 * instructions are a "client request" from valgrind's manual: four rotations that cancel out, and
 * an exchange of a register with itself. */
static bool within_valgrind(void)
{
    enum { RUNNING_ON_VALGRIND = 0x1001 };
    const uint64_t request[6] = {RUNNING_ON_VALGRIND};
    uint64_t answer = 0;
    __asm__ volatile("rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\t"
                     "xchgq %%rbx, %%rbx"
                     : "+d"(answer)
                     : "a"(request)
                     : "cc", "memory");
    return answer != 0;
}

/* Turns on dispatch, takes over SIGSYS and measures the cost of a dispatched call. Returns false if
 * the kernel refuses dispatch, if the process runs within valgrind, or if the program itself
 * dispatches the calls of this thread. dispatch_errno in the file then has the reason. */
static bool dispatch_begin(struct thread_state *me)
{
    if (direct_forbidden) {
        session.head->dispatch_errno = EPERM;
        return false;
    }
    if (within_valgrind()) {
        session.head->dispatch_errno = EOPNOTSUPP;
        return false;
    }
    if (me->yielded) {
        session.head->dispatch_errno = EBUSY;
        return false;
    }
    volatile uint8_t outside = THREAD_OUTSIDE;
    long tried = direct_call(SYS_prctl, KERNEL_CALLS_DISPATCH, PR_SYS_DISPATCH_ON,
                             (long)direct_begin, direct_end - direct_begin, (long)&outside, 0);
    if (direct_failed(tried)) {
        session.head->dispatch_errno = (uint32_t)-tried;
        return false;
    }
    direct_call(SYS_prctl, KERNEL_CALLS_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0, 0);
    struct kernel_action ours = {
        .handler = on_signal,
        .flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART | SA_RESTORER_FLAG,
        .restorer = direct_restorer,
    };
    struct kernel_action before = {.handler = NULL};
    direct_call(SYS_rt_sigaction, SIGSYS, (long)&ours, (long)&before, MASK_BYTES, 0, 0);
    if (before.handler != on_signal && before.handler != NULL) {
        theirs.sa_flags = (int)before.flags;
        theirs.sa_sigaction = before.handler;
    }
    if (cost_ticks == 0) {
        how = PROFILE_DISPATCH;
        cost_ticks = calibrate(me);
        calibrate_cpu();
    }
    return true;
}

#else

static bool dispatch_begin(struct thread_state *me)
{
    (void)me;
    session.head->dispatch_errno = ENOSYS;
    return false;
}

void kernel_calls_arm(struct thread_state *me)
{
    (void)me;
}

bool kernel_calls_disarm(struct thread_state *me)
{
    (void)me;
    return true;
}

bool kernel_calls_disarm_permitted(struct thread_state *me)
{
    (void)me;
    return true;
}

void kernel_calls_unblock(const struct thread_state *me)
{
    (void)me;
}

bool kernel_calls_pause(struct thread_state *me)
{
    (void)me;
    return false;
}

void kernel_calls_resume(struct thread_state *me)
{
    (void)me;
}

#endif

/* --- choice of dispatch or interposition ------------------------------------------------------ */

static enum profile_dispatch wanted(void)
{
    if (session_option_is("CAIRN_PROBE_KERNEL", "off"))
        return PROFILE_UNSEEN;
    return session_option_is("CAIRN_PROBE_KERNEL", "interpose") ? PROFILE_INTERPOSE
                                                                : PROFILE_DISPATCH;
}

uint64_t kernel_calls_cost_ticks(void)
{
    return cost_ticks;
}

void kernel_calls_begin(struct thread_state *me)
{
    static bool known;
    static enum profile_dispatch asked;
    if (!known)
        asked = wanted();
    known = true;
    how = asked;
    if (how == PROFILE_DISPATCH && !dispatch_begin(me))
        how = PROFILE_INTERPOSE;
    session.head->dispatch = how;
    session.head->dispatch_ticks = cost_ticks;
    uintptr_t unknown = 0;
    if (how != PROFILE_UNSEEN && !direct_forbidden)
        atomic_compare_exchange_strong(&break_end, &unknown, (uintptr_t)direct_call0(SYS_brk));
}

bool kernel_calls_interposed(void)
{
    return how == PROFILE_INTERPOSE && thread_state.guard == THREAD_INSIDE && session.head != NULL;
}

void kernel_calls_yielded(void)
{
    if (how == PROFILE_DISPATCH && session.head != NULL)
        __atomic_store_n(&session.head->dispatch_errno, EBUSY, __ATOMIC_RELAXED);
}

bool kernel_calls_owns_signal(void)
{
    return how == PROFILE_DISPATCH;
}

static bool expected;

void kernel_calls_expect(void)
{
    expected = wanted() == PROFILE_DISPATCH;
}

bool kernel_calls_may_own_signal(void)
{
    return expected || kernel_calls_owns_signal();
}

void kernel_calls_their_action(const struct sigaction *new, struct sigaction *before)
{
    struct sigaction old = theirs;
    if (new != NULL)
        theirs = *new;
    if (before != NULL)
        *before = old;
}
