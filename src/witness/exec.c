#define _GNU_SOURCE 1
#include "witness/exec.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <string.h>

#include "record/executed.h"
#include "witness/environment.h"
#include "witness/kernel.h"
#include "witness/owner.h"
#include "witness/record.h"
#include "witness/sandbox.h"
#include "witness/target.h"

#define INTERPOSED __attribute__((visibility("default")))
/* Keeps a function out of line, so that its buffers leave the stack before the real call. */
#define OWN_FRAME __attribute__((noinline))

static struct {
    __typeof__(execve) *execve;
    __typeof__(execvpe) *execvpe;
    __typeof__(execveat) *execveat;
    __typeof__(fexecve) *fexecve;
    __typeof__(posix_spawn) *spawn;
    __typeof__(posix_spawnp) *spawnp;
    const char *own_name; /* last component of this library's path */
    size_t own_name_bytes;
} real;

void exec_prepare(void)
{
    const char *own_path = owner_of_address(&real).path;
    const char *slash = own_path != NULL ? strrchr(own_path, '/') : NULL;
    real.own_name = slash != NULL ? slash + 1 : "";
    real.own_name_bytes = strlen(real.own_name);
    real.execvpe = dlsym(RTLD_NEXT, "execvpe");
    real.execveat = dlsym(RTLD_NEXT, "execveat");
    real.fexecve = dlsym(RTLD_NEXT, "fexecve");
    real.spawn = dlsym(RTLD_NEXT, "posix_spawn");
    real.spawnp = dlsym(RTLD_NEXT, "posix_spawnp");
    real.execve = dlsym(RTLD_NEXT, "execve");
}

/* Finds the real functions if our constructor has not run yet: the constructor of another library
 * may execute a program before. */
static void prepare_if_early(void)
{
    if (UNLIKELY(real.execve == NULL))
        exec_prepare();
}

/* Returns whether a program with this environment will preload this library and write to the same
 * witness file as this process. Compares only the file name of the library, because LD_PRELOAD may
 * name its folder in several ways. */
static bool environment_has_us(char *const environment[])
{
    const char *file = environment_value(environment, "CAIRN_WITNESS");
    const char *list = environment_value(environment, "LD_PRELOAD");
    return file != NULL && list != NULL && strcmp(file, record_file()) == 0 &&
           environment_list_has(list, "/: ", real.own_name, real.own_name_bytes);
}

/* Returns whether the loader will only list the libraries that it would load, and run no program.
 * ldd works this way. */
static bool only_lists(const char *path, char *const argv[], char *const environment[])
{
    static const char *const options[] = {"--list", "--verify", "--help", "--version"};
    const char *trace = environment_value(environment, "LD_TRACE_LOADED_OBJECTS");
    if (trace != NULL && trace[0] != '\0')
        return true;
    if (!target_is_loader(path) || argv[0] == NULL || argv[1] == NULL)
        return false;
    for (size_t i = 0; i < COUNT_OF(options); i++)
        if (strncmp(argv[1], options[i], strlen(options[i])) == 0)
            return true;
    return false;
}

/* Corrects `kind`, which was determined from the program's file alone. Returns TARGET_NONE if the
 * arguments or the environment make the loader list libraries instead of running a program. Returns
 * TARGET_ENVIRONMENT if the environment does not preload this library. */
static enum target_kind with_surroundings(enum target_kind kind, const char *path,
                                          char *const argv[], char *const environment[])
{
    if ((kind == TARGET_DYNAMIC || kind == TARGET_OTHER_CLASS) &&
        only_lists(path, argv, environment))
        return TARGET_NONE;
    return kind == TARGET_DYNAMIC && !environment_has_us(environment) ? TARGET_ENVIRONMENT : kind;
}

/* Appends a record about the program `path`. Writes nothing if `kind` says that no program runs
 * (TARGET_NONE). `path` is NULL if the exec failed. If the record cannot be written, the probe
 * notes the program. */
static void OWN_FRAME write_record(const char *event, pid_t pid, const char *path,
                                   enum target_kind kind)
{
    char buffer[RECORD_HEAD_BYTES + RECORD_PATH_BYTES + RECORD_CUT_BYTES];
    struct text line = text_over(buffer, sizeof buffer);
    if (kind == TARGET_NONE)
        return;
    record_begin(&line, event, pid);
    if (path != NULL)
        record_add(&line, "path", path, RECORD_PATH_BYTES);
    text_add_json_text(&line, "kind", target_kind_name(kind));
    int error = record_end(&line);
    if (path == NULL && cairn_probe_not_executed != NULL)
        cairn_probe_not_executed((uint32_t)pid);
    else if (error != 0 && cairn_probe_executed != NULL)
        cairn_probe_executed((uint32_t)pid, path, target_kind_name(kind), (uint32_t)error);
}

