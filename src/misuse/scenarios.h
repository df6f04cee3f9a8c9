/* scenarios.h - the misuses. Each is a function that does the misuse once, and returns if the
 * process is still alive and no damage was shown.
 *
 * A scenario has one or more attacks: ways to do the same misuse, for example with other bytes. The
 * attacker knows addresses, and the formats of glibc's headers and links and of cairn's links. A
 * secret of the allocator is known only if the attack has read it. */
#ifndef CAIRN_MISUSE_SCENARIOS_H
#define CAIRN_MISUSE_SCENARIOS_H

#include "misuse/live.h"

struct scenario {
    const char *name;
    int attacks;
    void (*run)(size_t size, int attack);
    const char *title; /* a noun phrase */
};

/* Each table ends with an entry whose name is NULL. */
extern const struct scenario frees[];
extern const struct scenario overruns[];
extern const struct scenario accesses[];

/* Runs `run(argument)` in the second thread, and waits until it has returned. */
void in_thread(void (*run)(void *), void *argument);

/* Returns the memory of an attacker: an area that live_foreign() knows. */
enum area_kind { AREA_STACK, AREA_STATIC, AREA_MAPPED };
enum { AREA_BYTES = 512 * 1024 };
unsigned char *area_of(enum area_kind kind);

/* Writes what glibc would write before and behind a block at `p`, as far as that lies within the
 * `size` bytes at `start`. */
void pretend_block(unsigned char *p, size_t block_size, unsigned char *start, size_t size);

/* Returns the size of glibc's chunk for a block. */
static inline uint64_t chunk_bytes(size_t size)
{
    return (size + 23) & ~(uint64_t)15;
}

#endif
