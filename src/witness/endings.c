#define _GNU_SOURCE 1
#include "witness/endings.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "witness/kernel.h"
#include "witness/record.h"
#include "witness/sandbox.h"

#define INTERPOSED __attribute__((visibility("default")))
/* Keeps a function out of line, so that its buffer leaves the stack before the real call. */
#define OWN_FRAME __attribute__((noinline))

enum {
    PROGRAM_BYTES = 60,
    /* Each byte of the name may take six bytes in JSON. */
    LINE_BYTES = RECORD_HEAD_BYTES + 6 * PROGRAM_BYTES + 20,
};

/* The real functions. Each costs about half a microsecond in the start of every program. */
static struct {
    __typeof__(wait) *wait;
    __typeof__(wait3) *wait3;
    __typeof__(wait4) *wait4;
    __typeof__(waitid) *waitid;
    __typeof__(fork) *fork;
    __typeof__(_exit) *_exit;
    __typeof__(waitpid) *waitpid;
} real;

/* The beginning of the program's name. Forked children inherit it. */
static char program[PROGRAM_BYTES + 1];

void endings_prepare(void)
{
    real.wait = dlsym(RTLD_NEXT, "wait");
    real.wait3 = dlsym(RTLD_NEXT, "wait3");
    real.wait4 = dlsym(RTLD_NEXT, "wait4");
    real.waitid = dlsym(RTLD_NEXT, "waitid");
    real.fork = dlsym(RTLD_NEXT, "fork");
    real._exit = dlsym(RTLD_NEXT, "_exit");
    real.waitpid = dlsym(RTLD_NEXT, "waitpid");
}

/* Finds the real functions if our constructor has not run yet: the constructor of another library
 * may wait for a child or end the process before. */
static void prepare_if_early(void)
{
    if (UNLIKELY(real.waitpid == NULL)) {
        int error = errno;
        endings_prepare();
        errno = error;
    }
}

/* Appends a record. `other` is the name of the member that holds `other_pid`, or NULL. `status` is
 * as wait(2) returns it, or -1 if the record has none. */
static void OWN_FRAME write_record(const char *event, pid_t pid, const char *other, pid_t other_pid,
                                   int status)
{
    char buffer[LINE_BYTES];
    struct text line = text_over(buffer, sizeof buffer);
    record_begin(&line, event, pid);
    if (other != NULL)
        text_add_json_unsigned(&line, other, (uint64_t)other_pid);
    if (status >= 0)
        text_add_json_unsigned(&line, "status", (uint64_t)status);
    text_add_json_text(&line, "program", program);
    (void)record_end(&line);
}

/* Returns the status that wait(2) returns for a process that exits with `status`. */
static int status_of_exit(int status)
{
    return (status & 0xff) << 8;
}

/* Marks that this process ends by itself. Does nothing in a child whose thread-local storage was
 * not set up by libc, because errno cannot be used there. Chromium makes such children by clone();
 * their storage is all zeroes. */
static void mark_end(int status)
{
    if (UNLIKELY(pthread_self() == 0))
        return;
    int error = errno;
    if (sandbox_steps == 0 && record_file() != NULL)
        write_record("end", kernel_process(), NULL, 0, status_of_exit(status));
    errno = error;
}

/* Records the end of a child. `child` is 0 if its process number is not known. Does nothing if the
 * child has not ended. Does nothing either if the child exited with 0: it has marked its end
 * itself, and a record of each such end would cost every program time. */
static void mark_child(pid_t child, int status)
{
    int error = errno;
    bool ended = WIFEXITED(status) || WIFSIGNALED(status);
    if (ended && status != 0 && sandbox_steps == 0 && record_file() != NULL)
        write_record("wait", child, "by", kernel_process(), status & 0xffff);
    errno = error;
}

static void at_exit(int status, void *unused)
{
    (void)unused;
    mark_end(status);
}