/* Returns whether this process records the programs that it executes. */
static bool records(void)
{
    return sandbox_filters == 0 && record_file() != NULL;
}

/* Writes a record before an exec of `path`. Returns the kind that the record states; take_back()
 * needs this kind if the exec fails. */
static enum target_kind OWN_FRAME announce_path(int folder_fd, const char *path, char *const argv[],
                                                char *const environment[], int flags)
{
    if (!records())
        return TARGET_NONE;
    enum target_kind kind =
        with_surroundings(target_at(folder_fd, path, flags), path, argv, environment);
    write_record("exec", kernel_process(), path, kind);
    return kind;
}

/* Writes a record before an exec of an open file. The kind is determined through the link in /proc
 * that leads to the file. The path in the record is the target of this link. */
static enum target_kind OWN_FRAME announce_open_file(int fd, char *const argv[],
                                                     char *const environment[])
{
    if (!records() || fd < 0)
        return TARGET_NONE;
    char link[40];
    struct text text = text_over(link, sizeof link);
    text_add(&text, "/proc/self/fd/");
    text_add_unsigned(&text, (uint64_t)fd);
    /* One byte longer than the longest path that fits into a record, so that record_add() notices a
     * longer path and marks it as cut. */
    char path[RECORD_PATH_BYTES + 2];
    kernel_read_link(link, path, sizeof path);
    enum target_kind kind =
        with_surroundings(target_at(AT_FDCWD, link, 0), path, argv, environment);
    write_record("exec", kernel_process(), path, kind);
    return kind;
}

/* Returns a buffer size that is enough for every path that the search for `file` can find: the
 * length of PATH plus that of `file`, and at most PATH_MAX. A buffer of PATH_MAX bytes would always
 * be large enough, but the program may have a small stack. */
static size_t found_bytes(const char *file)
{
    const char *search_path = environment_value(environ, "PATH");
    if (search_path == NULL)
        search_path = TARGET_SEARCH_DEFAULT;
    size_t bytes = strlen(search_path) + 1 + strlen(file) + 1;
    return bytes < PATH_MAX ? bytes : PATH_MAX;
}

/* Searches for `file` as execvp does. If Linux cannot execute the file found (ENOEXEC), execvp runs
 * the file with /bin/sh, and posix_spawnp fails. `else_shell` is true if the caller is execvp. */
static enum target_kind search(const char *file, char *found, size_t capacity, bool else_shell)
{
    enum target_kind kind =
        target_search(file, environment_value(environ, "PATH"), found, capacity);
    return kind == TARGET_UNKNOWN && else_shell ? target_at(AT_FDCWD, "/bin/sh", 0) : kind;
}

/* Writes a record before an exec of a file that is searched for in PATH. Returns the kind in the
 * record. */
static enum target_kind OWN_FRAME announce_file(const char *file, char *const argv[],
                                                char *const environment[])
{
    if (!records())
        return TARGET_NONE;
    size_t capacity = found_bytes(file);
    char found[capacity];
    enum target_kind kind = search(file, found, capacity, true);
    kind = with_surroundings(kind, found, argv, environment);
    write_record("exec", kernel_process(), found, kind);
    return kind;
}

/* Writes a record that cancels the record of announce_…(). Called after an exec has returned, which
 * happens only if the exec failed. Returns -1. */
static int take_back(enum target_kind kind)
{
    int error = errno;
    if (kind != TARGET_NONE)
        write_record("exec-failed", kernel_process(), NULL, kind);
    errno = error;
    return -1;
}

static int run_path(const char *path, char *const argv[], char *const environment[])
{
    int error = errno;
    prepare_if_early();
    enum target_kind kind = announce_path(AT_FDCWD, path, argv, environment, 0);
    errno = error;
    real.execve(path, argv, environment);
    return take_back(kind);
}

static int run_file(const char *file, char *const argv[], char *const environment[])
{
    int error = errno;
    prepare_if_early();
    enum target_kind kind = announce_file(file, argv, environment);
    errno = error;
    real.execvpe(file, argv, environment);
    return take_back(kind);
}

INTERPOSED int execve(const char *path, char *const argv[], char *const environment[])
{
    return run_path(path, argv, environment);
}

INTERPOSED int execv(const char *path, char *const argv[])
{
    return run_path(path, argv, environ);
}

