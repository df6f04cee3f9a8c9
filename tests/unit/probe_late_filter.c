/* probe_late_filter.c - tests that the probe makes no further system call for itself when another
 * thread installs a filter of system calls in the middle of the probe's work. */
#define _GNU_SOURCE 1

#include "probe/direct_syscall.h"

#include "probe/handed_out.h"
#include "probe/layout.h"
#include "probe/own_memory.h"
#include "probe/own_stack.h"
#include "probe/residence.h"
#include "probe/session.h"
#include "probe/signal_mask.h"
#include "probe/thread.h"
#include "test.h"
#include "trapped_calls.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <threads.h>

enum { EXTENT = 1 << HANDED_OUT_EXTENT_SHIFT };

static unsigned calls, last; /* the filter is installed during call number `last` */
static unsigned late;        /* calls after the filter */

static void count_call(void)
{
    late += direct_forbidden;
    if (++calls == last)
        direct_forbidden = true;
}

/* Does the work again and again. At first, the filter comes during the first system call of the
 * probe, then during the second, and so on, until the work makes fewer calls. Returns the number of
 * its calls, or 0 if it made a call after the filter. */
static unsigned calls_without_late(void (*work)(void))
{
    for (last = 1; last == 1 || direct_forbidden; last++) {
        direct_forbidden = false;
        calls = 0;
        work();
    }
    return late == 0 ? calls : 0;
}

/* Maps an extent of the allocator that is resident, and of which one page was handed out. */
static bool hold_extent(void)
{
    char *area = mmap(NULL, 2 * EXTENT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t start = ((uintptr_t)area + EXTENT - 1) & ~(uintptr_t)(EXTENT - 1);
    if (area == MAP_FAILED)
        return false;
    memset((void *)start, 1, EXTENT);
    return handed_out_hold(start, EXTENT) == EXTENT && handed_out_add((const void *)start, 100);
}

/* A look without a filter did not find the extent, or a look with a filter lost a result. */
static bool is_incomplete;

static void look_at_residence(void)
{
    struct residence found = residence_look();
    if (!direct_forbidden && found.own_bytes != EXTENT)
        is_incomplete = true;
}

static int late_filter_in_residence(void)
{
    residence_count_huge();
    if (!hold_extent())
        return 2;
    if (!trap_calls(count_call))
        return NO_FILTER;
    /* It opens, reads and closes a file, and reads some of the 511 pages by two calls each. */
    return calls_without_late(look_at_residence) < 3 + 2 * 16 || is_incomplete;
}

/* The resident bytes were not known although they were read before. */
static bool is_unknown;

static void read_resident_bytes(void)
{
    is_unknown |= residence_bytes(0) == 0;
}

static int late_filter_in_resident_bytes(void)
{
    is_unknown = residence_bytes(0) == 0;
    if (!trap_calls(count_call))
        return NO_FILTER;
    return calls_without_late(read_resident_bytes) < 3 || is_unknown;
}

static struct own_memory own;

/* A look that the filter cuts short must not replace the result of a complete one. */
static void look_at_own_memory(void)
{
    struct own_memory now = own_memory_resident(true, 0);
    is_incomplete |= now.private < own.private / 2;
}

static int late_filter_in_own_memory(void)
{
    char *mapped = own_memory_map(EXTENT);
    if (mapped == NULL)
        return 2;
    memset(mapped, 1, EXTENT);
    own = own_memory_resident(true, 0);
    if (!trap_calls(count_call))
        return NO_FILTER;
    return calls_without_late(look_at_own_memory) < 4 || is_incomplete;
}

/* Begins a session with a sampled layout. Its files stay mapped, but their names are removed at
 * once. */
static bool begin_session(void)
{
    char folder[] = "/tmp/cairn-filter-XXXXXX", path[4096];
    if (mkdtemp(folder) == NULL || setenv("CAIRN_PROBE", folder, 1) != 0 ||
        setenv("CAIRN_PROBE_LAYOUT", "sampled", 1) != 0)
        return false;
    if (session_on())
        layout_begin();
    for (size_t i = 0; i < 2; i++)
        if (session_path(path, sizeof path, i == 0 ? ".layout" : ".probe"))
            unlink(path);
    return rmdir(folder) == 0 && layout_way == LAYOUT_SAMPLED;
}

static void add_moment(void)
{
    session_moment((struct live){.bytes = 1});
    layout_moment();
}

static int late_filter_in_moment(void)
{
    if (!begin_session())
        return 2;
    if (!trap_calls(count_call))
        return NO_FILTER;
    return calls_without_late(add_moment) < 4;
}

static void add_blocks(size_t from, size_t to)
{
    static struct profile_thread counts;
    static struct thread_state me = {.number = 1, .counts = &counts};
    for (size_t i = from; i < to; i++)
        layout_add(&me, (const void *)((UINT64_C(300) << HANDED_OUT_LEAF_SHIFT) + 128 * i), 100);
}

/* The layout gets memory for its regions with the first block. The others let it take snapshots. */
static int filter_before_snapshots(void)
{
    if (!begin_session())
        return 2;
    add_blocks(0, 1);
    if (!trap_calls(count_call))
        return NO_FILTER;
    direct_forbidden = true;
    add_blocks(1, 10000);
    layout_moment();
    layout_end();
    return late != 0;
}

#if defined(__x86_64__)
#define REQUIRE_NO_LATE_CALL(run)                                                                  \
    int code = exit_code_of(run);                                                                  \
    if (code == NO_FILTER)                                                                         \
        SKIP("the kernel refuses filters of system calls");                                        \
    CHECK(code == 0)
#else
#define REQUIRE_NO_LATE_CALL(run)                                                                  \
    (void)run;                                                                                     \
    SKIP("only the calls of x86-64 can be trapped")
#endif

/* The loop over a large heap takes milliseconds. Its next system call once killed the process. */
TEST(a_filter_ends_a_look_at_the_resident_memory)
{
    REQUIRE_NO_LATE_CALL(late_filter_in_residence);
}

TEST(a_filter_ends_the_reading_of_the_resident_bytes)
{
    REQUIRE_NO_LATE_CALL(late_filter_in_resident_bytes);
}

TEST(a_filter_ends_a_look_at_the_probes_own_memory)
{
    REQUIRE_NO_LATE_CALL(late_filter_in_own_memory);
}

TEST(a_filter_ends_the_work_of_a_moment)
{
    REQUIRE_NO_LATE_CALL(late_filter_in_moment);
}

/* The snapshots once read the clock by a system call. */
TEST(a_layout_makes_no_system_call_behind_a_filter)
{
    REQUIRE_NO_LATE_CALL(filter_before_snapshots);
}

/* --- signals ---------------------------------------------------------------------------------- */

/* Installs a filter that kills the process for these two calls. */
static void forbid_masks(void *failed)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sigaltstack, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    *(bool *)failed = !install((struct sock_fprog){COUNT_OF(rules), rules});
    direct_permits_unblocking = false;
    direct_forbidden = true;
}

