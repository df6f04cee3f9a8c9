#include "common/dictionary.h"

#include <stdlib.h>

static struct slot *slots_new(struct worker *worker, uint64_t capacity)
{
    struct slot *slots = calloc(capacity, sizeof *slots);
    if (slots == NULL)
        workload_fail("calloc of %zu bytes failed: out of memory", capacity * sizeof *slots);
    if ((uintptr_t)slots % 16 != 0)
        workload_fail("calloc of %zu bytes returned %p, which is not aligned to 16",
                      capacity * sizeof *slots, (void *)slots);
    worker_account(worker, (int64_t)(capacity * sizeof *slots));
    return slots;
}

/* Returns the slot that has this hash. If there is none, returns the empty slot where an item with
 * this hash belongs. */
static struct slot *slot_of(const struct dictionary *dictionary, uint64_t hash)
{
    uint64_t mask = dictionary->capacity - 1;
    for (uint64_t i = 0; i <= mask; i++) {
        struct slot *slot = &dictionary->slots[(hash + i) & mask];
        if (slot->item == NULL || slot->hash == hash)
            return slot;
    }
    workload_fail("a hash table is full of items that were never added");
}

/* Moves all items to a new array of `capacity` slots. Exits with an error if their number is
 * wrong. */
static void resize(struct worker *worker, struct dictionary *dictionary, uint64_t capacity)
{
    struct dictionary before = *dictionary;
    dictionary->slots = slots_new(worker, capacity);
    dictionary->capacity = capacity;
    uint64_t moved = 0;
    for (uint64_t i = 0; i < before.capacity; i++) {
        if (before.slots[i].item == NULL)
            continue;
        *slot_of(dictionary, before.slots[i].hash) = before.slots[i];
        moved++;
    }
    /* The counts differ if the allocator handed out the memory of the array twice, or if calloc's
     * memory was not zero. */
    if (moved != before.count)
        workload_fail("a hash table has %zu items, but %zu were added", (size_t)moved,
                      (size_t)before.count);
    worker_free(worker, before.slots, before.capacity * sizeof *before.slots);
}

void *dictionary_find(const struct dictionary *dictionary, uint64_t hash)
{
    return dictionary->count > 0 ? slot_of(dictionary, hash)->item : NULL;
}

void dictionary_put(struct worker *worker, struct dictionary *dictionary, uint64_t hash, void *item)
{
    if (3 * (dictionary->count + 1) > 2 * dictionary->capacity)
        resize(worker, dictionary,
               dictionary->capacity > 0 ? 2 * dictionary->capacity : DICTIONARY_LEAST);
    *slot_of(dictionary, hash) = (struct slot){hash, item};
    dictionary->count++;
}

/* Fills the empty slot `hole`. Looks at the items after the hole, up to the next empty slot. Moves
 * an item into the hole if the hole is nearer to the slot of the item's hash, which leaves a new
 * hole. */
static void close_hole(struct dictionary *dictionary, uint64_t hole)
{
    uint64_t mask = dictionary->capacity - 1;
    struct slot *slots = dictionary->slots;
    for (uint64_t i = (hole + 1) & mask; slots[i].item != NULL; i = (i + 1) & mask) {
        /* distance of the item from the slot of its hash */
        uint64_t distance = (i - slots[i].hash) & mask;
        if (distance >= ((i - hole) & mask)) {
            slots[hole] = slots[i];
            hole = i;
        }
        slots[hole].item = NULL;
    }
}

void *dictionary_take(struct worker *worker, struct dictionary *dictionary, uint64_t hash)
{
    if (dictionary->count == 0)
        return NULL;
    struct slot *slot = slot_of(dictionary, hash);
    void *item = slot->item;
    if (item == NULL)
        return NULL;
    slot->item = NULL;
    close_hole(dictionary, (uint64_t)(slot - dictionary->slots));
    dictionary->count--;
    if (dictionary->count < dictionary->capacity / 8 && dictionary->capacity > DICTIONARY_LEAST)
        resize(worker, dictionary, dictionary->capacity / 2);
    return item;
}

void dictionary_drop(struct worker *worker, struct dictionary *dictionary,
                     void (*drop)(struct worker *worker, uint64_t hash, void *item))
{
    uint64_t seen = 0;
    for (uint64_t i = 0; i < dictionary->capacity; i++) {
        struct slot *slot = &dictionary->slots[i];
        if (slot->item == NULL)
            continue;
        if (++seen > dictionary->count)
            break;
        if (drop != NULL)
            drop(worker, slot->hash, slot->item);
    }
    if (seen != dictionary->count)
        workload_fail("a hash table has more or fewer items than were added");
    worker_free(worker, dictionary->slots, dictionary->capacity * sizeof *dictionary->slots);
    *dictionary = (struct dictionary){0};
}
