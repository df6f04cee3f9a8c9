/* signals.c - libc's signal functions, interposed to keep SIGSYS for the probe.
 *
 * If system calls are dispatched, SIGSYS belongs to the probe (kernel_calls.h). A dispatched call
 * kills the process if its thread blocks SIGSYS. So these functions remove SIGSYS from the masks of
 * threads and handlers. They store the program's own action for SIGSYS without setting it in the
 * kernel. If the program changes masks or actions without libc, these functions do not see it.
 *
 * The probe also gives each thread an alternate signal stack (own_stack.h). The program sees its
 * own alternate stacks alone, and its handlers run on these, as without the probe.
 */
#include "probe/direct_syscall.h"
#include "probe/kernel_calls.h"
#include "probe/next.h"
#include "probe/own_stack.h"
#include "probe/signal_mask.h"

#include <errno.h>
#include <signal.h>

#define INTERPOSED __attribute__((visibility("default")))

/* Copies the set into `copy`, removes SIGSYS, and returns `copy`. If SIGSYS does not belong to the
 * probe, or if the set is NULL, returns the set itself. */
static const sigset_t *without_ours(const sigset_t *set, sigset_t *copy)
{
    if (set == NULL || !kernel_calls_owns_signal())
        return set;
    *copy = *set;
    sigdelset(copy, SIGSYS);
    return copy;
}

/* --- masks ------------------------------------------------------------------------------------ */

INTERPOSED int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    sigset_t copy;
    return NEXT_ALONE(pthread_sigmask)(how, how != SIG_UNBLOCK ? without_ours(set, &copy) : set,
                                       old);
}

INTERPOSED int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    int error = pthread_sigmask(how, set, old);
    if (error == 0)
        return 0;
    errno = error;
    return -1;
}

INTERPOSED int sighold(int number)
{
    return number == SIGSYS && kernel_calls_owns_signal() ? 0 : NEXT_ALONE(sighold)(number);
}

/* Removes SIGSYS from a mask of BSD's functions, which is an int with one bit for each of the first
 * 32 signals. */
static int bits_without_ours(int mask)
{
    return kernel_calls_owns_signal() ? (int)((unsigned)mask & ~(1u << (SIGSYS - 1))) : mask;
}

INTERPOSED int sigblock(int mask)
{
    return NEXT_ALONE(sigblock)(bits_without_ours(mask));
}

INTERPOSED int sigsetmask(int mask)
{
    return NEXT_ALONE(sigsetmask)(bits_without_ours(mask));
}

/* --- masks that hold during a wait ------------------------------------------------------------ */

INTERPOSED int sigsuspend(const sigset_t *set)
{
    sigset_t copy;
    return NEXT_ALONE(sigsuspend)(without_ours(set, &copy));
}

INTERPOSED int ppoll(struct pollfd *files, nfds_t count, const struct timespec *time,
                     const sigset_t *set)
{
    sigset_t copy;
    return NEXT_ALONE(ppoll)(files, count, time, without_ours(set, &copy));
}

/* The name that _FORTIFY_SOURCE gives to ppoll(). */
int __ppoll_chk(struct pollfd *files, nfds_t count, const struct timespec *time,
                const sigset_t *set, size_t bytes);
INTERPOSED int __ppoll_chk(struct pollfd *files, nfds_t count, const struct timespec *time,
                           const sigset_t *set, size_t bytes)
{
    sigset_t copy;
    if (next.ppoll_checked == NULL)
        next_find(&next.ppoll_checked, "__ppoll_chk");
    return next.ppoll_checked(files, count, time, without_ours(set, &copy), bytes);
}

INTERPOSED int pselect(int count, fd_set *read, fd_set *write, fd_set *other,
                       const struct timespec *time, const sigset_t *set)
{
    sigset_t copy;
    return NEXT_ALONE(pselect)(count, read, write, other, time, without_ours(set, &copy));
}

