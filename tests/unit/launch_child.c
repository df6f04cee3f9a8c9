/* launch_child.c - tests the steps of the child before exec that fail only on unusual machines. */
#include "launch/child.h"

#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
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

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
