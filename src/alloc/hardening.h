/* hardening.h - which build of the allocator this is, and what the hardened one adds to a slab.
 *
 * The hardened build (libcairn-hardened) consists of the same files, compiled with CAIRN_HARDENED
 * set to 1, and of src/hardened/, which stands between the public names and this allocator. In the
 * plain build every `if (CAIRN_HARDENED)` disappears.
 *
 * In the hardened build, each block of a slab ends in a canary: a word that depends on a secret and
 * on its own address. The canary of a live block also holds the slack: the number of bytes between
 * the end of the request and the canary. The first 8 bytes of the slack hold HARDENING_FILL.
 * Always:
 *
 *     every carved block of a slab ends in a canary; that of a free block holds CANARY_FREE
 *     free memory reads as zero, except for the first 16 bytes and the canary of a carved block
 *     the byte of block_map.h of each block says whether the block is live
 *
 * So a write beyond the end of a block damages a canary, and a write to free memory leaves a byte
 * that is not zero. Both are noticed when the block is freed or handed out.
 */
#ifndef CAIRN_ALLOC_HARDENING_H
#define CAIRN_ALLOC_HARDENING_H

#include "base/base.h"

#include <stdatomic.h>

#ifndef CAIRN_HARDENED
#define CAIRN_HARDENED 0
#endif

enum {
    CANARY_BYTES = 8,

    /* The least number of bytes between the end of a request and the end of its block. They are the
     * canary, and filled bytes before it. So a write of 16 bytes behind a small block hits no other
     * block. */
    HARDENING_ZONE_BYTES = 16,
    CANARY_FREE = 0xffff, /* the slack of a block that is not live */
    HARDENING_FILL = 0xa7,
    HARDENING_CARVED_LEAST = 4, /* carved at once, for a random order */
};

/* The secrets of this process. The second one is odd. */
extern uint64_t canary_secrets[2] __attribute__((visibility("hidden")));

/* In the hardened build: the return address of the program's call that this thread serves, for the
 * report of a misuse. To save thread-local storage, the plain build uses the variable for two other
 * purposes: it holds the heap that the thread has put aside (thread_own_heap()), or counts the
 * calls of a thread that has no heap yet (thread_first()). */
extern _Thread_local const void *hardening_caller
    __attribute__((visibility("hidden"), tls_model("initial-exec")));

/* Chooses the secrets of the process, before the first block is carved. Returns slab_secret. */
uintptr_t hardening_begin(void);

/* Returns the canary of a block without slack that ends at `end`. */
static inline uint64_t canary_at(const void *end)
{
    return ((uintptr_t)end ^ canary_secrets[0]) * canary_secrets[1];
}

/* Writes the canary of the block that ends at `end`, where `of` == canary_at(end). Other threads
 * may read it meanwhile, when they free the block behind it. */
static inline void canary_write_of(void *end, uint64_t of, size_t slack)
{
    _Atomic uint64_t *canary = (_Atomic uint64_t *)end - 1;
    atomic_store_explicit(canary, of ^ slack, memory_order_relaxed);
}

static inline void canary_write(void *end, size_t slack)
{
    canary_write_of(end, canary_at(end), slack);
}

/* Returns the slack of the block that ends at `end`, where `of` == canary_at(end). The result is
 * above CANARY_FREE if the canary was overwritten. */
static inline uint64_t canary_slack_of(const void *end, uint64_t of)
{
    const _Atomic uint64_t *canary = (const _Atomic uint64_t *)end - 1;
    return atomic_load_explicit(canary, memory_order_relaxed) ^ of;
}

static inline uint64_t canary_slack(const void *end)
{
    return canary_slack_of(end, canary_at(end));
}

/* Eight and sixteen bytes at any address. */
typedef uint64_t hardening_word __attribute__((aligned(1), may_alias));
typedef uint64_t hardening_pair __attribute__((vector_size(16), aligned(1), may_alias));

/* Returns the 64 bytes at `at`, joined by OR. */
static inline hardening_pair hardening_any_of_64(const char *at)
{
    const hardening_pair *pair = (const hardening_pair *)at;
    return (pair[0] | pair[1]) | (pair[2] | pair[3]);
}

/* Returns whether `bytes` bytes, 8 or more, read as zero. Reads some of them twice, because that
 * takes fewer branches. */
static inline bool hardening_is_zero(const char *start, size_t bytes)
{
    if (bytes < 16)
        return (*(const hardening_word *)start | *(const hardening_word *)(start + bytes - 8)) == 0;
    hardening_pair any;
    if (LIKELY(bytes <= 64)) {
        const char *end = start + bytes - 16;
        size_t step = bytes > 32 ? 16 : 0;
        any = *(const hardening_pair *)start | *(const hardening_pair *)(start + step) |
              *(const hardening_pair *)(end - step) | *(const hardening_pair *)end;
    } else {
        const char *last = start + bytes - 64;
        any = hardening_any_of_64(last);
        for (const char *at = start; at < last; at += 64)
            any |= hardening_any_of_64(at);
    }
    return (any[0] | any[1]) == 0;
}

static inline void hardening_clear_64(char *at)
{
    hardening_pair *pair = (hardening_pair *)at;
    pair[0] = pair[1] = pair[2] = pair[3] = (hardening_pair){0};
}

/* Clears `bytes` bytes, 16 or more. Writes some of them twice, because that takes fewer
 * branches. */
static inline void hardening_clear(char *start, size_t bytes)
{
    if (LIKELY(bytes <= 64)) {
        char *end = start + bytes - 16;
        size_t step = bytes > 32 ? 16 : 0;
        *(hardening_pair *)start = *(hardening_pair *)(start + step) = *(hardening_pair *)end =
            *(hardening_pair *)(end - step) = (hardening_pair){0};
    } else {
        char *last = start + bytes - 64;
        for (char *at = start; at < last; at += 64)
            hardening_clear_64(at);
        hardening_clear_64(last);
    }
}

#endif
