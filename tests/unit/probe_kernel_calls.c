/* probe_kernel_calls.c - tests how the system calls of the allocator are counted. */
#include "probe/kernel_calls.h"

#include "test.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

/* Addresses that nothing accesses. */
static const long start = INT64_C(5) << 40;

static struct profile_head head;

static void call(long number, long a, long b, long c, long result)
{
    session.head = &head;
    kernel_calls_note(number, (const long[3]){a, b, c}, result, 1, 0);
}

/* It once counted as a success for all system calls. */
TEST(that_a_call_must_be_tried_again_is_a_failure_unless_it_waits_for_a_futex)
{
    head = (struct profile_head){.magic = ""};
    call(SYS_mmap, 0, MIB, PROT_READ | PROT_WRITE, -EAGAIN);
    call(SYS_mremap, start, MIB, 2 * MIB, -EAGAIN);
    call(SYS_madvise, start, MIB, MADV_DONTNEED, -EAGAIN);
    call(SYS_mlockall, MCL_FUTURE, 0, 0, -EAGAIN);
    call(SYS_futex, start, FUTEX_WAIT, 1, -EAGAIN);
    call(SYS_futex, start, FUTEX_WAIT, 1, -EINTR);
    const enum profile_call failed[] = {PROFILE_MMAP, PROFILE_MREMAP, PROFILE_MADVISE_DONTNEED,
                                        PROFILE_OTHER, PROFILE_FUTEX_WAIT};
    for (size_t i = 0; i < COUNT_OF(failed); i++)
        CHECK(head.calls[failed[i]].failed == 1 && head.calls[failed[i]].bytes == 0);
    CHECK(head.calls[PROFILE_FUTEX_WAIT].calls == 2);
    CHECK(head.held_most == 0);
}

/* The file once had only the memory that was held at its moments, which are 4 ms or more apart. */
TEST(the_file_has_the_most_memory_that_was_held)
{
    uint64_t before = session.held_bytes;
    head = (struct profile_head){.held_most = before};
    for (long i = 0; i < 3; i++)
        call(SYS_mmap, 0, MIB, PROT_READ | PROT_WRITE, start + i * MIB);
    CHECK(head.held_most == before + UINT64_C(3) * MIB);
    call(SYS_munmap, start, MIB, 0, 0);
    call(SYS_munmap, start + MIB, MIB, 0, 0);
    call(SYS_mmap, 0, MIB, PROT_READ | PROT_WRITE, start);
    CHECK(session.held_bytes == before + UINT64_C(2) * MIB);
    CHECK(head.held_most == before + UINT64_C(3) * MIB);
}

/* A program that calls poll() slept for most of its time. These calls counted as other calls, whose
 * time is taken to be CPU time. */
TEST(a_call_in_which_the_thread_can_sleep_is_a_sleep)
{
    const long sleeps[] = {
        SYS_nanosleep,   SYS_clock_nanosleep, SYS_pselect6,   SYS_ppoll,
        SYS_epoll_pwait, SYS_flock,           SYS_semop,      SYS_semtimedop,
#ifdef SYS_poll
        SYS_poll,        SYS_select,          SYS_epoll_wait,
#endif
#ifdef SYS_futex_waitv
        SYS_futex_waitv,
#endif
    };
    for (size_t i = 0; i < COUNT_OF(sleeps); i++) {
        head = (struct profile_head){.magic = ""};
        call(sleeps[i], 0, 0, 0, 0);
        CHECK(head.calls[PROFILE_SLEEP].calls == 1);
        CHECK(head.calls[PROFILE_OTHER].calls == 0 && head.other_calls[0].calls == 0);
    }
    call(SYS_getpid, 0, 0, 0, 1);
    CHECK(head.calls[PROFILE_OTHER].calls == 1);
}

/* Guard pages within one mapping once looked like growth, because the mapping has many times as
 * many bytes as all changes together. */
TEST(bytes_that_lose_write_access_are_told_from_those_that_get_it)
{
    head = (struct profile_head){.magic = ""};
    call(SYS_mprotect, start, MIB, PROT_NONE, 0);
    call(SYS_mprotect, start, MIB, PROT_READ, 0);
    CHECK(head.sealed_bytes == UINT64_C(2) * MIB);
    call(SYS_mprotect, start, MIB, PROT_READ | PROT_WRITE, 0);
    call(SYS_mprotect, start, MIB, PROT_NONE, -ENOMEM);
    CHECK(head.sealed_bytes == UINT64_C(2) * MIB);
    CHECK(head.calls[PROFILE_MPROTECT].bytes == UINT64_C(3) * MIB);
}

