/* launch_child.c - tests the steps of the child before exec that fail only on unusual machines. */
#include "launch/child.h"

#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

static char *command[] = {"true", NULL};

/* Starts `true` with the path `join` in the child's state. Waits for its end, and returns the
 * status. */
static int started(struct child *child, const char *join)
{
    struct options options = {.command = command};
    struct signals signals;
    int status;
    if (!signals_take(&signals) || !child_start(child, &options, &signals))
        abort();
    strcpy(child->state->join, join);
    child_release(child);
    CHECK(waitpid(child->pid, &status, 0) == child->pid);
    return status;
}

/* The kernel may remove the cgroup, or refuse the process, after the launcher has made it. */
TEST(a_program_does_not_run_outside_its_cgroup)
{
    struct child child;
    int status = started(&child, "/tmp/no such cgroup/tasks");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    CHECK(child.state->failed == CHILD_CGROUP && child.state->error == ENOENT);
    CHECK(child.state->started_ns == 0);
}

TEST(a_program_without_a_cgroup_to_join_runs)
{
    struct child child;
    int status = started(&child, "");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(child.state->failed == CHILD_OK && child.state->started_ns != 0);
}

TEST(a_launcher_without_descriptors_starts_nothing)
{
    struct child child;
    struct options options = {.command = command};
    struct signals signals;
    struct rlimit before;
    CHECK(signals_take(&signals) && getrlimit(RLIMIT_NOFILE, &before) == 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(!child_start(&child, &options, &signals) && errno == EMFILE);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static bool fork_fails;

/* Takes the place of libc's fork(). */
pid_t fork(void)
{
    pid_t (*real)(void) = (pid_t (*)(void))dlsym(RTLD_NEXT, "fork");
    if (!fork_fails)
        return real();
    errno = EAGAIN;
    return -1;
}

TEST(a_launcher_that_cannot_fork_starts_nothing)
{
    struct child child;
    struct options options = {.command = command};
    struct signals signals;
    CHECK(signals_take(&signals));
    fork_fails = true;
    CHECK(!child_start(&child, &options, &signals) && errno == EAGAIN);
    fork_fails = false;
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
