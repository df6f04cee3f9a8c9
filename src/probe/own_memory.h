/* own_memory.h - the memory of the probe itself, which no figure of the program may include.
 *
 * This memory is the probe's library, the mappings that the probe made, and the mapped pieces of
 * its file. own_memory_add() announces every mapping that can become larger than a few OS pages.
 * Any thread may call any function at any time.
 */
#ifndef CAIRN_PROBE_OWN_MEMORY_H
#define CAIRN_PROBE_OWN_MEMORY_H

#include "base/base.h"

/* Resident bytes of the probe. */
struct own_memory {
    uint64_t private; /* pages that belong to no file */
    uint64_t of_file; /* pages of files */
};

/* Announces a mapping of the probe. At most 256 mappings are remembered. */
void own_memory_add(const void *start, size_t bytes);

/* Leaves out a part of the library's memory from now on. The part is never written in this process,
 * or it is counted elsewhere (watched_filter_bytes()). */
void own_memory_leave_out(const void *start, size_t bytes);

/* Forbids huge pages for the zero-initialised variables of the library (.bss), because only a part
 * of them will be touched. Called once after each exec. Does nothing if system calls are
 * forbidden. */
void own_memory_begin(void);

/* Maps and announces `bytes` of private memory filled with zeroes. Returns NULL if the kernel
 * refuses. */
void *own_memory_map(size_t bytes);

/* Like own_memory_map(), for memory of which only a part will be touched. The memory gets no huge
 * pages, because the kernel would clear each as a whole. */
void *own_memory_map_sparse(size_t bytes);

/* Returns the resident bytes of the probe. To count them takes about 20 microseconds. So the
 * function counts only if `now` is true, or if all counts together have taken less than one part in
 * 200 of the process's life, which began when clock_now_ns() was `began_ns`. Otherwise it returns
 * the last result. The result is 0 if /proc/self/pagemap cannot be read. */
struct own_memory own_memory_resident(bool now, uint64_t began_ns);

/* Sets entries of pagemap (proc_pid_pagemap(5)) to 0 if their pages belong to the probe. `entries`
 * has `count` entries. The first one is that of the page with the number `first`. */
void own_memory_clear(uint64_t *entries, uintptr_t first, size_t count);

/* Called in the child of a fork. The child has a time budget of its own for
 * own_memory_resident(). */
void own_memory_forked(void);

#endif
