/* cairn-launch: starts, confines, measures and reaps one command, which is called PROG here.
 *
 *     options -> descriptors and signals -> child waits | cgroup, counters, terminal | child runs
 *             -> watch: signals, readings of memory, time limits -> end of the tree -> report
 *
 * Always:
 *
 *     there is one thread; it sleeps in ppoll() until a signal arrives, a deadline passes, or the
 *     process that reads the report has closed its end
 *     when PROG has ended, the launcher ends, reaps and counts all its descendants, and only then
 *     writes the report
 *     the result is either the report's line and status 0, or a sentence on stderr and status 125
 *
 * The launcher uses little memory, because a forked child inherits the peak memory size of its
 * parent: a large launcher would raise the peak that it measures for PROG.
 */
#define _GNU_SOURCE 1

#include "base/base.h"
#include "base/clock.h"
#include "launch/cgroup.h"
#include "launch/child.h"
#include "launch/complaint.h"
#include "launch/counters.h"
#include "launch/cpu_samples.h"
#include "launch/options.h"
#include "launch/processes.h"
#include "launch/reaped.h"
#include "launch/report.h"
#include "launch/sampler.h"
#include "launch/signals.h"
#include "launch/terminal.h"
#include "launch/touch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CAIRN_VERSION
#define CAIRN_VERSION "unreleased"
#endif

/* How long a killed process may take to end. A process that waits for a dead network disk never
 * ends. */
#define END_PATIENCE_NS (10 * NS_PER_S)

/* How long the kernel may hold a cgroup whose last process was reaped. */
#define REMOVE_PATIENCE_NS NS_PER_S

#define NEVER_NS UINT64_MAX

struct launch {
    struct options options;
    struct signals signals;
    struct child child;
    struct cgroup cgroup;
    struct sampler sampler;
    struct counters counters;
    struct cpu_samples cpu_samples;
    struct cgroup clock_cgroup; /* for clock samples; version 0 if there is none */
    struct terminal terminal;
    struct report report;
    struct reaped reaped;
    uint64_t terminate_ns;  /* when PROG gets SIGTERM (NEVER_NS: never) */
    uint64_t kill_ns;       /* when PROG gets SIGKILL */
    uint64_t despair_ns;    /* when the launcher stops waiting for PROG's end */
    unsigned interruptions; /* number of SIGINT and SIGTERM we received */
    bool main_ended;        /* PROG itself has ended */
    bool main_reaped;
    bool reader_gone; /* the reader has closed the report's pipe */
};

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Makes sure that descriptors 0 to 2 are open, because otherwise the first file that PROG opens
 * would become its output. Moves the report's descriptor above them and makes it close-on-exec. */
static bool prepare_descriptors(struct options *options)
{
    int flags = fcntl(options->report_fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) {
        complaint("--report-fd is not a descriptor that can be written to", NULL,
                  flags < 0 ? errno : 0);
        return false;
    }
    if (options->report_fd > STDERR_FILENO) {
        fcntl(options->report_fd, F_SETFD, FD_CLOEXEC);
    } else {
        int copy = fcntl(options->report_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        if (copy < 0) {
            complaint("cannot move the descriptor of the report", NULL, errno);
            return false;
        }
        close(options->report_fd);
        options->report_fd = copy;
    }
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) {
            complaint("cannot open", "/dev/null", errno);
            return false;
        }
    }
    return true;
}

/* Sends a signal to PROG's process group. The group exists until PROG is reaped. The child creates
 * the group only some time after the fork. Before that, the signal is sent to PROG itself. */
static void signal_group(const struct launch *launch, int signal)
{
    if (kill(-launch->child.pid, signal) != 0)
        kill(launch->child.pid, signal);
}

/* Kills PROG itself. Its descendants are counted and ended later, by end_tree(). */
static void kill_main(struct launch *launch)
{
    kill(launch->child.pid, SIGKILL);
    if (launch->despair_ns == NEVER_NS)
        launch->despair_ns = clock_now_ns() + END_PATIENCE_NS;
}

