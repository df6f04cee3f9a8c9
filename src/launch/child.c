#define _GNU_SOURCE 1

#include "launch/child.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define EXIT_NOT_RUN 127 /* never reported; see child_state.failed */

const char *child_step_complaint(enum child_step step)
{
    switch (step) {
    case CHILD_CGROUP:
        return "the command cannot move itself to its cgroup";
    case CHILD_FILES:
        return "cannot open";
    case CHILD_FOLDER:
        return "cannot change to the folder";
    case CHILD_CPUS:
        return "not all CPUs of --cpus can be used here";
    case CHILD_ENVIRONMENT:
        return "cannot change the environment variable";
    case CHILD_EXEC:
    case CHILD_OK:
        break;
    }
    return "cannot run";
}

/* The functions from here to become_program() run in the child. */

/* Stores the failed step in `state`, for the launcher, and ends the child. */
_Noreturn static void give_up(struct child_state *state, enum child_step step, const char *object,
                              int error)
{
    state->object = object;
    state->error = error;
    state->failed = step;
    _exit(EXIT_NOT_RUN);
}

/* Opens `path` as descriptor `to`, or ends the child with CHILD_FILES. */
static void redirect(struct child_state *state, const char *path, int flags, int to)
{
    if (path == NULL)
        return;
    int fd = open(path, flags | O_NOCTTY | O_CLOEXEC, 0600);
    /* Descriptors 0 to 2 are open, so `fd` is a different one. dup2() clears close-on-exec in the
     * copy. */
    if (fd < 0 || dup2(fd, to) < 0)
        give_up(state, CHILD_FILES, path, errno);
    close(fd);
}

static void redirect_all(struct child_state *state, const struct options *options)
{
    const int output = O_WRONLY | O_CREAT | O_TRUNC;
    redirect(state, options->stdin_path, O_RDONLY, STDIN_FILENO);
    redirect(state, options->stdout_path, output, STDOUT_FILENO);
    bool same = options->stdout_path != NULL && options->stderr_path != NULL &&
                strcmp(options->stdout_path, options->stderr_path) == 0;
    /* Both streams must share one file position. With two positions they would overwrite each
     * other. */
    if (same)
        dup2(STDOUT_FILENO, STDERR_FILENO);
    else
        redirect(state, options->stderr_path, output, STDERR_FILENO);
}

static void take_cpus(struct child_state *state, const cpu_set_t *cpus)
{
    cpu_set_t got;
    if (sched_setaffinity(0, sizeof *cpus, cpus) != 0 ||
        sched_getaffinity(0, sizeof got, &got) != 0)
        give_up(state, CHILD_CPUS, NULL, errno);
    /* The kernel silently drops CPUs that do not exist. */
    if (!CPU_EQUAL(cpus, &got))
        give_up(state, CHILD_CPUS, NULL, 0);
}

/* Turns core dumps off. A limit of 0 bytes would not stop a dump into a pipe, to a program such as
 * systemd-coredump. A limit of 1 byte stops both kinds: Linux reserves it for this. */
static void refuse_core_dumps(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max < 1 ? limit.rlim_max : 1;
    setrlimit(RLIMIT_CORE, &limit);
}

static void edit_environment(struct child_state *state, const struct options *options)
{
    for (size_t i = 0; i < options->edit_count; i++) {
        char *edit = options->edits[i];
        if ((strchr(edit, '=') != NULL ? putenv(edit) : unsetenv(edit)) != 0)
            give_up(state, CHILD_ENVIRONMENT, edit, errno);
    }
}

/* Runs in the child: waits for child_release(), does all steps before exec, and calls exec. */
_Noreturn static void become_program(struct child_state *state, const struct options *options,
                                     const struct signals *signals, int go, pid_t launcher)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) /* the launcher ended before prctl() */
        _exit(EXIT_NOT_RUN);
    if (options->terminal)
        setpgid(0, 0);
    else
        setsid();

    char byte;
    ssize_t got;
    do
        got = read(go, &byte, 1);
    while (got < 0 && errno == EINTR);
    if (got != 1)
        _exit(EXIT_NOT_RUN);

    if (!cgroup_join(state->join))
        give_up(state, CHILD_CGROUP, NULL, errno);
    redirect_all(state, options);
    if (options->folder != NULL && chdir(options->folder) != 0)
        give_up(state, CHILD_FOLDER, options->folder, errno);
    if (options->has_cpus)
        take_cpus(state, &options->cpus);
    if (options->no_core)
        refuse_core_dumps();
    edit_environment(state, options);
    signals_restore(signals);

    processes_read_schedule(getpid(), &state->scheduled);
    getrusage(RUSAGE_SELF, &state->before);
    state->started_ns = clock_now_ns();
    execvp(options->command[0], options->command);
    give_up(state, CHILD_EXEC, options->command[0], errno);
}

/* The functions from here on run in the launcher. */

bool child_start(struct child *child, const struct options *options, const struct signals *signals)
{
    int ends[2];
    child->state =
        mmap(NULL, sizeof *child->state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (child->state == MAP_FAILED || pipe2(ends, O_CLOEXEC) != 0)
        return false;
    pid_t launcher = getpid();
    child->pid = fork();
    if (child->pid < 0)
        return false;
    if (child->pid == 0) {
        close(ends[1]);
        become_program(child->state, options, signals, ends[0], launcher);
    }
    close(ends[0]);
    child->go = ends[1];
    /* Parent and child both set the process group, so that it is set whichever of them runs
     * first. */
    if (options->terminal)
        setpgid(child->pid, child->pid);
    return true;
}

void child_release(struct child *child)
{
    /* The write fails only if the child has ended, and the launcher learns from waitid() that it
     * has ended. */
    ssize_t written = write(child->go, "g", 1);
    (void)written;
    close(child->go);
    child->go = -1;
}
