/* kernel.h - the system calls of the witness, made directly.
 *
 * libc's own wrappers would be wrong inside another program: open, read, write and close are places where a
 * thread can be cancelled, and a program or another preloaded library may have put its own function under
 * their name. What is here is async-signal-safe, works in a vfork child, and may change errno, which
 * whoever was called by the program keeps and puts back.
 */
#ifndef CAIRN_WITNESS_KERNEL_H
#define CAIRN_WITNESS_KERNEL_H

#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/base.h"

static_assert(sizeof(void *) == 8, "struct stat and off_t are passed to the kernel as they are");

/* O_NONBLOCK: what was a file when it was looked at may be a pipe by now, and must not make the program
 * wait. */
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

/* The target of a symbolic link, cut to what fits; "" when there is none to be read. */
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
    enum { MOUNTED_NOSUID = 2 }; /* ST_NOSUID, as the kernel writes it into f_flags */
    struct statfs status;
    return syscall(SYS_fstatfs, fd, &status) == 0 && (status.f_flags & MOUNTED_NOSUID) != 0;
}

/* The largest size that this process may give a file. */
static inline uint64_t kernel_file_size_limit_bytes(void)
{
    struct rlimit limit;
    if (syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) != 0)
        return UINT64_MAX;
    return limit.rlim_cur;
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
