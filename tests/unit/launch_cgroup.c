#define _GNU_SOURCE 1

#include "launch/cgroup.h"

#include "launch_fake.h"
#include "test.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define HYBRID                                                                                     \
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"                          \
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"                   \
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:5 - cgroup cgroup rw,memory\n"          \
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"

/* Made-up versions of /proc/self/mountinfo and /proc/self/cgroup. */
struct proc {
    struct fake fake;
    char mountinfo[96];
    char membership[96];
};

static struct proc proc_make(const char *mountinfo, const char *membership)
{
    struct proc proc = {.fake = fake_make()};
    fake_write(&proc.fake, "mountinfo", mountinfo);
    fake_write(&proc.fake, "cgroup", membership);
    snprintf(proc.mountinfo, sizeof proc.mountinfo, "%s/mountinfo", proc.fake.path);
    snprintf(proc.membership, sizeof proc.membership, "%s/cgroup", proc.fake.path);
    return proc;
}

static bool finds(const char *mountinfo, const char *membership, unsigned version,
                  const char *mount, const char *own)
{
    struct proc proc = proc_make(mountinfo, membership);
    struct cgroup_place place;
    bool found = cgroup_find(&place, version, proc.mountinfo, proc.membership);
    bool right = found == (mount != NULL) && strcmp(place.mount, mount == NULL ? "" : mount) == 0 &&
                 strcmp(place.own, own == NULL ? "" : own) == 0;
    if (!right)
        fprintf(stderr, "found mount '%s' and own folder '%s'\n", place.mount, place.own);
    fake_remove(&proc.fake);
    return right;
}

TEST(cgroup_is_found_in_both_hierarchies)
{
    const char *membership = "4:memory:/jobs/7\n3:cpuset:/\n0::/user.slice/a.scope\n";
    CHECK(finds(HYBRID, membership, 1, "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/jobs/7"));
    CHECK(finds(HYBRID, membership, 2, "/sys/fs/cgroup/unified",
                "/sys/fs/cgroup/unified/user.slice/a.scope"));
    CHECK(finds(HYBRID, "4:memory:/\n", 1, "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory"));
    CHECK(
        finds(HYBRID, "4:cpu,memory:/x\n", 1, "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/x"));
}

TEST(cgroup_is_not_found_where_there_is_none)
{
    CHECK(finds(HYBRID, "3:cpuset:/\n", 1, NULL, NULL));
    CHECK(finds(HYBRID, "4:memory_of_another_name:/x\n", 1, NULL, NULL));
    CHECK(finds(HYBRID, "4:memory:/x\n", 2, NULL, NULL));
    CHECK(finds("", "0::/\n", 2, NULL, NULL));
    CHECK(finds("garbage\n - \n1 2 3 - cgroup2\n", "0::/\n", 2, NULL, NULL));
    CHECK(finds(HYBRID, "garbage\n::\n0:\n", 2, NULL, NULL));
}

/* A container sees only its own part of the hierarchy. Its mountinfo names the root of the mount by
 * the path that this part has on the host. */
TEST(cgroup_is_found_through_a_mount_of_a_part)
{
    const char *mounts = "9 1 0:3 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    CHECK(finds(mounts, "4:memory:/docker/abc/in\n", 1, "/sys/fs/cgroup/memory",
                "/sys/fs/cgroup/memory/in"));
    CHECK(finds(mounts, "4:memory:/docker/abc\n", 1, "/sys/fs/cgroup/memory",
                "/sys/fs/cgroup/memory"));
    CHECK(finds(mounts, "4:memory:/docker/abcd\n", 1, NULL, NULL));
    CHECK(finds(mounts, "4:memory:/elsewhere\n", 1, NULL, NULL));
}

TEST(cgroup_outside_the_namespace_has_no_folder)
{
    CHECK(finds(HYBRID, "0::/../other\n", 2, NULL, NULL));
}

TEST(cgroup_mount_may_have_a_blank_in_its_path)
{
    CHECK(finds("9 1 0:3 / /mnt/a\\040b rw - cgroup2 none rw\n", "0::/x\n", 2, "/mnt/a b",
                "/mnt/a b/x"));
}

/* Hosts with thousands of containers have mount lists of megabytes, with lines longer than any
 * buffer. */
TEST(cgroup_is_found_behind_a_very_long_line)
{
    static char mounts[40000];
    memset(mounts, 'x', 30000);
    strcpy(mounts + 30000, "\n" HYBRID);
    CHECK(finds(mounts, "0::/x\n", 2, "/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/x"));
}

/* Makes a v2 hierarchy of ordinary folders. This process is in /outer/own. */
static struct proc hierarchy_make(const char *controllers, const char *subtree_control)
{
    struct proc proc = proc_make("", "0::/outer/own\n");
    static const char *const folders[] = {"mount", "mount/outer", "mount/outer/own"};
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        mkdirat(proc.fake.folder, folders[i], 0700);
        snprintf(name, sizeof name, "%s/cgroup.controllers", folders[i]);
        fake_write(&proc.fake, name, controllers);
        snprintf(name, sizeof name, "%s/cgroup.subtree_control", folders[i]);
        fake_write(&proc.fake, name, subtree_control);
        snprintf(name, sizeof name, "%s/cgroup.procs", folders[i]);
        fake_write(&proc.fake, name, "");
    }
    char mounts[200];
    snprintf(mounts, sizeof mounts, "9 1 0:3 / %s/mount rw - cgroup2 none rw\n", proc.fake.path);
    fake_write(&proc.fake, "mountinfo", mounts);
    return proc;
}

