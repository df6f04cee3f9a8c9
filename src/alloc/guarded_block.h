/* guarded_block.h - places one in N small blocks on an OS page of its own, between two guards.
 * CAIRN_GUARDED=N turns this on, in the plain build and in the hardened one.
 *
 * The method is that of GWP-ASan (Serebryany and others, "GWP-ASan: Sampling-Based Detection of
 * Memory-Safety Bugs in Production", 2023): it is cheap enough for programs in production, and many
 * executions together find the bugs that a test would find. An access beyond the page, or to a
 * block that was freed, is a segmentation fault. Its report names the block, and the stacks of its
 * allocation and of its free. After the report, the handler that was there before guarded_begin(),
 * or the kernel, deals with the fault. A program that installs a handler of its own later gets no
 * report of faults.
 *
 * There are GUARDED_BLOCKS pages. If all are in use, no block is guarded. A page that was freed is
 * used again as late as possible. The block lies at the end of its page or at its start, at random.
 * Always:
 *
 *     a page without a live block is a guard (os_guard())
 *     the bytes of the page outside a live block hold HARDENING_FILL
 *
 * Before guarded_begin(), a call costs nothing: the fast paths do not know of guarded blocks, and a
 * slow path reads one variable. Afterwards, the lists of a heap keep no freed blocks (`warm` in
 * heap.h) and get at most N blocks, so that each list is soon empty. Malloc then takes its slow
 * path, which decides whether the next block is guarded. In the hardened build, every call decides,
 * because each one goes through its checks.
 *
 * Any thread may call any function. The lock of this module is taken after any other.
 */
#ifndef CAIRN_ALLOC_GUARDED_BLOCK_H
#define CAIRN_ALLOC_GUARDED_BLOCK_H

#include "alloc/emergency.h"

#include <stdatomic.h>

enum { GUARDED_BLOCKS = 256, GUARDED_FRAMES = 16 };

/* The N of CAIRN_GUARDED=N; 0 if no block is guarded. */
extern uint32_t guarded_every __attribute__((visibility("hidden")));

static inline bool guarded_is_on(void)
{
    return UNLIKELY(guarded_every != 0);
}

/* The range of the guarded blocks; empty before guarded_begin(). */
extern uintptr_t guarded_start __attribute__((visibility("hidden")));
extern size_t guarded_bytes __attribute__((visibility("hidden")));

/* Returns whether `p` is an address in the range. */
static inline bool guarded_has(const void *p)
{
    return (uintptr_t)p - guarded_start < guarded_bytes;
}

/* From now on, one in `every` blocks is guarded. Called before the program has a second thread.
 * Does nothing if there is no memory. Calls guarded_prepare_stacks(), unless libc is not yet
 * initialised. */
void guarded_begin(uint32_t every);

/* Called when the library that contains this allocator is closed. If the handler of SIGSEGV is
 * still that of guarded_begin(), restores the handler from before guarded_begin(). If the library
 * of that handler was closed, sets the default action. */
void guarded_end(void);

/* Reads one stack, because the first reading may load a library. Stacks are read from then on.
 * Called before main, when libc is initialised. Does nothing if no block is guarded. */
void guarded_prepare_stacks(void);

/* Counts `count` calls of malloc for blocks of a class, guarded blocks included. */
void guarded_count(unsigned class, uint32_t count);

/* Returns a guarded block, as guarded_allocate() does, if enough calls were counted for the class
 * since its last guarded block. Returns NULL otherwise. */
void *guarded_next(unsigned class, size_t size);

/* Returns a guarded block that reads as zero. Returns NULL if the size is 0 or above an OS page, if
 * no page is free, or if the stack cannot be read now. If `size` is a multiple of an alignment, the
 * block is aligned to it. */
void *guarded_allocate(size_t size);

/* Frees a block. Ends the program if `p` is not a live block, or if something was written beside
 * the block. */
void guarded_free(void *p);

/* Returns the requested bytes of a live block, after the checks of guarded_free(). */
size_t guarded_size(const void *p);

/* Returns the requested bytes of a guarded block or a block of emergency.h. */
static inline size_t guarded_or_emergency_bytes(const void *p)
{
    return guarded_has(p) ? guarded_size(p) : emergency_bytes(p);
}

/* Frees a guarded block or a block of emergency.h. */
static inline void guarded_or_emergency_free(void *p)
{
    if (guarded_has(p))
        guarded_free(p);
    else
        emergency_free(p);
}

/* For fork: nothing changes between the two calls. */
void guarded_lock(void);
void guarded_unlock(void);
bool guarded_has_taken_lock(void);

#endif
