#define _GNU_SOURCE 1
#include "witness/target.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#include "witness/kernel.h"

/* The ELF header of this library. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

const char *target_kind_name(enum target_kind kind)
{
    switch (kind) {
    case TARGET_DYNAMIC:
        return "dynamic";
    case TARGET_STATIC:
        return "static";
    case TARGET_SETUID:
        return "setuid";
    case TARGET_OTHER_CLASS:
        return "other class";
    case TARGET_ENVIRONMENT:
        return "environment";
    case TARGET_NONE:
    case TARGET_SCRIPT:
    case TARGET_UNKNOWN:
        break;
    }
    return "unknown";
}

/* Names of loaders are, for example, ld-linux-x86-64.so.2, ld-2.31.so, ld-musl-x86_64.so.1,
 * ld.so. */
bool target_is_loader(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    return strcmp(name, "ld.so") == 0 ||
           (strncmp(name, "ld-", 3) == 0 && strstr(name, ".so") != NULL);
}

/* Returns whether the file names a dynamic loader (PT_INTERP). */
static bool has_interpreter(int fd, const ElfW(Ehdr) * header)
{
    ElfW(Phdr) segments[8];
    size_t done = 0;
    while (done < header->e_phnum) {
        size_t left = header->e_phnum - done;
        size_t count = left < COUNT_OF(segments) ? left : COUNT_OF(segments);
        size_t bytes = count * sizeof segments[0];
        uint64_t offset = header->e_phoff + done * sizeof segments[0];
        if (kernel_read_at(fd, segments, bytes, offset) != (ssize_t)bytes)
            return false;
        for (size_t i = 0; i < count; i++)
            if (segments[i].p_type == PT_INTERP)
                return true;
        done += count;
    }
    return false;
}

/* Returns the kind of an ELF file whose first `bytes` bytes are `head`. */
static enum target_kind elf_kind(int fd, const char *path, const unsigned char *head, size_t bytes)
{
    if (bytes > EI_DATA && (head[EI_CLASS] != __ehdr_start.e_ident[EI_CLASS] ||
                            head[EI_DATA] != __ehdr_start.e_ident[EI_DATA]))
        return TARGET_OTHER_CLASS;
    ElfW(Ehdr) header;
    if (bytes < sizeof header)
        return TARGET_UNKNOWN;
    memcpy(&header, head, sizeof header);
    if (header.e_machine != __ehdr_start.e_machine)
        return TARGET_OTHER_CLASS;
    if (header.e_type != ET_EXEC && header.e_type != ET_DYN)
        return TARGET_UNKNOWN;
    if (header.e_phentsize == sizeof(ElfW(Phdr)) && has_interpreter(fd, &header))
        return TARGET_DYNAMIC;
    return target_is_loader(path) ? TARGET_DYNAMIC : TARGET_STATIC;
}

static bool is_blank(unsigned char c)
{
    return c == ' ' || c == '\t';
}

/* Parses the first line of a script, such as "#! /bin/sh -e": blanks, the interpreter, and perhaps
 * an argument. Linux reads only TARGET_INTERPRETER_BYTES of the script. It refuses an interpreter
 * whose path does not end within these bytes, because the path may be cut. */
static enum target_kind script_kind(const unsigned char head[TARGET_INTERPRETER_BYTES],
                                    char *interpreter)
{
    size_t start = 2;
    while (start < TARGET_INTERPRETER_BYTES && is_blank(head[start]))
        start++;
    size_t end = start;
    while (end < TARGET_INTERPRETER_BYTES && !is_blank(head[end]) && head[end] != '\n' &&
           head[end] != '\0')
        end++;
    if (end == start || end == TARGET_INTERPRETER_BYTES)
        return TARGET_UNKNOWN;
    memcpy(interpreter, head + start, end - start);
    interpreter[end - start] = '\0';
    return TARGET_SCRIPT;
}

/* Returns true if the program will gain privileges, by the rule of Linux for AT_SECURE: an
 * effective id will differ from the real one, or the file has capabilities and the user is not
 * root. The set-id bits have no effect if the mount or the process forbids them. */
