/* trim.h - asks the allocator to give idle memory back to the kernel, when Cairn requests it.
 *
 * 'cairn soak' wants to know at the end of a run whether memory that the allocator holds is idle.
 * It sends SIGSYS with the value KERNEL_CALLS_REQUEST to the process (kernel_calls.h). The thread
 * that gets the signal adds a moment to the file (session.h), calls one function of the allocator,
 * counts this call as a call of malloc_trim(), and adds another moment. It calls the first of these
 * functions that the library of malloc has:
 *
 *     mi_collect(true)                       mimalloc
 *     mallctl("arena.4096.purge", …)         jemalloc: the memory of all arenas
 *     MallocExtension_ReleaseFreeMemory()    gperftools
 *     malloc_trim(0)                         glibc, libcairn
 *
 * Nothing happens if the thread is inside the allocator, in a function that inspects the heap, in
 * fork() or in another signal handler on the probe's stack, if there is no such function, or if the
 * program has signal stacks of its own. Cairn sees from the count whether the call was
 * made, and asks again if it was not.
 */
#ifndef CAIRN_PROBE_TRIM_H
#define CAIRN_PROBE_TRIM_H

/* Looks for the functions if CAIRN_PROBE_TRIM is "on". Called before main, after next_found(). */
void trim_begin(void);

#endif