/* Waits for a signal. Returns false if `deadline_ns` passed. If `report_events` is not NULL, also
 * wakes up when the report's reader is gone. */
static bool wait_until(const struct launch *launch, uint64_t deadline_ns, short *report_events)
{
    int report_fd = report_events == NULL ? -1 : launch->options.report_fd;
    struct pollfd fds[] = {
        {.fd = launch->signals.fd, .events = POLLIN},
        {.fd = report_fd}, /* poll() reports only errors of this descriptor */
    };
    uint64_t now_ns = clock_now_ns();
    uint64_t wait_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    struct timespec timeout = {.tv_sec = (time_t)(wait_ns / NS_PER_S),
                               .tv_nsec = (long)(wait_ns % NS_PER_S)};
    int ready = ppoll(fds, COUNT_OF(fds), deadline_ns == NEVER_NS ? NULL : &timeout, NULL);
    if (report_events != NULL)
        *report_events = ready > 0 ? fds[1].revents : 0;
    return ready > 0;
}

/* Reaps the ended child that `info` describes, and adds it to the report and to the file of
 * endings. `killed` says that the launcher may have ended the child. */
static void reap(struct launch *launch, const siginfo_t *info, bool killed)
{
    struct process_name name = {""};
    struct rusage usage;
    int status;
    bool is_success = info->si_code == CLD_EXITED && info->si_status == 0;
    if (launch->options.reaped_path != NULL && !is_success && !killed)
        name = processes_read_name(info->si_pid); /* the name is gone once the child is reaped */
    struct process_schedule schedule;
    processes_read_schedule(info->si_pid, &schedule);
    if (wait4(info->si_pid, &status, 0, &usage) != info->si_pid)
        return;
    report_add_usage(&launch->report, &usage);
    report_add_schedule(&launch->report, &schedule);
    reaped_add(&launch->reaped, info->si_pid, name.data, status, killed);
}

/* Reaps the children that are not PROG: descendants of PROG whose parent has ended, because the
 * kernel makes the launcher their parent. Sets `main_ended` if PROG has ended. PROG's end is then
 * recorded as `woke_ns`, the time at which the launcher woke up. */
static void reap_orphans(struct launch *launch, uint64_t woke_ns)
{
    while (!launch->main_ended) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return;
        if (info.si_pid == launch->child.pid) {
            launch->main_ended = true;
            launch->report.wall_ns = woke_ns; /* end of PROG; finish() subtracts the start */
        } else
            reap(launch, &info, false);
    }
}

/* Gives PROG the terminal, if there is one, and continues its process group. */
static void resume(struct launch *launch)
{
    terminal_lend(&launch->terminal, launch->child.pid);
    signal_group(launch, SIGCONT);
}

/* Job control: if the terminal stopped PROG, stops our whole process group as well, as if there
 * were no launcher. */
static void follow_stop(struct launch *launch)
{
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)launch->child.pid, &info, WSTOPPED | WNOHANG) != 0 || info.si_pid == 0)
        return;
    int signal = info.si_status;
    if (signal != SIGTSTP && signal != SIGTTIN && signal != SIGTTOU)
        return; /* SIGSTOP or a debugger has stopped PROG alone */
    terminal_take_back(&launch->terminal);
    /* If our group is orphaned, the kernel does not stop it, because no shell could continue it.
     * After SIGTTIN or SIGTTOU, PROG would then wait for a terminal that it can never get. So PROG
     * receives SIGHUP, which the kernel sends in the same situation. */
    if (!signals_stop_us(signal, true) && signal != SIGTSTP)
        signal_group(launch, SIGHUP);
    resume(launch);
}

/* Handles one signal that we received: reaps, stops, continues, or passes the signal on to PROG. A
 * second SIGINT or SIGTERM kills PROG. */