static bool gains_privileges(int fd, const struct stat *status)
{
    uid_t user = (uid_t)syscall(SYS_geteuid);
    gid_t group = (gid_t)syscall(SYS_getegid);
    uid_t real_user = (uid_t)syscall(SYS_getuid);
    bool sets_user = (status->st_mode & S_ISUID) != 0;
    bool sets_group = (status->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP);
    if ((sets_user || sets_group) && !kernel_forbids_new_privileges() &&
        !kernel_mounted_nosuid(fd)) {
        user = sets_user ? status->st_uid : user;
        group = sets_group ? status->st_gid : group;
    }
    if (user != real_user || group != (gid_t)syscall(SYS_getgid))
        return true;
    return real_user != 0 && kernel_has_attribute(fd, "security.capability") &&
           !kernel_mounted_nosuid(fd);
}

enum target_kind target_of(int fd, const char *path, char interpreter[TARGET_INTERPRETER_BYTES])
{
    unsigned char head[TARGET_INTERPRETER_BYTES] = {0};
    ssize_t bytes = kernel_read_at(fd, head, sizeof head, 0);
    if (bytes >= 2 && memcmp(head, "#!", 2) == 0)
        return script_kind(head, interpreter);
    struct stat status;
    if (bytes < SELFMAG || memcmp(head, ELFMAG, SELFMAG) != 0 || !kernel_stat_open(fd, &status))
        return TARGET_UNKNOWN;
    enum target_kind kind = elf_kind(fd, path, head, (size_t)bytes);
    return kind == TARGET_DYNAMIC && gains_privileges(fd, &status) ? TARGET_SETUID : kind;
}

/* Determines the kind of one file, without following the interpreter of a script. The file is
 * checked by stat before it is opened, because opening a device or a pipe can have side effects. */
static enum target_kind look_at(int folder_fd, const char *path, int flags,
                                char interpreter[TARGET_INTERPRETER_BYTES])
{
    struct stat status;
    if (!kernel_stat(folder_fd, path, flags & AT_SYMLINK_NOFOLLOW, &status) ||
        !S_ISREG(status.st_mode) || !kernel_may_execute(folder_fd, path))
        return TARGET_NONE;
    int fd = kernel_open(folder_fd, path, O_RDONLY);
    if (fd < 0)
        return (status.st_mode & S_ISUID) != 0 ? TARGET_SETUID : TARGET_UNKNOWN;
    enum target_kind kind = target_of(fd, path, interpreter);
    kernel_close(fd);
    return kind;
}

enum target_kind target_at(int folder_fd, const char *path, int flags)
{
    enum { SCRIPTS_MAX = 5 }; /* Linux fails with ELOOP at the sixth */
    char interpreter[TARGET_INTERPRETER_BYTES];
    enum target_kind kind = look_at(folder_fd, path, flags, interpreter);
    for (int scripts = 0; kind == TARGET_SCRIPT; scripts++) {
        if (scripts == SCRIPTS_MAX)
            return TARGET_NONE;
        kind = look_at(AT_FDCWD, interpreter, 0, interpreter);
    }
    return kind;
}

enum target_kind target_search(const char *file, const char *search_path, char *found,
                               size_t capacity)
{
    size_t file_bytes = strlen(file);
    if (strchr(file, '/') != NULL || file_bytes == 0) {
        if (file_bytes >= capacity)
            return TARGET_NONE;
        memcpy(found, file, file_bytes + 1);
        return target_at(AT_FDCWD, found, 0);
    }
    if (search_path == NULL)
        search_path = TARGET_SEARCH_DEFAULT;
    for (;;) {
        size_t folder_bytes = strcspn(search_path, ":");
        if (folder_bytes + file_bytes + 2 <= capacity) {
            memcpy(found, search_path, folder_bytes);
            found[folder_bytes] = '/';
            /* An empty element of PATH means the current folder. The path is then the file name
             * without a slash before it. */
            memcpy(found + folder_bytes + (folder_bytes > 0), file, file_bytes + 1);
            enum target_kind kind = target_at(AT_FDCWD, found, 0);
            if (kind != TARGET_NONE)
                return kind;
        }
        if (search_path[folder_bytes] == '\0')
            return TARGET_NONE;
        search_path += folder_bytes + 1;
    }
}