INTERPOSED int epoll_pwait(int file, struct epoll_event *events, int most, int ms,
                           const sigset_t *set)
{
    sigset_t copy;
    return NEXT_ALONE(epoll_pwait)(file, events, most, ms, without_ours(set, &copy));
}

/* glibc has this function since version 2.35. */
int epoll_pwait2(int file, struct epoll_event *events, int most, const struct timespec *time,
                 const sigset_t *set);
INTERPOSED int epoll_pwait2(int file, struct epoll_event *events, int most,
                            const struct timespec *time, const sigset_t *set)
{
    sigset_t copy;
    if (NEXT_ALONE(epoll_pwait2) == NULL) {
        errno = ENOSYS;
        return -1;
    }
    return next.epoll_pwait2(file, events, most, time, without_ours(set, &copy));
}

/* --- alternate signal stacks ------------------------------------------------------------------ */

/* True for a signal if the program wants its handler to run on an alternate stack (SA_ONSTACK), but
 * has not given any thread such a stack yet. Without the probe, the handler would run on the
 * thread's present stack. With the probe, the kernel would run it on the probe's alternate stack.
 * So the flag is not passed to the kernel until the program has an alternate stack. */
static _Atomic bool deferred[NSIG];

/* Called after the program has set the action of a signal. A child of vfork has this memory in
 * common with its parent, but actions of its own. So in such a child nothing changes. */
static void set_deferred(int number, bool is_deferred)
{
    if (number <= 0 || number >= NSIG || atomic_load(&deferred[number]) == is_deferred)
        return;
    const struct profile_head *head = session.head;
    if (head != NULL && direct_permits_getpid && direct_call0(SYS_getpid) != head->process)
        return;
    atomic_store(&deferred[number], is_deferred);
}

/* Called when the program gives a thread an alternate stack for the first time. Passes the flag
 * SA_ONSTACK of the deferred signals to the kernel. */
static void end_deferring(void)
{
    own_stack_note_programs();
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (!atomic_exchange(&deferred[number], false) ||
            NEXT_ALONE(sigaction)(number, NULL, &action) != 0)
            continue;
        action.sa_flags |= SA_ONSTACK;
        (void)NEXT_ALONE(sigaction)(number, &action, NULL);
    }
}

/* Hides the probe's alternate stack. While a thread has this stack, the function reports to the
 * program that the thread has no alternate stack. */
INTERPOSED int sigaltstack(const stack_t *new, stack_t *old)
{
    struct thread_state *me = &thread_state;
    stack_t now;
    if (me->signal_stack == NULL) {
        if (new != NULL && (new->ss_flags & SS_DISABLE) == 0 && !own_stack_program_has_some())
            end_deferring();
        return NEXT_ALONE(sigaltstack)(new, old);
    }
    if (NEXT_ALONE(sigaltstack)(NULL, &now) != 0)
        return -1;
    bool ours = own_stack_is_ours(me, &now);
    bool disables = new != NULL && (new->ss_flags & SS_DISABLE) != 0;
    if (new != NULL && !(ours && disables) && NEXT_ALONE(sigaltstack)(new, NULL) != 0)
        return -1;
    if (new != NULL && !disables && !own_stack_program_has_some())
        end_deferring();
    if (disables && !ours)
        own_stack_arm(me);
    if (old != NULL)
        *old = ours ? (stack_t){.ss_flags = SS_DISABLE} : now;
    return 0;
}

/* --- handlers --------------------------------------------------------------------------------- */

/* Called before the program installs a handler, which may be SIG_DFL or SIG_IGN. */
static void note_handler(sighandler_t handler)
{
    if (handler != SIG_DFL && handler != SIG_IGN && handler != SIG_ERR && handler != SIG_HOLD)
        signal_handlers = true;
}

/* The mask of a handler is changed even before SIGSYS belongs to the probe, because SIGSYS may
 * belong to the probe when the handler runs. */