static size_t count_folders(const struct proc *proc, const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", proc->fake.path, name);
    DIR *entries = opendir(path);
    size_t count = 0;
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;)
        count += entry->d_type == DT_DIR && entry->d_name[0] != '.';
    if (entries != NULL)
        closedir(entries);
    return count;
}

/* Systems with both hierarchies look like this: the memory controller belongs to v1. */
TEST(cgroup_v2_without_a_memory_controller_is_left_alone)
{
    struct proc proc = hierarchy_make("cpu pids hugetlb\n", "");
    struct cgroup cgroup;
    CHECK(!cgroup_make(&cgroup, getpid(), proc.mountinfo, proc.membership));
    CHECK(cgroup.version == 0);
    CHECK(strstr(cgroup.reason, "no memory controller") != NULL);
    CHECK(fake_holds(&proc.fake, "mount/outer/cgroup.subtree_control", ""));
    CHECK(cgroup_remove(&cgroup, 0));
    fake_remove(&proc.fake);
}

/* Only our own cgroup has the controller. It refuses children, and no ancestor offers memory. */
TEST(cgroup_v2_whose_ancestors_have_no_memory_controller_says_so)
{
    struct proc proc = hierarchy_make("cpu pids\n", "");
    fake_write(&proc.fake, "mount/outer/own/cgroup.controllers", "cpu memory pids\n");
    struct cgroup cgroup;
    CHECK(!cgroup_make(&cgroup, getpid(), proc.mountinfo, proc.membership));
    char reason[200];
    snprintf(reason, sizeof reason, "no memory controller in %s/mount", proc.fake.path);
    CHECK(strcmp(cgroup.reason, reason) == 0);
    fake_remove(&proc.fake);
}

/* The kernel's files do not appear in a fake folder, so cgroup_make() fails. It must remove all
 * folders that it made. */
TEST(cgroup_that_cannot_be_made_leaves_nothing_behind)
{
    struct proc proc = hierarchy_make("cpu memory pids\n", "cpu\n");
    struct cgroup cgroup;
    CHECK(!cgroup_make(&cgroup, getpid(), proc.mountinfo, proc.membership));
    CHECK(cgroup.version == 0);
    CHECK(cgroup.reason[0] != '\0');
    CHECK(count_folders(&proc, "mount") == 1);
    CHECK(count_folders(&proc, "mount/outer") == 1);
    CHECK(count_folders(&proc, "mount/outer/own") == 0);
    CHECK(fake_holds(&proc.fake, "mount/outer/own/cgroup.subtree_control", "cpu\n"));
    CHECK(fake_holds(&proc.fake, "mount/outer/cgroup.subtree_control", "cpu\n"));
    fake_remove(&proc.fake);
}

/* This process seems to run in the cgroup of another cairn-launch. It must not be moved out,
 * because the other launcher measures the memory of all processes in that cgroup. */
TEST(cgroup_of_another_launcher_is_not_left)
{
    struct proc proc = hierarchy_make("memory\n", "memory\n");
    char path[200];
    snprintf(path, sizeof path, "%s/mount/outer/cairn-1-2", proc.fake.path);
    mkdir(path, 0700);
    fake_write(&proc.fake, "mount/outer/cairn-1-2/cgroup.controllers", "memory\n");
    fake_write(&proc.fake, "cgroup", "0::/outer/cairn-1-2\n");
    struct cgroup cgroup;
    CHECK(!cgroup_make(&cgroup, getpid(), proc.mountinfo, proc.membership));
    CHECK(strstr(cgroup.reason, "another cairn-launch") != NULL);
    fake_remove(&proc.fake);
}

/* Uses a real cgroup, if one can be made on this machine. */
TEST(cgroup_holds_the_process_until_it_is_removed)
{
    int go[2];
    REQUIRE(pipe(go) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        close(go[1]);
        _exit(read(go[0], &byte, 1) == 0 ? 0 : 1);
    }
    struct cgroup cgroup;
    if (cgroup_make(&cgroup, pid, "/proc/self/mountinfo", "/proc/self/cgroup")) {
        CHECK(cgroup.version == 1 || cgroup.version == 2);
        CHECK(faccessat(cgroup.folder, "memory.stat", R_OK, 0) == 0);
        CHECK(!cgroup_remove(&(struct cgroup){cgroup.version, dup(cgroup.parent),
                                              dup(cgroup.folder), "missing", "", ""},
                             0));
        close(go[1]);
        waitpid(pid, NULL, 0);
        CHECK(cgroup_remove(&cgroup, 1000000000));
    } else {
        printf("no cgroup can be made here: %s\n", cgroup.reason);
        close(go[1]);
        waitpid(pid, NULL, 0);
    }
    close(go[0]);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