static char signal_stack[256 << 10];
static bool failed, on_signal_stack;

static void handle(int signal)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    on_signal_stack = here - (uintptr_t)signal_stack < sizeof signal_stack;
    if (signal == SIGUSR1)
        own_stack_call(forbid_masks, &failed);
}

/* Makes the kernel deliver a signal. libc's raise() would change the signal mask. */
static void raise_directly(int signal)
{
    direct_call3(SYS_tgkill, direct_call0(SYS_getpid), direct_call0(SYS_gettid), signal);
}

static int late_filter_in_handler(void)
{
    stack_t ours = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&ours, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0 ||
        sigaction(SIGUSR2, &action, NULL) != 0)
        return 2;
    own_stack_note_programs();
    raise_directly(SIGUSR1);
    if (failed)
        return NO_FILTER;
    bool was = on_signal_stack;
    on_signal_stack = false;
    raise_directly(SIGUSR2);
    return !was || !on_signal_stack;
}

/* The end of the call once changed the signal mask and the signal stack, which killed the process.
 * When the handler returns, the kernel sets both back. */
TEST(a_filter_may_come_while_a_handler_is_on_the_probes_stack)
{
    int code = exit_code_of(late_filter_in_handler);
    if (code == NO_FILTER)
        SKIP("the kernel refuses filters of system calls");
    CHECK(code == 0);
}

static bool is_blocked(int signal)
{
    sigset_t now;
    return sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, signal) == 1;
}

TEST(signals_are_unblocked_behind_a_filter_only_if_it_permits_that)
{
    uint64_t blocked = signals_block();
    REQUIRE(is_blocked(SIGTERM));
    direct_forbidden = true;
    direct_permits_unblocking = false;
    signals_unblock(blocked);
    CHECK(is_blocked(SIGTERM));
    direct_permits_unblocking = true;
    signals_unblock(blocked);
    CHECK(!is_blocked(SIGTERM));
    direct_forbidden = false;
}

