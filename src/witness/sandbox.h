/* sandbox.h - notices that the process forbids itself system calls, by a filter (seccomp(2)).
 *
 * A filter may kill the process for a system call that the program itself never makes. So the
 * witness makes none for itself once a filter is installed. The library interposes prctl() and
 * syscall(), by which programs install filters. Always:
 *
 *     sandbox_filters <= sandbox_steps
 *     a refused filter, such as that of a program that asks whether the kernel has filters, changes
 *     neither
 *
 * A forked child inherits filters, and with its memory also both variables. A vfork child shares
 * them with its parent, so the parent of a vfork child with a filter records no more than the
 * child. A filter that the program installs by a system call instruction of its own is not noticed,
 * nor one that an earlier program of the process installed before its exec.
 */
#ifndef CAIRN_WITNESS_SANDBOX_H
#define CAIRN_WITNESS_SANDBOX_H

#include "base/base.h"

/* The number of filters that the process has installed or is about to install. Several threads may
 * install filters at the same time. */
extern _Atomic unsigned sandbox_filters __attribute__((visibility("hidden")));

/* These filters, and how often the process has given up new privileges (PR_SET_NO_NEW_PRIVS). It
 * must do so before it installs a filter, unless it has the rights of root. */
extern _Atomic unsigned sandbox_steps __attribute__((visibility("hidden")));

/* Finds the real function with dlsym, which takes the loader's lock. The constructor calls this, so
 * that later no interposed function takes this lock in a forked child. */
void sandbox_prepare(void);

#endif