static void handle_signal(struct launch *launch, int signal)
{
    switch (signal) {
    case SIGCHLD:
        /* PROG may have ended after the last call of reap_orphans(). No further SIGCHLD would
         * report that. */
        reap_orphans(launch, clock_now_ns());
        return;
    case SIGCONT:
        resume(launch);
        return;
    case SIGTSTP:
        if (launch->options.terminal)
            break;
        /* Without --terminal, PROG's group is in a session of its own. No shell there could
         * continue the group, so the kernel ignores SIGTSTP for it ("orphaned process group").
         * SIGSTOP is sent instead. */
        signal_group(launch, SIGSTOP);
        signals_stop_us(SIGTSTP, false);
        resume(launch);
        return;
    case SIGINT:
    case SIGTERM:
        launch->interruptions++;
        if (launch->interruptions > 1) {
            kill_main(launch);
            return;
        }
        /* For a server, SIGTERM ends the idle time, and the series of readings has its memory at
         * this moment. For other programs the marked reading does no harm. */
        if (launch->child.state->started_ns != 0)
            sampler_mark(&launch->sampler);
        /* fall through */
    case SIGHUP:
    case SIGQUIT:
        if (launch->report.interrupted_by == 0)
            launch->report.interrupted_by = signal;
        break;
    default:
        break;
    }
    signal_group(launch, signal);
}

/* Does everything that is due: readings of memory, draining of clock samples, and SIGTERM or
 * SIGKILL at the time limit. */
static void handle_deadlines(struct launch *launch)
{
    uint64_t now_ns = clock_now_ns();
    if (now_ns >= sampler_due_ns(&launch->sampler)) {
        if (launch->child.state->started_ns != 0)
            sampler_take(&launch->sampler);
        else
            sampler_begin(&launch->sampler); /* the child is not PROG yet */
    }
    if (now_ns >= cpu_samples_due_ns(&launch->cpu_samples))
        cpu_samples_drain(&launch->cpu_samples);
    if (now_ns >= launch->terminate_ns) {
        launch->terminate_ns = NEVER_NS;
        launch->kill_ns = now_ns + launch->options.grace_ns;
        launch->report.timed_out = true;
        signal_group(launch, SIGTERM);
        /* A stopped process would not receive SIGTERM. */
        signal_group(launch, SIGCONT);
    }
    if (now_ns >= launch->kill_ns) {
        launch->kill_ns = NEVER_NS;
        kill_main(launch);
    }
}

/* Runs until PROG itself has ended. Returns false if PROG could not be ended. */
static bool watch(struct launch *launch)
{
    while (!launch->main_ended) {
        uint64_t look_ns =
            earlier(sampler_due_ns(&launch->sampler), cpu_samples_due_ns(&launch->cpu_samples));
        uint64_t deadline_ns = earlier(look_ns, earlier(launch->terminate_ns, launch->kill_ns));
        short report_events = 0;
        wait_until(launch, earlier(deadline_ns, launch->despair_ns),
                   launch->reader_gone ? NULL : &report_events);
        uint64_t woke_ns = clock_now_ns();
        reap_orphans(launch, woke_ns);
        if (launch->main_ended)
            break;
        if (report_events != 0) {
            launch->reader_gone = true;
            kill_main(launch);
        }
        for (int signal; (signal = signals_next(&launch->signals)) != 0;)
            handle_signal(launch, signal);
        if (launch->options.terminal)
            follow_stop(launch);
        handle_deadlines(launch);
        if (woke_ns >= launch->despair_ns)
            return false;
    }
    return true;
}

static bool is_among(pid_t pid, const struct processes *list)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->pids[i] == pid)
            return true;
    }
    return false;
}

/* Reaps PROG, which has ended. Its process number may belong to another process afterwards. */
static void reap_main(struct launch *launch)
{
    struct rusage usage;
    if (launch->main_reaped)
        return;
    struct process_schedule schedule;
    processes_read_schedule(launch->child.pid, &schedule);
    wait4(launch->child.pid, &launch->report.status, 0, &usage);
    report_add_usage(&launch->report, &usage);
    report_add_schedule(&launch->report, &schedule);
    reaped_add(&launch->reaped, launch->child.pid, "", launch->report.status, false);
    launch->main_reaped = true;
}

