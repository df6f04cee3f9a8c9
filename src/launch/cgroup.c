#define _GNU_SOURCE 1

#include "launch/cgroup.h"

#include "base/clock.h"
#include "base/text.h"
#include "launch/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_PREFIX "cairn-"

/* Stores in cgroup->reason why a step failed. Always returns false, so that a caller can return the
 * result of because(). */
static bool because(struct cgroup *cgroup, const char *what, const char *object, int error)
{
    struct text reason = text_over(cgroup->reason, sizeof cgroup->reason);
    text_add(&reason, what);
    if (object != NULL)
        text_add(&reason, object);
    if (error != 0) {
        text_add(&reason, ": ");
        text_add(&reason, strerror(error));
    }
    return false;
}

/* Cuts the next field off a line whose fields are separated by `separator`. Returns NULL after the
 * last field. */
static char *next_field(char **line, char separator)
{
    char *field = *line;
    if (field == NULL)
        return NULL;
    char *end = strchr(field, separator);
    *line = end == NULL ? NULL : end + 1;
    if (end != NULL)
        *end = '\0';
    return field;
}

/* Decodes a path of mountinfo in place. In mountinfo the kernel writes a blank as \040, and other
 * special characters in the same octal form. */
static void unescape(char *path)
{
    char *to = path;
    for (const char *from = path; *from != '\0';) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
            from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
            *to++ = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

/* Parses one line of mountinfo, for example
 *
 *     36 35 0:29 /root /sys/fs/cgroup/memory rw,relatime optional… - cgroup cgroup rw,memory
 *
 * Returns true if the line is a mount of this cgroup version, and for v1 also has the memory
 * controller. */
static bool parse_mount(char *line, unsigned version, char **root, char **mount)
{
    char *kind = strstr(line, " - ");
    if (kind == NULL)
        return false;
    *kind = '\0';
    kind += 3;
    char *type = next_field(&kind, ' ');
    next_field(&kind, ' ');
    const char *controllers = next_field(&kind, ' ');
    bool right = version == 2 ? strcmp(type, "cgroup2") == 0
                              : strcmp(type, "cgroup") == 0 && controllers != NULL &&
                                    file_has_word(controllers, "memory");
    if (!right)
        return false;
    for (int skipped = 0; skipped < 3; skipped++)
        next_field(&line, ' ');
    *root = next_field(&line, ' ');
    *mount = next_field(&line, ' ');
    if (*root == NULL || *mount == NULL)
        return false;
    unescape(*root);
    unescape(*mount);
    return true;
}

/* Returns the path in one line of /proc/self/cgroup: "0::/path" for v2, "4:memory:/path" for v1.
 * Returns NULL if the line belongs to another hierarchy. */
static char *parse_membership(char *line, unsigned version)
{
    const char *number = next_field(&line, ':');
    const char *controllers = next_field(&line, ':');
    if (line == NULL)
        return NULL;
    bool right = version == 2 ? strcmp(number, "0") == 0 && controllers[0] == '\0'
                              : file_has_word(controllers, "memory");
    return right ? line : NULL;
}

/* Concatenates two paths into `to`, without slashes at the end. Returns false if the result does
 * not fit. */
static bool join(char *to, size_t capacity, const char *first, const char *second)
{
    struct text text = text_over(to, capacity);
    text_add(&text, first);
    text_add(&text, second);
    while (!text.truncated && text.length > 1 && to[text.length - 1] == '/')
        to[--text.length] = '\0';
    return !text.truncated;
}

bool cgroup_find(struct cgroup_place *place, unsigned version, const char *mountinfo,
                 const char *membership)
{
    place->mount[0] = place->own[0] = '\0';
    struct file_lines lines;
    char *line;

    char path[sizeof place->own] = "";
    if (!file_lines_open(&lines, AT_FDCWD, membership))
        return false;
    while ((line = file_lines_next(&lines)) != NULL) {
        const char *found = parse_membership(line, version);
        if (found != NULL && !join(path, sizeof path, found, ""))
            path[0] = '\0';
    }
    file_lines_close(&lines);
    /* The kernel writes "/.." for a cgroup outside our cgroup namespace. Such a cgroup has no
     * folder here. */
    if (path[0] != '/' || strncmp(path, "/..", 3) == 0)
        return false;

    if (!file_lines_open(&lines, AT_FDCWD, mountinfo))
        return false;
    bool found = false;
    while (!found && (line = file_lines_next(&lines)) != NULL) {
        char *root;
        char *mount;
        if (!parse_mount(line, version, &root, &mount))
            continue;
        /* A container may see only the part of the hierarchy below `root`. */
        const char *below = path;
        size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);
        if (strncmp(path, root, length) != 0 || (path[length] != '/' && path[length] != '\0'))
            continue;
        below += length;
        found = join(place->mount, sizeof place->mount, mount, "") &&
                join(place->own, sizeof place->own, place->mount, below);
    }
    file_lines_close(&lines);
    if (!found)
        place->mount[0] = place->own[0] = '\0';
    return found;
}

