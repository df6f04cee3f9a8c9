/* dictionary.h - a hash table in malloc's memory, as in real programs. It uses open addressing with
 * linear probing.
 *
 * The table is one array of slots from calloc. A slot holds an item and its hash. The memory of the
 * item belongs to the caller. A dictionary belongs to one worker. Always:
 *
 *     capacity == 0 (no array yet), or capacity is a power of two >= DICTIONARY_LEAST
 *     count <= 2/3 × capacity
 *     after an item was removed: count >= capacity / 8, or capacity == DICTIONARY_LEAST
 *     no slot is empty between the slot of an item's hash and the slot that holds the item
 *
 * The array doubles and halves with the number of items. While items are moved, the new array
 * exists beside the old one. No two items may have the same hash. The array is always written,
 * under every value of --touch, because lookups depend on it.
 */
#ifndef WORKLOAD_DICTIONARY_H
#define WORKLOAD_DICTIONARY_H

#include "common/workload.h"

enum { DICTIONARY_LEAST = 8 };

struct slot {
    uint64_t hash;
    void *item; /* NULL if the slot is empty */
};

/* A dictionary whose fields are all zero is empty. */
struct dictionary {
    struct slot *slots;
    uint64_t capacity;
    uint64_t count;
};

/* Returns the item with this hash, or NULL if there is none. */
void *dictionary_find(const struct dictionary *dictionary, uint64_t hash);

/* Adds an item. The dictionary must not have an item with this hash. */
void dictionary_put(struct worker *worker, struct dictionary *dictionary, uint64_t hash,
                    void *item);

/* Removes the item with this hash and returns it. Returns NULL if there is none. */
void *dictionary_take(struct worker *worker, struct dictionary *dictionary, uint64_t hash);

/* Calls drop() for every item and frees the array. The order of the calls depends on the hashes and
 * on earlier calls, never on addresses. If `drop` is NULL, only the array is freed. */
void dictionary_drop(struct worker *worker, struct dictionary *dictionary,
                     void (*drop)(struct worker *worker, uint64_t hash, void *item));

#endif
