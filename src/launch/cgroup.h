/* cgroup.h - a cgroup of its own for one process and all that it will start, so that the kernel counts their
 * memory.
 *
 * After cgroup_make() was true, until cgroup_remove():
 *
 *     the process is in the new cgroup, or will be when it calls cgroup_join(); `folder` has its counters
 *     nothing else on the machine changed, but that subtree_control of the folder above may now have "memory"
 *
 * After it was false nothing changed at all: the process is where it was, and `reason` says why in a few
 * words.
 *
 * Moving another process costs 10 to 20 ms: the kernel waits until no CPU can still be in the middle of a
 * fork. A thread that moves itself does not wait, but only v1 has a file for that (`tasks`).
 *
 * A cgroup made here never lies outside one that another cairn-launch measures: what runs inside belongs to
 * it.
 */
#ifndef CAIRN_LAUNCH_CGROUP_H
#define CAIRN_LAUNCH_CGROUP_H

#include "base/base.h"

#include <sys/types.h>

enum { CGROUP_JOIN_BYTES = 2200 };

struct cgroup {
    unsigned version; /* 2 or 1; 0: there is none */
    int parent;       /* folder in which it was made */
    int folder;
    char name[64];
    char reason[192];             /* while there is none */
    char join[CGROUP_JOIN_BYTES]; /* v1: for cgroup_join(); empty when the process has been moved */
};

/* The kernel's own files are "/proc/self/mountinfo" and "/proc/self/cgroup"; tests give others. Version 2 is
 * tried first, then 1. Here and below: only cgroups that have a memory controller are of use. */
bool cgroup_make(struct cgroup *cgroup, pid_t pid, const char *mountinfo, const char *membership);

/* Called by a process without threads to move itself; `join` is that of the struct, or empty. */
bool cgroup_join(const char *join);

/* Kills all that is in it, also in cgroups below. False where the kernel cannot (v1, and v2 before
 * Linux 5.14). */
bool cgroup_kill(struct cgroup *cgroup);

/* Once its last process was reaped. Waits up to `patience_ns` for the kernel to let go of it. */
bool cgroup_remove(struct cgroup *cgroup, uint64_t patience_ns);

/* Where a hierarchy is mounted and where in it we are, as folders; an empty text when there is none. */
struct cgroup_place {
    char mount[2048];
    char own[2048];
};

bool cgroup_find(struct cgroup_place *place, unsigned version, const char *mountinfo,
                 const char *membership);

#endif