INTERPOSED int execvpe(const char *file, char *const argv[], char *const environment[])
{
    return run_file(file, argv, environment);
}

INTERPOSED int execvp(const char *file, char *const argv[])
{
    return run_file(file, argv, environ);
}

INTERPOSED int execveat(int folder_fd, const char *path, char *const argv[],
                        char *const environment[], int flags)
{
    int error = errno;
    prepare_if_early();
    bool is_open = (flags & AT_EMPTY_PATH) != 0 && path[0] == '\0';
    enum target_kind kind = is_open ? announce_open_file(folder_fd, argv, environment)
                                    : announce_path(folder_fd, path, argv, environment, flags);
    errno = error;
    real.execveat(folder_fd, path, argv, environment, flags);
    return take_back(kind);
}

INTERPOSED int fexecve(int fd, char *const argv[], char *const environment[])
{
    int error = errno;
    prepare_if_early();
    enum target_kind kind = announce_open_file(fd, argv, environment);
    errno = error;
    real.fexecve(fd, argv, environment);
    return take_back(kind);
}

/* Returns the number of arguments of an execl, including the NULL at the end. */
static size_t count_arguments(const char *first, va_list *rest)
{
    size_t count = 1;
    for (const char *argument = first; argument != NULL; count++)
        argument = va_arg(*rest, const char *);
    return count;
}

static void copy_arguments(char **argv, size_t count, const char *first, va_list *rest)
{
    argv[0] = (char *)first;
    for (size_t i = 1; i < count; i++)
        argv[i] = va_arg(*rest, char *);
}

/* Copies the arguments of an execl function into the array `argv` on the stack, as glibc does. The
 * caller may be a vfork child, which shares its memory with its parent. If the array were on the
 * heap, it would stay allocated in the parent after the exec. After the macro, va_arg(rest) returns
 * the argument after the NULL, which for execle is the environment. */
#define ARGUMENTS(argv, first, rest)                                                               \
    va_list rest;                                                                                  \
    va_start(rest, first);                                                                         \
    size_t count = count_arguments(first, &rest);                                                  \
    va_end(rest);                                                                                  \
    char *argv[count];                                                                             \
    va_start(rest, first);                                                                         \
    copy_arguments(argv, count, first, &rest)

INTERPOSED int execl(const char *path, const char *first, ...)
{
    ARGUMENTS(argv, first, rest);
    va_end(rest);
    return run_path(path, argv, environ);
}

INTERPOSED int execle(const char *path, const char *first, ...)
{
    ARGUMENTS(argv, first, rest);
    char *const *environment = va_arg(rest, char *const *);
    va_end(rest);
    return run_path(path, argv, environment);
}

INTERPOSED int execlp(const char *file, const char *first, ...)
{
    ARGUMENTS(argv, first, rest);
    va_end(rest);
    return run_file(file, argv, environ);
}

/* posix_spawn returns 0 only if the program runs. So the record is written after the call, when the
 * process number of the child is known, and never needs to be cancelled. */
static int run_child(bool is_searched, pid_t *child, const char *name,
                     const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                     char *const argv[], char *const environment[])
{
    int error = errno;
    pid_t started = 0;
    enum target_kind kind = TARGET_NONE;
    size_t capacity = is_searched ? found_bytes(name) : 1;
    char found[capacity];
    const char *path = is_searched ? found : name;
    prepare_if_early();
    if (records()) {
        kind = is_searched ? search(name, found, capacity, false) : target_at(AT_FDCWD, name, 0);
        kind = with_surroundings(kind, path, argv, environment);
    }
    errno = error;
    __typeof__(posix_spawn) *run = is_searched ? real.spawnp : real.spawn;
    int result = run(&started, name, actions, attributes, argv, environment);
    error = errno;
    if (result == 0) {
        if (child != NULL)
            *child = started;
        write_record("spawn", started, path, kind);
    }
    errno = error;
    return result;
}

INTERPOSED int posix_spawn(pid_t *child, const char *path,
                           const posix_spawn_file_actions_t *actions,
                           const posix_spawnattr_t *attributes, char *const argv[],
                           char *const environment[])
{
    return run_child(false, child, path, actions, attributes, argv, environment);
}

INTERPOSED int posix_spawnp(pid_t *child, const char *file,
                            const posix_spawn_file_actions_t *actions,
                            const posix_spawnattr_t *attributes, char *const argv[],
                            char *const environment[])
{
    return run_child(true, child, file, actions, attributes, argv, environment);
}