/* Called once PROG has ended, if --wait-descendants was given. Waits until all its descendants have
 * ended. The time of the last end then counts as the end of PROG. Returns early at the time limit,
 * after SIGINT or SIGTERM, and when the report's reader is gone. clean_up() then ends the
 * descendants. */
static void watch_descendants(struct launch *launch)
{
    reap_main(launch);
    for (;;) {
        /* A SIGCHLD that is taken here is no loss, because all ended children are reaped next. */
        for (int signal; (signal = signals_next(&launch->signals)) != 0;) {
            if (signal == SIGINT || signal == SIGTERM) {
                launch->report.interrupted_by = signal;
                return;
            }
        }
        uint64_t woke_ns = clock_now_ns();
        siginfo_t info = {0};
        int error;
        while ((error = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT)) == 0 &&
               info.si_pid != 0) {
            reap(launch, &info, false);
            launch->report.wall_ns = woke_ns;
        }
        if (error != 0)
            return;
        if (woke_ns >= launch->terminate_ns) {
            launch->report.timed_out = true;
            return;
        }
        if (woke_ns >= sampler_due_ns(&launch->sampler))
            sampler_take(&launch->sampler);
        if (woke_ns >= cpu_samples_due_ns(&launch->cpu_samples))
            cpu_samples_drain(&launch->cpu_samples);
        uint64_t look_ns =
            earlier(sampler_due_ns(&launch->sampler), cpu_samples_due_ns(&launch->cpu_samples));
        short report_events = 0;
        wait_until(launch, earlier(look_ns, launch->terminate_ns), &report_events);
        if (report_events != 0) {
            launch->reader_gone = true;
            return;
        }
    }
}

/* Counts the descendants that PROG left behind. `ended` gets those that ended by themselves, and
 * that their living parents have not reaped. */
static void count_left_behind(struct launch *launch, struct processes *ended)
{
    size_t ended_count = 0;
    processes_descendants(getpid(), ended);
    for (size_t i = 0; i < ended->count; i++) {
        if (processes_is_alive(ended->pids[i]))
            launch->report.left_behind++;
        else
            ended->pids[ended_count++] = ended->pids[i];
    }
    ended->count = ended_count;
}

/* Ends and reaps the descendants that PROG left behind. Only our own children get a signal, because
 * their process numbers cannot be reused before we reap them. When a child ends, its children
 * become ours, so that the loop reaches the whole tree level by level. Returns false if a process
 * does not end within END_PATIENCE_NS. */
static bool end_tree(struct launch *launch)
{
    struct processes ended = {0}, children = {0};
    bool counted = false, all_ended = false;
    uint64_t deadline_ns = clock_now_ns() + END_PATIENCE_NS;
    for (;;) {
        siginfo_t info = {0};
        int error;
        while ((error = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT)) == 0 &&
               info.si_pid != 0)
            reap(launch, &info, counted && !is_among(info.si_pid, &ended));
        all_ended = error != 0 && errno == ECHILD;
        if (error != 0 || clock_now_ns() >= deadline_ns)
            break;

        if (!counted) {
            count_left_behind(launch, &ended);
            counted = true;
            cgroup_kill(&launch->cgroup);
        }
        processes_children(getpid(), &children);
        for (size_t i = 0; i < children.count; i++)
            kill(children.pids[i], SIGKILL);
        if (wait_until(launch, clock_now_ns() + 5 * NS_PER_MS, NULL))
            while (signals_next(&launch->signals) != 0) {
            }
    }
    processes_free(&ended);
    processes_free(&children);
    return all_ended;
}

/* Chooses and opens the method of measuring memory: a new cgroup, or, if no cgroup can be made,
 * readings process by process. If --memory cgroup was requested and no cgroup can be made, prints
 * an error and returns false. */