void endings_begin(const char *exe)
{
    const char *slash = strrchr(exe, '/');
    const char *name = slash != NULL ? slash + 1 : exe;
    size_t bytes = strnlen(name, PROGRAM_BYTES);
    memcpy(program, name, bytes);
    program[bytes] = '\0';
    /* This allocates nothing: glibc has room for 32 exit handlers before it allocates memory. The
     * handler runs after the destructors of all libraries, because handlers run in reverse order,
     * and the loader registers the destructors when this constructor has returned. */
    on_exit(at_exit, NULL);
}

INTERPOSED pid_t waitpid(pid_t pid, int *status, int options)
{
    prepare_if_early();
    int own;
    int *used = status != NULL ? status : &own;
    pid_t child = real.waitpid(pid, used, options);
    if (child > 0)
        mark_child(child, *used);
    return child;
}

INTERPOSED pid_t wait(int *status)
{
    prepare_if_early();
    int own;
    int *used = status != NULL ? status : &own;
    pid_t child = real.wait(used);
    if (child > 0)
        mark_child(child, *used);
    return child;
}

INTERPOSED pid_t wait3(int *status, int options, struct rusage *usage)
{
    prepare_if_early();
    int own;
    int *used = status != NULL ? status : &own;
    pid_t child = real.wait3(used, options, usage);
    if (child > 0)
        mark_child(child, *used);
    return child;
}

INTERPOSED pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    prepare_if_early();
    int own;
    int *used = status != NULL ? status : &own;
    pid_t child = real.wait4(pid, used, options, usage);
    if (child > 0)
        mark_child(child, *used);
    return child;
}

/* Returns the status that wait(2) would give for the child that waitid(2) describes. A stopped
 * child gives a status that is not an end. */
static int status_of_info(const siginfo_t *info)
{
    switch (info->si_code) {
    case CLD_EXITED:
        return status_of_exit(info->si_status);
    case CLD_KILLED:
    case CLD_DUMPED:
        return info->si_status & 0x7f;
    default:
        return W_STOPCODE(SIGSTOP);
    }
}

INTERPOSED int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    prepare_if_early();
    siginfo_t own;
    siginfo_t *used = info != NULL ? info : &own;
    int result = real.waitid(type, id, used, options);
    if (result == 0 && used->si_pid != 0 && (options & WNOWAIT) == 0)
        mark_child(used->si_pid, status_of_info(used));
    return result;
}

/* Records a forked child that no process will wait for, because this process ignores SIGCHLD. Other
 * children are seen without such a record: if they crash, their parent or the launcher waits for
 * them. The children of vfork() and of libc's own forks have no such record. */
static void mark_fork(void)
{
    int error = errno;
    if (sandbox_steps == 0 && kernel_ignores_children() && record_file() != NULL)
        write_record("fork", kernel_process(), "ppid", kernel_parent(), -1);
    errno = error;
}

INTERPOSED pid_t fork(void)
{
    prepare_if_early();
    pid_t child = real.fork();
    if (child == 0)
        mark_fork();
    return child;
}

/* system() and pclose() wait inside libc, and do not report the process number of their child. They
 * and quick_exit() take locks themselves, so their real functions can be looked up by dlsym, which
 * also takes a lock, at the call. */

INTERPOSED int system(const char *command)
{
    __typeof__(system) *real_system = dlsym(RTLD_NEXT, "system");
    int status = real_system(command);
    if (command != NULL && status != -1)
        mark_child(0, status);
    return status;
}

INTERPOSED int pclose(FILE *stream)
{
    __typeof__(pclose) *real_pclose = dlsym(RTLD_NEXT, "pclose");
    int status = real_pclose(stream);
    if (status != -1)
        mark_child(0, status);
    return status;
}

INTERPOSED _Noreturn void quick_exit(int status)
{
    __typeof__(quick_exit) *real_quick_exit = dlsym(RTLD_NEXT, "quick_exit");
    mark_end(status);
    real_quick_exit(status);
    __builtin_unreachable();
}

INTERPOSED _Noreturn void _exit(int status)
{
    prepare_if_early();
    mark_end(status);
    real._exit(status);
    __builtin_unreachable();
}

INTERPOSED _Noreturn void _Exit(int status)
{
    _exit(status);
}
