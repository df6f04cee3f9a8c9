/* probe_perf_events.c - tests which descriptors the events of threads have. */
#include "probe/perf_events.h"

#include "probe/direct_syscall.h"
#include "probe/session.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The probe once kept such a descriptor. With many threads, it so took all that a program has. */
TEST(a_descriptor_that_cannot_be_moved_is_closed)
{
    struct rlimit before;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const struct rlimit low = {.rlim_cur = 64, .rlim_max = before.rlim_max};
    int fd = dup(STDERR_FILENO);
    REQUIRE(fd >= 0 && setrlimit(RLIMIT_NOFILE, &low) == 0);
    long moved = direct_move_up(fd);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(moved == -EMFILE);
    CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
}

static bool is_open(const struct thread_state *thread)
{
    return fcntl(thread->counters[0], F_GETFD) != -1;
}

/* The child once kept the events of all threads but its own. */
TEST(a_forked_child_closes_the_events_of_all_threads)
{
    static struct profile_head head;
    static struct thread_state first, second;
    session.head = &head;
    REQUIRE(setenv("CAIRN_PROBE_COUNTERS", "page-faults", 1) == 0);
    perf_events_begin();
    perf_events_arm(&first);
    perf_events_arm(&second);
    if (first.counter_slots == 0 || second.counter_slots == 0)
        SKIP("the kernel refuses events here");
    pid_t child = fork();
    if (child == 0) {
        bool were_open = is_open(&first) && is_open(&second);
        perf_events_forked();
        _exit(!were_open || is_open(&first) || is_open(&second));
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(is_open(&first) && is_open(&second));
    perf_events_disarm(&first);
    perf_events_disarm(&second);
    session.head = NULL;
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