INTERPOSED int sigaction(int number, const struct sigaction *new, struct sigaction *old)
{
    if (number == SIGSYS && kernel_calls_owns_signal()) {
        kernel_calls_their_action(new, old);
        return 0;
    }
    if (new != NULL)
        note_handler(new->sa_handler);
    struct sigaction copy;
    bool was_deferred = number > 0 && number < NSIG && atomic_load(&deferred[number]);
    bool is_deferred = was_deferred;
    if (new != NULL && kernel_calls_may_own_signal()) {
        copy = *new;
        sigdelset(&copy.sa_mask, SIGSYS);
        is_deferred = (copy.sa_flags & SA_ONSTACK) != 0 && !own_stack_program_has_some();
        if (is_deferred)
            copy.sa_flags &= ~SA_ONSTACK;
        new = &copy;
    }
    int result = NEXT_ALONE(sigaction)(number, new, old);
    if (result != 0)
        return result;
    set_deferred(number, is_deferred);
    if (old != NULL && was_deferred)
        old->sa_flags |= SA_ONSTACK;
    return 0;
}

/* Returns true if `number` is SIGSYS and belongs to the probe. In that case it stores the program's
 * handler and sets `*before` to the former handler, or to SIG_ERR if `handler` is not valid. */
static bool keep_handler(int number, sighandler_t handler, int flags, sighandler_t *before)
{
    note_handler(handler);
    if (number != SIGSYS || !kernel_calls_owns_signal())
        return false;
    const struct sigaction new = {.sa_handler = handler, .sa_flags = flags};
    struct sigaction old;
    if (handler == SIG_ERR) {
        errno = EINVAL;
        *before = SIG_ERR;
        return true;
    }
    kernel_calls_their_action(handler != SIG_HOLD ? &new : NULL, &old);
    *before = old.sa_handler;
    return true;
}

/* Called with the result of a function of libc that sets a handler without SA_ONSTACK. Returns this
 * result. */
static sighandler_t has_set(int number, sighandler_t handler, sighandler_t result)
{
    if (result != SIG_ERR && handler != SIG_HOLD) /* SIG_HOLD: sigset() blocks the signal only */
        set_deferred(number, false);
    return result;
}

/* libc's signal() and the functions below do not call sigaction() by its public name. So they need
 * functions of their own here. */
INTERPOSED sighandler_t signal(int number, sighandler_t handler)
{
    sighandler_t before;
    if (keep_handler(number, handler, SA_RESTART, &before))
        return before;
    return has_set(number, handler, NEXT_ALONE(signal)(number, handler));
}

sighandler_t bsd_signal(int number, sighandler_t handler);
INTERPOSED sighandler_t bsd_signal(int number, sighandler_t handler)
{
    return signal(number, handler);
}

INTERPOSED sighandler_t ssignal(int number, sighandler_t handler)
{
    return signal(number, handler);
}

INTERPOSED sighandler_t sysv_signal(int number, sighandler_t handler)
{
    sighandler_t before;
    int flags = (int)SA_RESETHAND | SA_NODEFER;
    if (keep_handler(number, handler, flags, &before))
        return before;
    return has_set(number, handler, NEXT_ALONE(sysv_signal)(number, handler));
}

INTERPOSED sighandler_t __sysv_signal(int number, sighandler_t handler)
{
    return sysv_signal(number, handler);
}

INTERPOSED sighandler_t sigset(int number, sighandler_t handler)
{
    sighandler_t before;
    if (keep_handler(number, handler, 0, &before))
        return before;
    return has_set(number, handler, NEXT_ALONE(sigset)(number, handler));
}

INTERPOSED int sigignore(int number)
{
    sighandler_t before;
    if (keep_handler(number, SIG_IGN, 0, &before))
        return 0;
    int result = NEXT_ALONE(sigignore)(number);
    if (result == 0)
        set_deferred(number, false);
    return result;
}
