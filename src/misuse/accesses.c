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

/* Reads a freed block: attack 0 at once, attack 1 when the memory may serve another block. */
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
        /* If a live block overlaps `p`, the secret found at `p` belongs to that block. */
        if (live_overlaps(p, size) && has_secret(opaque(p), size))
            damage("a pointer to a freed block reads the contents of another block");
    }
}

/* Overwrites the first two words of the freed block `p`, so that the free list leads to `target`.
 * cairn's allocator keeps a link in the first word of a free block. The second word is the XOR of a
 * secret, the block's address and the link. The attacker computes the secret from the old words.
 * With the secret, the memory at `target` gets the two words of a free block, too. */
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
 * where many allocators keep a link. Attack 1 encodes the address as glibc encodes a link, and
 * attack 5 as cairn does. Attack 2 writes the address of a live block. Attacks 3 and 4 fill the
 * block. */
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

/* Counts how often a new block has the address of the block that was freed last. Attack 1 frees
 * other blocks before, because an allocator may keep some freed blocks ready. */
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
