/* own_memory.h - the memory of the probe itself, which no figure of the program may include.
 *
 * It is the probe's library, the mappings that the probe made, and the mapped pieces of its file.
 * Every mapping that can become larger than a few OS pages is announced by own_memory_add(). Any
 * thread may call any function at any time.
 */
#ifndef CAIRN_PROBE_OWN_MEMORY_H
#define CAIRN_PROBE_OWN_MEMORY_H

#include "base/base.h"

/* Resident bytes of the probe. */
struct own_memory {
    uint64_t private; /* memory of no file */
    uint64_t of_file; /* pages of files */
};

/* Announces a mapping of the probe. At most 256 mappings are remembered. */
void own_memory_add(const void *start, size_t bytes);

/* Leaves out a part of the library's memory: it is never written in this process, or is
 * counted elsewhere (watched_filter_bytes()). */
void own_memory_leave_out(const void *start, size_t bytes);

/* Maps and announces `bytes` of private memory filled with zeroes. Returns NULL if the kernel
 * refuses. */
void *own_memory_map(size_t bytes);

/* The same for memory of which only a part will be touched. A huge page would be cleared as a
 * whole. */
void *own_memory_map_sparse(size_t bytes);

/* Returns the resident bytes of the probe. Looking at them takes some 20 microseconds. So the
 * function looks only if `now` is true, or if all looks together have taken less than a part in 200
 * of the process's life, which began at `began_ns` of clock_now_ns(). Otherwise it returns the
 * result of the last look. The result is 0 if /proc/self/pagemap cannot be read. */
struct own_memory own_memory_resident(bool now, uint64_t began_ns);

/* Sets those of `count` entries of pagemap (proc_pid_pagemap(5)) to 0 whose pages belong to the
 * probe. The first entry is that of the page with the number `first`. */
void own_memory_clear(uint64_t *entries, uintptr_t first, size_t count);

/* Called in the child of a fork, whose life begins anew. */
void own_memory_forked(void);

#endif
