/* dictionary.h - a hash table in malloc's memory, as programs have it: open addressing with linear probing.
 *
 * One array of slots from calloc, each the hash and the item, whose block is the caller's. Always:
 *
 *     capacity is 0 (no array yet) or a power of two, at least DICTIONARY_LEAST
 *     count <= 2/3 capacity; after an item was taken out also count >= capacity / 8, but for the least capacity
 *     an item lies in the first slot from that of its hash on that was free: no slot between is empty
 *
 * so the array doubles and halves with what is in it, the new one beside the old. The caller's hashes are one to one: no
 * two items share one. The array is structure and always written, whatever --touch says.
 */
#ifndef WORKLOAD_DICTIONARY_H
#define WORKLOAD_DICTIONARY_H

#include "common/workload.h"

enum { DICTIONARY_LEAST = 8 };

struct slot {
    uint64_t hash;
    void *item; /* NULL when the slot is empty */
};

/* All zero: an empty one. */
struct dictionary {
    struct slot *slots;
    uint64_t capacity;
    uint64_t count;
};

/* The item with this hash; NULL when there is none. */
void *dictionary_find(const struct dictionary *dictionary, uint64_t hash);

/* Puts in an item whose hash is not there yet. */
void dictionary_put(struct worker *worker, struct dictionary *dictionary, uint64_t hash,
                    void *item);

/* Takes out the item with this hash, and returns it; NULL when there is none. */
void *dictionary_take(struct worker *worker, struct dictionary *dictionary, uint64_t hash);

/* Calls drop() for every item, in an order that hashes and history decide, never addresses, and frees the array. With
 * `drop` NULL the items are left alone. */
void dictionary_drop(struct worker *worker, struct dictionary *dictionary,
                     void (*drop)(struct worker *worker, uint64_t hash, void *item));

#endif
