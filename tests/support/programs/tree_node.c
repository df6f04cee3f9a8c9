/* One process of a generated tree of processes (tests/support/trees.py).
 *
 *     tree_node PLAN
 *
 * PLAN is "(NUMBER START WAIT STATUS END STRICT child…)", with blanks between the words. Each child
 * is a plan like this one. The node requests SIZES + NUMBER bytes, runs its children one after the
 * other, and ends.
 *
 *     START   how the parent starts the node: fork, exec, vfork, spawn, system, popen, shell
 *     WAIT    how the parent waits for the node:
 *             waitpid, wait, waitid, wait4
 *             term, kill   the node stops itself, and the parent kills it
 *             leave        the node ends, and the parent never waits for it
 *             ignore       the parent ignores SIGCHLD
 *             background   the node stops itself, and outlives the command
 *     STATUS  the node's exit status
 *     END     how the node ends: exit, _exit, quick_exit, raw (the system call)
 *     STRICT  strict or tolerant: a strict node ends with status 1 as soon as a child has not ended
 *             as planned */
#define _GNU_SOURCE
#include <libgen.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZES = 70000, PLAN_MAX = 8192 };

struct node {
    char plan[PLAN_MAX];
    int number;
    char start[16], wait[16], end[16], strict[16];
    int status;
    const char *children; /* the part of `plan` with the children */
};

static int is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* Copies the plan of the first node in `text`, and returns the text behind it, or NULL. */
static const char *parse(const char *text, struct node *node)
{
    int depth = 0, used = 0;
    while (*text == ' ')
        text++;
    if (*text != '(')
        return NULL;
    const char *end = text;
    do {
        depth += (*end == '(') - (*end == ')');
        end++;
    } while (depth > 0);
    memcpy(node->plan, text, (size_t)(end - text));
    node->plan[end - text] = '\0';
    sscanf(node->plan, "(%d %15s %15s %d %15s %15[a-z]%n", &node->number, node->start, node->wait,
           &node->status, node->end, node->strict, &used);
    node->children = node->plan + used;
    return end;
}

static void run(struct node *node);

/* Starts a child and returns its process id. If the child was started by system() or popen() and
 * has already ended, returns 0 and sets `*status`. */
static pid_t start(struct node *child, int *status)
{
    char path[4096], command[PLAN_MAX + 8192];
    pid_t pid = 0;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length] = '\0';
    dirname(path);
    sprintf(path + strlen(path), "/node%d", child->number);
    char *arguments[] = {path, child->plan, NULL};
    sprintf(command, "%s%s '%s'%s", is(child->start, "shell") ? "" : "exec ", path, child->plan,
            is(child->start, "shell") ? " & wait $!" : "");
    fflush(NULL);
    if (is(child->start, "fork")) {
        pid = fork();
        if (pid == 0)
            run(child);
    } else if (is(child->start, "exec")) {
        pid = fork();
        if (pid == 0) {
            execv(path, arguments);
            _exit(127);
        }
    } else if (is(child->start, "vfork")) {
        pid = vfork();
        if (pid == 0) {
            execv(path, arguments);
            _exit(127);
        }
    } else if (is(child->start, "spawn"))
        posix_spawn(&pid, path, NULL, NULL, arguments, environ);
    else if (is(child->start, "popen"))
        *status = pclose(popen(command, "r"));
    else
        *status = system(command);
    return pid;
}

/* Waits for a child. Returns its status, or -1 if this way of waiting gives none. */
static int wait_for(const char *way, pid_t pid)
{
    int status = -1;
    siginfo_t info;
    if (is(way, "term") || is(way, "kill")) {
        /* Waits until the child has stopped itself or has ended. */
        waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT);
        kill(pid, is(way, "term") ? SIGTERM : SIGKILL);
        kill(pid, SIGCONT);
        waitpid(pid, &status, 0);
    } else if (is(way, "leave"))
        waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    else if (is(way, "background"))
        waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT);
    else if (is(way, "ignore")) {
        while (kill(pid, 0) == 0)
            usleep(200);
    } else if (is(way, "wait"))
        while (wait(&status) != pid) {
        }
    else if (is(way, "wait4"))
        wait4(pid, &status, 0, NULL);
    else if (is(way, "waitid")) {
        waitid(P_PID, (id_t)pid, &info, WEXITED);
        status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
    } else
        waitpid(pid, &status, 0);
    return status;
}

/* Returns whether a child ended as its plan says. */
static int as_planned(const struct node *child, int status)
{
    if (is(child->wait, "term"))
        return status == SIGTERM;
    if (is(child->wait, "kill"))
        return status == SIGKILL;
    return status == -1 || status == child->status << 8;
}

static void run_child(struct node *node, struct node *child)
{
    int status = -1;
    int ignored = is(child->wait, "ignore");
    if (ignored)
        signal(SIGCHLD, SIG_IGN);
    pid_t pid = start(child, &status);
    if (pid > 0)
        status = wait_for(child->wait, pid);
    if (ignored)
        signal(SIGCHLD, SIG_DFL);
    if (!as_planned(child, status) && is(node->strict, "strict"))
        exit(1);
}

/* Runs a node to its end. */
static void run(struct node *node)
{
    struct node *child = calloc(1, sizeof *child);
    signal(SIGCHLD, SIG_DFL);
    free(malloc((size_t)(SIZES + node->number)));
    for (const char *rest = node->children; (rest = parse(rest, child)) != NULL;)
        run_child(node, child);
    if (is(node->wait, "term") || is(node->wait, "kill") || is(node->wait, "background")) {
        raise(SIGSTOP);
        for (;;)
            pause();
    }
    if (is(node->end, "raw"))
        syscall(SYS_exit_group, node->status);
    if (is(node->end, "_exit"))
        _exit(node->status);
    if (is(node->end, "quick_exit"))
        quick_exit(node->status);
    exit(node->status);
}

int main(int argc, char **argv)
{
    struct node *node = calloc(1, sizeof *node);
    if (argc != 2 || parse(argv[1], node) == NULL)
        return 99;
    run(node);
}