/* Chooses a unique name for the cgroup, from the process number and the time: another launcher, or
 * a later call in this one, chooses another name. */
static void choose_name(struct cgroup *cgroup)
{
    struct text name = text_over(cgroup->name, sizeof cgroup->name);
    text_add(&name, NAME_PREFIX);
    text_add_unsigned(&name, (uint64_t)getpid());
    text_add(&name, "-");
    text_add_unsigned(&name, clock_now_ns());
}

static bool move_process(int folder, pid_t pid)
{
    char number[24];
    struct text text = text_over(number, sizeof number);
    text_add_unsigned(&text, (uint64_t)pid);
    return file_write_at(folder, "cgroup.procs", number);
}

/* v2: moves the process into the new cgroup. v1: stores the path of the file by which the process
 * can move itself. */
static bool admit(struct cgroup *cgroup, const char *parent_path, pid_t pid)
{
    if (cgroup->version == 2)
        return move_process(cgroup->folder, pid);
    struct text path = text_over(cgroup->join, sizeof cgroup->join);
    text_add(&path, parent_path);
    text_add(&path, "/");
    text_add(&path, cgroup->name);
    text_add(&path, "/tasks");
    return !path.truncated && faccessat(AT_FDCWD, cgroup->join, W_OK, AT_EACCESS) == 0;
}

bool cgroup_join(const char *join)
{
    return join[0] == '\0' || file_write_at(AT_FDCWD, join, "0");
}

static bool has_memory(const struct cgroup *cgroup)
{
    return faccessat(cgroup->folder, "memory.stat", R_OK, 0) == 0;
}

/* Enables the memory controller for the children of the parent cgroup. v2 counts the memory of a
 * cgroup only if its parent has enabled the controller. Sets `enabled` if this call has enabled
 * it. */
static bool enable_memory(struct cgroup *cgroup, bool *enabled)
{
    char controllers[512];
    if (!file_read_at(cgroup->parent, "cgroup.subtree_control", controllers, sizeof controllers))
        return false;
    if (file_has_word(controllers, "memory"))
        return true;
    *enabled = file_write_at(cgroup->parent, "cgroup.subtree_control", "+memory");
    return *enabled;
}

