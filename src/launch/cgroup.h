/* cgroup.h - creates a cgroup for one process and its descendants, so that the kernel counts their
 * memory.
 *
 * launch.c calls these functions from its only thread. cgroup_join() is the exception: the child
 * calls it before exec.
 *
 * From the moment cgroup_make() returned true until cgroup_remove():
 *
 *     v2: the process is in the new cgroup; v1: the process enters the new cgroup when it calls
 *     cgroup_join()
 *     `folder` is the new cgroup's folder, which has the memory counters
 *     the only other change on the machine is that the parent's cgroup.subtree_control may now
 *     contain "memory" (v2)
 *
 * If cgroup_make() returned false, the process is still in its old cgroup, the machine is
 * unchanged, and `reason` explains the failure in a few words.
 *
 * Moving another process costs 10 to 20 ms, because the kernel waits until no CPU is in the middle
 * of a fork. A thread that moves itself does not wait, but only v1 has a file for that (`tasks`).
 *
 * If cairn-launch itself runs in the cgroup of another cairn-launch, the new cgroup is created
 * inside the outer one, so that the outer one counts these processes too.
 */
#ifndef CAIRN_LAUNCH_CGROUP_H
#define CAIRN_LAUNCH_CGROUP_H

#include "base/base.h"

#include <sys/types.h>

enum { CGROUP_JOIN_BYTES = 2200 };

struct cgroup {
    unsigned version; /* 2 or 1; 0 if there is no cgroup */
    int parent;       /* descriptor of the parent cgroup's folder */
    int folder;
    char name[64];
    char reason[192]; /* why there is no cgroup */
    /* v1: path of the `tasks` file, for cgroup_join(). v2: empty, because the process was already
     * moved. */
    char join[CGROUP_JOIN_BYTES];
};

/* Creates a cgroup with a memory controller for process `pid`. Tries version 2 first, then version
 * 1. `mountinfo` and `membership` are the paths of the kernel's files /proc/self/mountinfo and
 * /proc/self/cgroup; tests pass other files. */
bool cgroup_make(struct cgroup *cgroup, pid_t pid, const char *mountinfo, const char *membership);

/* Like cgroup_make(), but the cgroup has version 2 and no memory controller. */
bool cgroup_make_without_memory(struct cgroup *cgroup, pid_t pid, const char *mountinfo,
                                const char *membership);

/* Moves the calling process into the cgroup. The process must have only one thread. `join` is the
 * field of struct cgroup. If `join` is empty, the function does nothing and returns true. Returns
 * false with errno set if the move fails. */
bool cgroup_join(const char *join);

/* Kills every process in the cgroup and in the cgroups below it. Returns false if the kernel cannot
 * do this: v1 cannot, and v2 can since Linux 5.14. */
bool cgroup_kill(struct cgroup *cgroup);

/* Removes the cgroup. Call it after the last process of the cgroup was reaped. The kernel may still
 * use the cgroup then, so the function waits up to `patience_ns`. Returns false with errno set if
 * the cgroup is still there. */
bool cgroup_remove(struct cgroup *cgroup, uint64_t patience_ns);

/* Two folders of a cgroup hierarchy: the mount point of the hierarchy and the cgroup of the calling
 * process. Both are empty strings if there is no such hierarchy. */
struct cgroup_place {
    char mount[2048];
    char own[2048];
};

/* Finds the hierarchy of the given version. A v1 hierarchy without the memory controller is
 * ignored. Returns false if there is no such hierarchy, or if the caller's cgroup is not visible in
 * it. */
bool cgroup_find(struct cgroup_place *place, unsigned version, const char *mountinfo,
                 const char *membership);

#endif
