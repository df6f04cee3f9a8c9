/* live.h - the live blocks of the program, and the damage that can be shown on them.
 *
 * A block is live from live_take() or live_adopt() until live_free() or live_forget(). The table of
 * live blocks lies outside malloc's memory. Between calls, always:
 *
 *     no two live blocks overlap, and none overlaps an area of live_foreign()
 *     the first and the last EDGE bytes of a live block hold the pattern of the block,
 *         unless live_unchecked() was called for the block
 *
 * A function that finds one of these broken prints "exploitable" and how, and ends the process:
 * the program has then shown the damage. Only one thread calls the functions here.
 */
#ifndef CAIRN_MISUSE_LIVE_H
#define CAIRN_MISUSE_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns `p`. The compiler knows nothing about the result: neither that it came from malloc, nor
 * that it was freed. */
static inline void *opaque(void *p)
{
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

/* Prints the verdict "exploitable" and ends the process. `how` is a clause. */
_Noreturn void damage(const char *how);

/* Prints the verdict "refused": the call with the wrong pointer failed as the standards say. Ends
 * the process. */
_Noreturn void refused(void);

/* Ends the process because the case could not be set up. */
_Noreturn void impossible(const char *why);

/* From now on, malloc must not return memory of this area, which belongs to the program. */
void live_foreign(const void *start, size_t size);

/* Allocates a block and fills it with a pattern of its own. */
unsigned char *live_take(size_t size);

/* Makes `p`, which is not NULL, a live block of `size` bytes, and fills it like live_take(). */
void live_adopt(unsigned char *p, size_t size);

/* Frees a live block, whose contents must be unchanged. */
void live_free(unsigned char *p);

/* Removes a block from the table. The caller frees the block itself. */
void live_forget(const unsigned char *p);

/* From now on, the contents of the block are not checked. */
void live_unchecked(const unsigned char *p);

/* Returns whether a live block overlaps the `size` bytes at `p`. */
bool live_overlaps(const unsigned char *p, size_t size);

/* Returns the live block of `size` bytes that has another one closest behind it (`behind` true) or
 * before it, and stores that other block in `*other`. If several blocks are equally close, it
 * returns the one with the lowest address, or with the highest if `behind` is false. A long overrun
 * then stays within the heap. */
unsigned char *live_pair(size_t size, bool behind, unsigned char **other);

/* Returns the end of the live block with the highest address. */
unsigned char *live_highest(size_t size);

/* Checks the contents of all live blocks. */
void live_check(void);

/* Returns how many blocks of a size the program must allocate to use up those that an allocator
 * keeps ready. */
size_t live_many(size_t size);

/* Lets the program go on after the misuse. Three times, it allocates blocks of the size and of
 * related sizes, checks them, and frees them. */
void live_go_on(size_t size);

#endif