#if defined(__x86_64__)

enum { NO_DISPATCH = 77, ANSWER = 1234 };

static volatile uint8_t selector; /* 1: the program's calls are dispatched to the program */
static volatile long passed;      /* number of the call that was dispatched to it */

static void on_dispatched(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    selector = 0; /* the return from this handler is a system call, too */
    passed = info->si_syscall;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = ANSWER;
}

static int dispatch_of_the_program(void)
{
    const struct sigaction action = {.sa_sigaction = on_dispatched, .sa_flags = SA_SIGINFO};
    struct thread_state *me = &thread_state;
    head = (struct profile_head){.magic = ""};
    session.head = &head;
    alarm(10);
    kernel_calls_begin(me);
    if (!kernel_calls_owns_signal())
        return NO_DISPATCH;
    kernel_calls_their_action(&action, NULL);
    me->guard = THREAD_OUTSIDE;
    kernel_calls_arm(me);
    if (!me->armed || prctl(KERNEL_CALLS_DISPATCH, 1, 0, 0, &selector) != 0)
        return NO_DISPATCH;
    selector = 1;
    long answer = syscall(SYS_getppid);
    selector = 0;
    if (answer != ANSWER || passed != SYS_getppid || me->armed)
        return 1;
    return prctl(KERNEL_CALLS_DISPATCH, 0, 0, 0, 0) != 0 || !me->armed;
}

/* The probe once took the program's signals for those of its own dispatch. */
TEST(a_program_may_dispatch_its_system_calls_itself)
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        int code = dispatch_of_the_program();
        for (;;)
            syscall(SYS_exit_group, code);
    }
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_DISPATCH)
        SKIP("the kernel has no dispatch of system calls");
    CHECK(status == 0);
}

#endif

/* Returns the bytes by which the most held memory grew since the last call of this function. */
static uint64_t grown(void)
{
    static uint64_t before;
    uint64_t growth = head.held_most - before;
    before = head.held_most;
    return growth;
}

TEST(every_call_that_gets_memory_raises_the_most_memory_that_was_held)
{
    const long area = start + 64 * MIB;
    head = (struct profile_head){.held_most = session.held_bytes};
    (void)grown();
    call(SYS_mmap, 0, MIB, PROT_NONE, area);
    CHECK(grown() == 0);
    call(SYS_mprotect, area, MIB, PROT_READ | PROT_WRITE, 0);
    CHECK(grown() == MIB);
    call(SYS_mprotect, area, MIB, PROT_READ, 0);
    CHECK(grown() == 0);
    call(SYS_mremap, area, MIB, 3 * MIB, area + 8 * MIB);
    CHECK(grown() == 2 * MIB);
    call(SYS_mremap, area + 8 * MIB, 3 * MIB, MIB, area + 8 * MIB);
    call(SYS_mmap, 0, 2 * MIB, PROT_READ | PROT_WRITE, area + 16 * MIB);
    CHECK(grown() == 0);
    REQUIRE(setenv("CAIRN_PROBE_KERNEL", "interpose", 1) == 0);
    kernel_calls_begin(&thread_state); /* it asks for the end of the heap */
    long end = syscall(SYS_brk, 0);
    call(SYS_brk, end + MIB, 0, 0, end + MIB);
    CHECK(grown() == MIB);
    call(SYS_brk, end, 0, 0, end);
    call(SYS_brk, end + MIB, 0, 0, end + MIB);
    CHECK(grown() == 0);
    call(SYS_brk, end, 0, 0, end);
}

/* A signal handler may fork during a system call of the allocator, or while the probe calls
 * malloc_usable_size(). If the child could make no file, the end of such a call once crashed it. */
TEST(memory_is_held_in_a_process_without_a_file)
{
    uint64_t before = session.held_bytes;
    session.head = NULL;
    kernel_calls_note(SYS_getpid, (const long[3]){0}, 1, 1, 0);
    kernel_calls_note(SYS_munmap, (const long[3]){start + 128 * MIB, MIB}, 0, 1, 0);
    thread_state.asking = true;
    kernel_calls_note(SYS_mmap, (const long[3]){0, MIB, PROT_READ | PROT_WRITE}, start + 128 * MIB,
                      1, 0);
    thread_state.asking = false;
    CHECK(session.held_bytes == before + MIB);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
