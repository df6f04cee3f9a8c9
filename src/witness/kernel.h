/* kernel.h - makes the system calls of the witness directly, without libc's wrappers.
 *
 * The wrappers have two problems inside another program. First, open, read, write and close are
 * cancellation points of threads. Second, the program or another preloaded library may have
 * replaced them. The functions here are async-signal-safe and work in a vfork child. They may
 * change errno, so the interposed functions that use them save and restore it.
 */
#ifndef CAIRN_WITNESS_KERNEL_H
#define CAIRN_WITNESS_KERNEL_H

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/base.h"

static_assert(sizeof(void *) == 8, "struct stat and off_t equal the kernel's on 64-bit systems");

/* Opens a file. The caller has checked that the path is a regular file, but it may be a pipe by
 * now. O_NONBLOCK is set so that opening a pipe does not block the program. */
static inline int kernel_open(int folder_fd, const char *path, int flags)
{
    return (int)syscall(SYS_openat, folder_fd, path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
}

static inline void kernel_close(int fd)
{
    syscall(SYS_close, fd);
}

static inline ssize_t kernel_read_at(int fd, void *data, size_t bytes, uint64_t offset)
{
    return syscall(SYS_pread64, fd, data, bytes, offset);
}

static inline ssize_t kernel_write(int fd, const void *data, size_t bytes)
{
    return syscall(SYS_write, fd, data, bytes);
}

static inline bool kernel_stat(int folder_fd, const char *path, int flags, struct stat *status)
{
    return syscall(SYS_newfstatat, folder_fd, path, status, flags) == 0;
}

static inline bool kernel_stat_open(int fd, struct stat *status)
{
    return syscall(SYS_fstat, fd, status) == 0;
}

static inline bool kernel_may_execute(int folder_fd, const char *path)
{
    return syscall(SYS_faccessat, folder_fd, path, X_OK) == 0;
}

/* Reads the target of a symbolic link. The target is cut if it does not fit, and is "" if the link
 * cannot be read. */
static inline void kernel_read_link(const char *path, char *target, size_t capacity)
{
    ssize_t bytes = syscall(SYS_readlinkat, AT_FDCWD, path, target, capacity - 1);
    target[bytes > 0 ? bytes : 0] = '\0';
}

static inline bool kernel_has_attribute(int fd, const char *name)
{
    return syscall(SYS_fgetxattr, fd, name, NULL, 0) >= 0;
}

static inline bool kernel_forbids_new_privileges(void)
{
    return syscall(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
}

static inline bool kernel_mounted_nosuid(int fd)
{
    enum { MOUNTED_NOSUID = 2 }; /* the kernel's ST_NOSUID in f_flags */
    struct statfs status;
    return syscall(SYS_fstatfs, fd, &status) == 0 && (status.f_flags & MOUNTED_NOSUID) != 0;
}

/* Returns the largest size that this process may give to a file. */
static inline uint64_t kernel_file_size_limit_bytes(void)
{
    struct rlimit limit;
    if (syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) != 0)
        return UINT64_MAX;
    return limit.rlim_cur;
}

/* Returns whether the kernel reaps the children of this process, so that none can be waited for. */
static inline bool kernel_ignores_children(void)
{
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        uint64_t mask;
    } action = {0}; /* the kernel's own struct sigaction on x86-64 and arm64 */
    return syscall(SYS_rt_sigaction, SIGCHLD, NULL, &action, sizeof action.mask) == 0 &&
           (action.handler == SIG_IGN || (action.flags & SA_NOCLDWAIT) != 0);
}

static inline pid_t kernel_process(void)
{
    return (pid_t)syscall(SYS_getpid);
}

static inline pid_t kernel_parent(void)
{
    return (pid_t)syscall(SYS_getppid);
}

#endif