static bool confine(struct launch *launch)
{
    struct memory *memory = &launch->sampler.memory;
    enum options_memory wanted = launch->options.memory;
    launch->cgroup = (struct cgroup){.parent = -1, .folder = -1};
    if (wanted == OPTIONS_MEMORY_NONE)
        return true;
    if (wanted == OPTIONS_MEMORY_SAMPLED)
        return memory_open_sampled(memory, getpid());
    struct cgroup *cgroup = &launch->cgroup;
    if (cgroup_make(cgroup, launch->child.pid, "/proc/self/mountinfo", "/proc/self/cgroup")) {
        if (cgroup->version == 2 ? memory_open_v2(memory, cgroup->folder)
                                 : memory_open_v1(memory, cgroup->folder)) {
            memcpy(launch->child.state->join, cgroup->join, sizeof cgroup->join);
            return true;
        }
        strcpy(cgroup->reason, "the cgroup's statistics cannot be read");
    }
    if (wanted == OPTIONS_MEMORY_CGROUP) {
        complaint("no cgroup can be made for --memory cgroup", cgroup->reason, 0);
        return false;
    }
    launch->report.memory_reason = cgroup->reason;
    return memory_open_sampled(memory, getpid());
}

/* Restores the terminal, ends the tree and removes the cgroup. May be called after any step of
 * run() has failed. Returns false if a process could not be ended. */
static bool clean_up(struct launch *launch)
{
    terminal_take_back(&launch->terminal);
    bool ended = end_tree(launch);
    if (!ended)
        complaint("a process that the command started cannot be ended", NULL, 0);
    else if (!cgroup_remove(&launch->cgroup, REMOVE_PATIENCE_NS))
        complaint("cannot remove the cgroup", launch->cgroup.name, errno);
    else if (!cgroup_remove(&launch->clock_cgroup, REMOVE_PATIENCE_NS))
        complaint("cannot remove the cgroup", launch->clock_cgroup.name, errno);
    return ended;
}

/* Ends PROG and its tree without a report. Returns the exit status. */
static int fail(struct launch *launch)
{
    kill_main(launch);
    clean_up(launch);
    return COMPLAINT_EXIT;
}

/* Called once PROG has ended. Measures and ends the processes that PROG left behind, and writes the
 * report. Returns the exit status. */
static int finish(struct launch *launch)
{
    struct report *report = &launch->report;
    const struct child_state *state = launch->child.state;
    /* The last reading is taken now, while the descendants still hold their memory. clean_up() ends
     * them. */
    launch->sampler.has_ended = true;
    sampler_take(&launch->sampler);

    reap_main(launch);
    bool ended = clean_up(launch);
    reaped_close(&launch->reaped);

    enum memory_method method = launch->sampler.memory.method;
    report->sampling_cpu_ns = sampler_cpu_ns(&launch->sampler);
    sampler_end(&launch->sampler);
    counters_read(&launch->counters);
    cpu_samples_close(&launch->cpu_samples);
    if (launch->reader_gone) {
        complaint("the reader of the report is gone", NULL, 0);
        return COMPLAINT_EXIT;
    }
    if (!ended)
        return COMPLAINT_EXIT;
    if (state->failed != CHILD_OK && state->failed != CHILD_EXEC) {
        complaint(child_step_complaint(state->failed), state->object, state->error);
        return COMPLAINT_EXIT;
    }

    report->pid = launch->child.pid;
    report->exec_errno = state->failed == CHILD_EXEC ? state->error : 0;
    report->has_wall = state->started_ns != 0;
    report->wall_ns = report->has_wall ? report->wall_ns - state->started_ns : 0;
    if (report->has_wall) {
        report_subtract_usage(report, &state->before);
        report_subtract_schedule(report, &state->scheduled);
    }
    report->memory_method = method;
    report->peak = launch->sampler.peak;
    const struct division_result *division = &launch->sampler.division.result;
    report->division = division->total_bytes > 0 ? division : NULL;
    const char *series_path = launch->options.series_path;
    if (series_path != NULL && !series_write(&launch->sampler.series, series_path)) {
        complaint("cannot write", series_path, errno);
        return COMPLAINT_EXIT;
    }
    report->counters = launch->options.counters ? &launch->counters : NULL;
    if (!report_write(report, launch->options.report_fd)) {
        complaint("cannot write the report", NULL, errno);
        return COMPLAINT_EXIT;
    }
    return 0;
}

