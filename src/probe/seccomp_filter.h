/* seccomp_filter.h - tells whether a filter of system calls (seccomp(2)) permits a call.
 *
 * A filter is a program of classic BPF. It reads a struct seccomp_data, the number of the call and
 * its arguments, and returns an action. All jumps lead forward, so every filter ends.
 */
#ifndef CAIRN_PROBE_SECCOMP_FILTER_H
#define CAIRN_PROBE_SECCOMP_FILTER_H

#include "base/base.h"

#include <linux/seccomp.h>

struct sock_fprog;

/* Returns true if the filter permits the call in `data`. Returns false if the filter cannot be read
 * or is not valid. `filter` may be a wrong address, as in a program that only asks whether the
 * kernel has filters. */
bool seccomp_filter_permits(const struct sock_fprog *filter, const struct seccomp_data *data);

#endif
