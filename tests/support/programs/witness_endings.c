/* Starts one child, which ends in the way that argv[2] names, and waits for it in the way that
 * argv[1] names. Prints the process id of the child, the result of the wait, the status and errno.
 *
 * The child of system() and popen() has 0 as its process id, because these functions do not return
 * it. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *way;
static const char *end;
static char **arguments;

static int is(const char *name)
{
    return strcmp(way, name) == 0;
}

static int ends(const char *name)
{
    return strcmp(end, name) == 0;
}

static void mark_twice(void)
{
    _exit(6);
}

static void *end_thread(void *code)
{
    exit((int)(long)code);
}

static void *sleep_thread(void *unused)
{
    usleep(20000);
    return unused;
}

/* Ends the child. Returns only if main() is to return. */
static void end_child(void)
{
    pthread_t thread;
    if (ends("exit"))
        exit(3);
    if (ends("exit-256"))
        exit(256 + 3);
    if (ends("_exit"))
        _exit(3);
    if (ends("_Exit"))
        _Exit(3);
    if (ends("quick_exit"))
        quick_exit(3);
    if (ends("quick-twice")) {
        at_quick_exit(mark_twice);
        quick_exit(3);
    }
    if (ends("thread")) {
        pthread_create(&thread, NULL, end_thread, (void *)3L);
        pthread_join(thread, NULL);
    }
    if (ends("last-thread")) {
        pthread_create(&thread, NULL, sleep_thread, NULL);
        pthread_exit(NULL);
    }
    while (ends("pause"))
        pause();
    if (ends("raw"))
        syscall(SYS_exit_group, 3);
    if (ends("abort"))
        abort();
    if (ends("exec"))
        execl(arguments[0], arguments[0], "end", "return", (char *)NULL);
    if (ends("exec-failed")) {
        execl("/nowhere/x", "x", (char *)NULL);
        _exit(127);
    }
    if (ends("exit-then-crash")) {
        /* The crash happens in crash_late(), a destructor that exit() calls. */
        setenv("CRASH_LATE", "1", 1);
        exit(0);
    }
    if (atoi(end) > 0) {
        signal(atoi(end), SIG_DFL);
        raise(atoi(end));
    }
}

static pid_t start_child(void)
{
    pid_t pid;
    if (is("vfork")) {
        pid = vfork();
        if (pid == 0)
            _exit(3);
        return pid;
    }
    if (is("spawn")) {
        char *args[] = {arguments[0], "end", (char *)end, NULL};
        posix_spawn(&pid, arguments[0], NULL, NULL, args, environ);
        return pid;
    }
    pid = fork();
    if (pid == 0) {
        end_child();
        exit(0);
    }
    return pid;
}

static volatile sig_atomic_t handled;
static volatile int handled_status;
static volatile pid_t handled_pid;

static void on_child(int number)
{
    int status;
    int error = errno;
    pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid > 0) {
        handled_pid = pid;
        handled_status = status;
        handled = 1;
    }
    errno = error;
}

/* Installs on_child() as the handler of SIGCHLD. The handler's stack has 3 KiB more than the kernel
 * needs. */
static void handle_children(void)
{
    size_t page = 4096, size = (sysconf(_SC_MINSIGSTKSZ) + 3072 + page - 1) / page * page;
    char *area =
        mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(area, page, PROT_NONE);
    stack_t stack = {.ss_sp = area + page, .ss_size = size};
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_ONSTACK | SA_NOCLDSTOP};
    sigaltstack(&stack, NULL);
    sigaction(SIGCHLD, &action, NULL);
}

static pid_t waited_pid;
static int waited_status;

static void *wait_thread(void *unused)
{
    waited_pid = waitpid(waited_pid, &waited_status, 0);
    return unused;
}

static int status_of(const siginfo_t *info)
{
    return info->si_code == CLD_EXITED ? info->si_status << 8 : info->si_status;
}

/* Waits for the child. Returns the status, or -1 if this way of waiting gives none. */
static int wait_for(pid_t pid, pid_t *result)
{
    int status = -1;
    struct rusage usage;
    siginfo_t info;
    pthread_t thread;
    if (is("wait"))
        *result = wait(&status);
    else if (is("wait-null"))
        *result = wait(NULL);
    else if (is("wait3"))
        *result = wait3(&status, 0, &usage);
    else if (is("wait4"))
        *result = wait4(pid, &status, 0, &usage);
    else if (is("waitid")) {
        *result = waitid(P_PID, pid, &info, WEXITED) == 0 ? info.si_pid : -1;
        status = status_of(&info);
    } else if (is("waitid-null"))
        *result = waitid(P_PID, pid, NULL, WEXITED) == 0 ? pid : -1;
    else if (is("waitid-twice")) {
        waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
        *result = waitid(P_PID, pid, &info, WEXITED) == 0 ? info.si_pid : -1;
        status = status_of(&info);
    } else if (is("poll")) {
        while ((*result = waitpid(pid, &status, WNOHANG)) == 0)
            usleep(1000);
    } else if (is("stopped")) {
        kill(pid, SIGSTOP);
        waitpid(pid, &status, WUNTRACED);
        kill(pid, SIGCONT);
        waitpid(pid, &status, WCONTINUED);
        kill(pid, SIGUSR1);
        *result = waitpid(pid, &status, 0);
    } else if (is("handler")) {
        while (!handled)
            usleep(1000);
        /* main() has set errno to 77. usleep() changes errno if the signal interrupts it. */
        errno = 77;
        *result = handled_pid;
        status = handled_status;
    } else if (is("thread")) {
        waited_pid = pid;
        pthread_create(&thread, NULL, wait_thread, NULL);
        pthread_join(thread, NULL);
        *result = waited_pid;
        status = waited_status;
    } else if (is("none")) {
        while (kill(pid, 0) == 0)
            usleep(1000);
        *result = 0;
    } else
        *result = waitpid(pid, &status, 0);
    return status;
}

static void by_libc(void)
{
    char command[4096];
    snprintf(command, sizeof command, "exec %s end %s", arguments[0], end);
    errno = 77;
    int status = is("system") ? system(command) : pclose(popen(command, "r"));
    printf("%d %d %d %d\n", 0, 0, status, errno);
}

__attribute__((destructor)) static void crash_late(void)
{
    if (getenv("CRASH_LATE") != NULL)
        raise(SIGSEGV);
}

int main(int argc, char **argv)
{
    arguments = argv;
    way = argv[1];
    end = argv[2];
    if (is("end")) {
        end_child();
        return 3;
    }
    if (is("system") || is("pclose")) {
        by_libc();
        return 0;
    }
    if (is("none"))
        signal(SIGCHLD, SIG_IGN);
    if (is("handler"))
        handle_children();
    pid_t pid = start_child(), result = 0;
    errno = 77;
    int status = wait_for(pid, &result);
    int error = errno;
    printf("%d %d %d %d\n", pid, result, status, error);
    return 0;
}