static bool make_in(struct cgroup *cgroup, const char *parent_path, const char *own_path, pid_t pid,
                    bool with_memory)
{
    cgroup->parent = open(parent_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (cgroup->parent < 0)
        return because(cgroup, "cannot open ", parent_path, errno);

    bool made = false;
    bool moved = false;
    bool enabled = false;
    choose_name(cgroup);
    if (mkdirat(cgroup->parent, cgroup->name, 0755) != 0) {
        because(cgroup, "cannot make a folder in ", parent_path, errno);
        goto failed;
    }
    made = true;
    cgroup->folder =
        openat(cgroup->parent, cgroup->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (cgroup->folder < 0 || !admit(cgroup, parent_path, pid)) {
        because(cgroup, "cannot move a process below ", parent_path, errno);
        goto failed;
    }
    moved = cgroup->version == 2;
    /* The memory controller is enabled last, so that an earlier failure has less to undo. The
     * kernel forbids processes in a v2 cgroup that has controllers enabled for its children. The
     * process has already left the parent, so enabling fails only if the parent holds other
     * processes. */
    if (with_memory && cgroup->version == 2 && !enable_memory(cgroup, &enabled)) {
        because(cgroup, "cannot enable the memory controller in ", parent_path, errno);
        goto failed;
    }
    if (with_memory && !has_memory(cgroup)) {
        because(cgroup, "no memory controller below ", parent_path, errno);
        goto failed;
    }
    return true;

failed:
    if (enabled)
        file_write_at(cgroup->parent, "cgroup.subtree_control", "-memory");
    if (moved) {
        int own = open(own_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (own >= 0) {
            move_process(own, pid);
            close(own);
        }
    }
    if (cgroup->folder >= 0)
        close(cgroup->folder);
    if (made)
        unlinkat(cgroup->parent, cgroup->name, AT_REMOVEDIR);
    close(cgroup->parent);
    cgroup->parent = cgroup->folder = -1;
    return false;
}

static bool offers_memory(const char *path)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return false;
    char controllers[512];
    bool offers = file_read_at(folder, "cgroup.controllers", controllers, sizeof controllers) &&
                  file_has_word(controllers, "memory");
    close(folder);
    return offers;
}

/* Returns whether the last component of the path is a name that choose_name() made. */
static bool is_ours(const char *path)
{
    const char *name = strrchr(path, '/');
    return name != NULL && strncmp(name + 1, NAME_PREFIX, strlen(NAME_PREFIX)) == 0;
}

/* Tries to make the new cgroup in our own cgroup, and then in each ancestor up to the mount point.
 * Our own cgroup may refuse children: systemd, for example, puts the processes of a terminal into a
 * scope, and only the slice above the scope may have child cgroups. */
static bool make_v2(struct cgroup *cgroup, const struct cgroup_place *place, pid_t pid)
{
    char path[sizeof place->own];
    if (!offers_memory(place->mount) && !offers_memory(place->own))
        return because(cgroup, "the cgroup v2 hierarchy has no memory controller here", NULL, 0);
    join(path, sizeof path, place->own, "");
    for (;;) {
        if (!offers_memory(path))
            because(cgroup, "no memory controller in ", path, 0);
        else if (make_in(cgroup, path, place->own, pid, true))
            return true;
        if (is_ours(path))
            return because(cgroup, "already inside the cgroup of another cairn-launch", NULL, 0);
        char *last = strrchr(path, '/');
        if (strcmp(path, place->mount) == 0 || last == NULL || last == path)
            return false;
        *last = '\0';
    }
}

bool cgroup_make(struct cgroup *cgroup, pid_t pid, const char *mountinfo, const char *membership)
{
    struct cgroup_place place;
    *cgroup = (struct cgroup){.version = 2, .parent = -1, .folder = -1};
    because(cgroup, "no cgroup hierarchy is mounted here", NULL, 0);
    if (cgroup_find(&place, 2, mountinfo, membership) && make_v2(cgroup, &place, pid))
        return true;
    cgroup->version = 1;
    if (cgroup_find(&place, 1, mountinfo, membership) &&
        make_in(cgroup, place.own, place.own, pid, true))
        return true;
    cgroup->version = 0;
    return false;
}

bool cgroup_make_without_memory(struct cgroup *cgroup, pid_t pid, const char *mountinfo,
                                const char *membership)
{
    struct cgroup_place place;
    *cgroup = (struct cgroup){.version = 2, .parent = -1, .folder = -1};
    because(cgroup, "no cgroup hierarchy of version 2 is mounted here", NULL, 0);
    if (cgroup_find(&place, 2, mountinfo, membership) &&
        make_in(cgroup, place.own, place.own, pid, false))
        return true;
    cgroup->version = 0;
    return false;
}

bool cgroup_kill(struct cgroup *cgroup)
{
    return cgroup->version == 2 && file_write_at(cgroup->folder, "cgroup.kill", "1");
}

/* Removes the cgroups below `folder`. They were created by PROG, or by another cairn-launch that
 * was killed before it could remove them. */
static void remove_below(int folder)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = copy < 0 ? NULL : fdopendir(copy);
    if (entries == NULL) {
        if (copy >= 0)
            close(copy);
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(entries)) != NULL) {
        if (entry->d_type != DT_DIR || strcmp(entry->d_name, ".") == 0 ||
            strcmp(entry->d_name, "..") == 0)
            continue;
        int below = openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0) {
            remove_below(below);
            close(below);
        }
        unlinkat(folder, entry->d_name, AT_REMOVEDIR);
    }
    closedir(entries);
}

bool cgroup_remove(struct cgroup *cgroup, uint64_t patience_ns)
{
    if (cgroup->version == 0)
        return true;
    uint64_t deadline = clock_now_ns() + patience_ns;
    bool removed;
    while (!(removed = unlinkat(cgroup->parent, cgroup->name, AT_REMOVEDIR) == 0) &&
           errno == EBUSY && clock_now_ns() < deadline) {
        remove_below(cgroup->folder);
        nanosleep(&(struct timespec){.tv_nsec = (long)NS_PER_MS}, NULL);
    }
    close(cgroup->folder);
    close(cgroup->parent);
    *cgroup = (struct cgroup){.parent = -1, .folder = -1};
    return removed;
}