/* Our prctl() looks at the filters. */
static int filters_that_decide(void)
{
    struct sock_filter permit = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_filter without_masks[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog wide = {1, &permit}, narrow = {COUNT_OF(without_masks), without_masks};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &wide, 0, 0) != 0)
        return NO_FILTER;
    if (!direct_forbidden || !direct_permits_unblocking)
        return 1;
    /* A filter of this thread alone does not apply to threads that have blocked their signals. */
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &narrow, 0, 0) != 0 ||
        !direct_permits_unblocking)
        return 1;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &narrow) != 0)
        return 1;
    return direct_permits_unblocking;
}

TEST(a_filter_is_asked_whether_it_permits_to_unblock_signals)
{
    int code = exit_code_of(filters_that_decide);
    if (code == NO_FILTER)
        SKIP("the kernel refuses filters of system calls");
    CHECK(code == 0);
}

#if defined(__x86_64__)

static bool masked; /* SIGTERM was blocked during the system call madvise */

static void on_madvise(int signal, siginfo_t *info, void *given)
{
    ucontext_t *context = given;
    (void)signal;
    (void)info;
    masked = sigismember(&context->uc_sigmask, SIGTERM) == 1;
    context->uc_mcontext.gregs[REG_RAX] = -EINVAL;
}

static int signals_while_there_is_room_made(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sigaction action = {.sa_sigaction = on_madvise, .sa_flags = SA_SIGINFO};
    if (!begin_session() || sigaction(SIGSYS, &action, NULL) != 0)
        return 2;
    if (!install((struct sock_fprog){COUNT_OF(rules), rules}))
        return NO_FILTER;
    signal_handlers = true;
    session_make_room();
    return !masked || is_blocked(SIGTERM);
}

/* A handler that allocated while its thread made room once waited forever for the lock that this
 * thread held. */
TEST(no_handler_runs_while_room_is_made_before_a_filter)
{
    REQUIRE_NO_LATE_CALL(signals_while_there_is_room_made);
}

#endif

/* --- strict mode ------------------------------------------------------------------------------ */

static bool begin_thread(void)
{
    if (setenv("CAIRN_PROBE_KERNEL", "off", 1) != 0 || !begin_session())
        return false;
    thread_begin_early();
    return thread_state.guard == THREAD_OUTSIDE;
}

static bool is_as_before(const struct profile_thread *counts)
{
    return thread_state.guard == THREAD_OUTSIDE && thread_state.counts == counts &&
           session.head->threads_live == 1;
}

/* libseccomp passes wrong arguments to learn whether the kernel has the system call. */
static int strict_mode_that_is_refused(void)
{
    struct sock_filter permit = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog wide = {1, &permit};
    if (!begin_thread())
        return 2;
    const struct profile_thread *counts = thread_state.counts;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) != -1 || errno != EINVAL)
        return NO_FILTER;
    if (!is_as_before(counts) || direct_forbidden)
        return 1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &wide, 0, 0) != 0)
        return NO_FILTER;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0)
        return 2;
    return !is_as_before(counts) || !direct_forbidden;
}

/* From then on, all operations of the thread once counted as those of an ending thread. */
TEST(a_thread_goes_on_counting_if_the_kernel_refuses_strict_mode)
{
    int code = exit_code_of(strict_mode_that_is_refused);
    if (code == NO_FILTER)
        SKIP("the kernel refuses filters of system calls");
    CHECK(code == 0);
}

/* The kernel ends this thread at its first system call after its destructors. */
static int live_in_strict_mode(void *nothing)
{
    (void)nothing;
    thread_begin_early();
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
}

static int end_in_strict_mode(void)
{
    thrd_t thread;
    if (!begin_thread() || thrd_create(&thread, live_in_strict_mode, NULL) != thrd_success)
        return 2;
    (void)thrd_join(thread, NULL);
    /* 2: the sanitizer makes a system call before the destructor of the probe. */
    return session.head->threads_live != 1 && session.head->threads_live != 2;
}

/* It once ended twice, so that the number of living threads fell below the true one. */
TEST(a_thread_in_strict_mode_ends_once)
{
    CHECK(exit_code_of(end_in_strict_mode) == 0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
