/* accesses.c - reads and writes of free memory, reads of memory that was never written, and the
 * question whether the next address can be predicted. */
#include "misuse/scenarios.h"

#include <stdlib.h>
#include <string.h>

#define SECRET UINT64_C(0x54455243455354ee)

static void fill_with_secret(unsigned char *p, size_t size)
{
    const uint64_t word = SECRET;
    for (size_t at = 0; at + sizeof word <= size; at += sizeof word)
        memcpy(p + at, &word, sizeof word);
}

static bool has_secret(const unsigned char *p, size_t size)
{
    for (size_t at = 0; at + sizeof(uint64_t) <= size; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, p + at, sizeof word);
        if (word == SECRET)
            return true;
    }
    return false;
}

/* Attack 0 reads the block at once. Attack 1 reads it when the memory may serve another block. */
static void read_after_free(size_t size, int attack)
{
    unsigned char *p = live_take(size);
    live_unchecked(p);
    fill_with_secret(p, size);
    live_free(p);
    if (attack == 0 && has_secret(opaque(p), size))
        damage("a freed block still holds its contents");
    for (size_t i = 0; attack == 1 && i < live_many(size); i++) {
        unsigned char *q = live_take(size);
        live_unchecked(q);
        fill_with_secret(q, size);
        /* If a live block overlaps `p`, the secret there is that of the new block. */
        if (live_overlaps(p, size) && has_secret(opaque(p), size))
            damage("a pointer to a freed block reads the contents of another block");
    }
}

/* Rewrites the first two words of the freed block `p`. They are taken for a link, and the XOR of a
 * secret, the block and the link, which is the format of cairn's allocator. The attacker reads the
 * secret from the block, and also writes both words at `target`. */
static void forge(unsigned char *p, unsigned char *target)
{
    uint64_t words[2];
    memcpy(words, opaque(p), sizeof words);
    uint64_t secret = words[1] ^ words[0] ^ (uint64_t)(uintptr_t)p;
    const uint64_t link = (uint64_t)(uintptr_t)target;
    const uint64_t at_block[2] = {link, secret ^ (uint64_t)(uintptr_t)p ^ link};
    const uint64_t at_target[2] = {0, secret ^ link};
    memcpy(opaque(p), at_block, sizeof at_block);
    memcpy(target, at_target, sizeof at_target);
}

/* Two blocks are freed, and the newer one is written to. Attack 0 writes an address of the attacker
 * where many allocators keep a link. Attack 1 encodes it as glibc does, and attack 5 as cairn does.
 * The others write the address of a live block, or fill the block. */
static void write_after_free(size_t size, int attack)
{
    unsigned char *victim = live_take(size);
    unsigned char *p = live_take(size);
    unsigned char *q = live_take(size);
    uint64_t target = (uint64_t)(uintptr_t)(area_of(AREA_STATIC) + 64);
    pretend_block(area_of(AREA_STATIC) + 64, size, area_of(AREA_STATIC), AREA_BYTES);
    if (attack == 1)
        target ^= (uint64_t)(uintptr_t)p >> 12;
    if (attack == 2)
        target = (uint64_t)(uintptr_t)victim;
    live_free(q);
    live_free(p);
    if (attack == 5)
        forge(p, area_of(AREA_STATIC) + 64);
    else if (attack <= 2)
        memcpy(opaque(p), &target, sizeof target);
    else
        memset(opaque(p), attack == 3 ? 0xff : 0, size);
}

static void read_before_write(size_t size, int attack)
{
    (void)attack;
    enum { SOME = 16 };
    unsigned char *some[SOME];
    for (int i = 0; i < SOME; i++) {
        some[i] = live_take(size);
        live_unchecked(some[i]);
        fill_with_secret(some[i], size);
    }
    for (int i = 0; i < SOME; i++)
        live_free(some[i]);
    for (int i = 0; i < SOME; i++) {
        unsigned char *p = opaque(malloc(size));
        if (p != NULL && has_secret(p, size))
            damage("a new block holds the contents of a freed one");
    }
}

/* Attack 1 first frees other blocks, because an allocator may keep some freed blocks ready. */
static void predict(size_t size, int attack)
{
    enum { TRIES = 32, BEFORE = 64 };
    int same = 0;
    for (int i = 0; i < TRIES; i++) {
        unsigned char *before[BEFORE];
        for (int k = 0; attack == 1 && k < BEFORE; k++)
            before[k] = live_take(size);
        unsigned char *p = live_take(size);
        for (int k = 0; attack == 1 && k < BEFORE; k++)
            live_free(before[k]);
        live_free(p);
        unsigned char *q = live_take(size);
        same += p == q;
        live_free(q);
    }
    if (same > TRIES / 2)
        damage("the next block lies where the last one was freed");
}

const struct scenario accesses[] = {
    {"read-after-free", 2, read_after_free, "a freed block is read"},
    {"write-after-free", 6, write_after_free, "a freed block is written to"},
    {"uninitialised-read", 1, read_before_write, "a new block is read before it is written"},
    {"predictable-reuse", 2, predict, "the next block's address is predicted"},
    {NULL, 0, NULL, NULL},
};