/* Starts the clock samples, if they were requested. An adaptive clock gets a cgroup for the tree,
 * because its first period is short: samples of other busy processes would fill the rings. Returns
 * false and prints an error if the file cannot be written. */
static bool sample_cpu(struct launch *launch)
{
    const char *path = launch->options.cpu_samples_path;
    if (path == NULL)
        return true;
    int folder = -1;
    if (launch->options.adaptive_period) {
        if (launch->cgroup.version == 2)
            folder = launch->cgroup.folder;
        else if (cgroup_make_without_memory(&launch->clock_cgroup, launch->child.pid,
                                            "/proc/self/mountinfo", "/proc/self/cgroup"))
            folder = launch->clock_cgroup.folder;
    }
    if (cpu_samples_open(&launch->cpu_samples, path, launch->child.pid,
                         launch->options.adaptive_period, folder))
        return true;
    complaint("cannot write", path, errno);
    return false;
}

/* Runs PROG from the parsed options to the report. Returns the exit status. */
static int run(struct launch *launch)
{
    if (!prepare_descriptors(&launch->options))
        return COMPLAINT_EXIT;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    launch->terminate_ns = launch->kill_ns = launch->despair_ns = NEVER_NS;
    launch->terminal.fd = -1;
    for (size_t i = 0; i < COUNTERS_COUNT; i++)
        launch->counters.fds[i] = -1;
    launch->cpu_samples.file = -1;
    launch->reaped.file = -1;
    const char *reaped_path = launch->options.reaped_path;
    if (reaped_path != NULL && !reaped_open(&launch->reaped, reaped_path)) {
        complaint("cannot write", reaped_path, errno);
        return COMPLAINT_EXIT;
    }
    if (!signals_take(&launch->signals)) {
        complaint("cannot wait for signals", NULL, errno);
        return COMPLAINT_EXIT;
    }
    if (!child_start(&launch->child, &launch->options, &launch->signals)) {
        complaint("cannot start a process", NULL, errno);
        return COMPLAINT_EXIT;
    }
    if (!confine(launch))
        return fail(launch);
    if (launch->options.counters)
        counters_open(&launch->counters, launch->child.pid);
    if (!sample_cpu(launch))
        return fail(launch);
    if (launch->options.terminal) {
        terminal_open(&launch->terminal);
        terminal_lend(&launch->terminal, launch->child.pid);
    }
    if (launch->options.timeout_ns != 0)
        launch->terminate_ns = clock_now_ns() + launch->options.timeout_ns;
    launch->sampler.divides = launch->options.divides_memory;
    sampler_begin(&launch->sampler);
    child_release(&launch->child);
    if (!watch(launch)) {
        complaint("the command cannot be ended", launch->options.command[0], 0);
        return fail(launch);
    }
    if (launch->options.wait_descendants && launch->kill_ns == NEVER_NS && !launch->reader_gone &&
        !launch->report.timed_out && launch->report.interrupted_by == 0)
        watch_descendants(launch);
    return finish(launch);
}

static void say(const char *text)
{
    ssize_t written = write(STDOUT_FILENO, text, strlen(text));
    (void)written;
}

int main(int argc, char **argv)
{
    (void)argc;
    static struct launch launch;
    switch (options_parse(&launch.options, argv)) {
    case OPTIONS_RUN:
        return run(&launch);
    case OPTIONS_TOUCH:
        return touch_memory(launch.options.touch_bytes) ? 0 : COMPLAINT_EXIT;
    case OPTIONS_HELP:
        say(options_help);
        return 0;
    case OPTIONS_VERSION:
        say("cairn-launch " CAIRN_VERSION "\n");
        return 0;
    case OPTIONS_WRONG:
        break;
    }
    complaint(launch.options.complaint, launch.options.object, 0);
    return COMPLAINT_EXIT;
}
