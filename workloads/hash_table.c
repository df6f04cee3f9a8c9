/* Hash tables with strings as keys that fill, drain and die, as in interpreters, indexes and
 * servers. Each entry is three blocks: the entry, its key as a copied string, and its value. The
 * array of slots is one large zeroed block. If the array grows or shrinks, a new array of twice or
 * half the size exists beside the old one for a while. Setting an existing key replaces or resizes
 * its value.
 *
 * The workload tests small blocks of different lifetimes, lookups in blocks that are scattered over
 * memory, and calloc and free of large blocks between them. It says nothing about threads that
 * share a table, nor about tables with chained entries. Entries and arrays are always written in
 * full, because lookups read them; --touch affects keys and values.
 */
#include "common/dictionary.h"

#include <string.h>

static struct parameter own[] = {
    {.name = "tables", .help = "tables of each thread", .value = 24, .least = 1, .most = 65536},
    {.name = "least",
     .help = "entries of the smallest table when it is full",
     .value = 64,
     .least = 8,
     .most = 16 * MIB},
    {.name = "most",
     .help = "entries of the largest table when it is full",
     .value = 20000,
     .least = 8,
     .most = 16 * MIB},
    {.name = "value",
     .help = "bytes of the largest value; half of the values are below a quarter of it",
     .value = 256,
     .least = 1,
     .most = MIB},
    {0},
};

enum { KEY_LEAST = 6, KEY_MOST = 37, KEY_WORDS = KEY_MOST / 8 + 1, STRETCH = 16 };

struct entry {
    char *key;
    struct block value;
};

struct string_table {
    struct dictionary entries;
    /* The number of entries at which filling turns into draining. 0 before the first use. */
    uint64_t full;
    bool drains;
};

static size_t value_most;

static void prepare(void)
{
    value_most = parameter("value");
    if (parameter("most") < parameter("least"))
        workload_refuse("--most %zu is less than --least %zu", (size_t)parameter("most"),
                        (size_t)parameter("least"));
}

/* A key's length and text follow from its hash. */
static size_t key_size(uint64_t hash)
{
    return KEY_LEAST + hash % (KEY_MOST - KEY_LEAST + 1);
}

static size_t value_size(struct random *random)
{
    uint64_t part = random_below(random, 1 << 16);
    return 1 + (part * part * value_most >> 32);
}

static void entry_drop(struct worker *worker, uint64_t hash, void *item)
{
    struct entry *entry = item;
    size_t touched = touch_bytes(settings.touch, key_size(hash));
    if (touched > 0 && contents_sum(entry->key, touched) != contents_expected(touched, hash))
        worker->damaged++;
    worker_sum(worker, hash);
    worker_free(worker, entry->key, key_size(hash));
    block_drop(worker, &entry->value);
    worker_free(worker, entry, sizeof *entry);
}

static void entry_new(struct worker *worker, struct dictionary *entries, uint64_t hash,
                      const void *key)
{
    struct entry *entry = worker_malloc(worker, sizeof *entry);
    entry->key = worker_malloc(worker, key_size(hash));
    memcpy(entry->key, key, touch_bytes(settings.touch, key_size(hash)));
    entry->value = block_new(worker, value_size(&worker->random));
    dictionary_put(worker, entries, hash, entry);
}

static void entry_set(struct worker *worker, struct entry *entry, bool in_place)
{
    size_t size = value_size(&worker->random);
    if (in_place) {
        block_resize(worker, &entry->value, size);
        return;
    }
    block_drop(worker, &entry->value);
    entry->value = block_new(worker, size);
}

/* Does one operation. One operation in eight is a lookup. All other operations set a key while the
 * table fills, and remove a key while the table drains. */
static void operate(struct worker *worker, struct string_table *table)
{
    uint64_t bits = random_next(&worker->random);
    uint64_t hash = random_mix(((bits >> 32) * (table->full + table->full / 4)) >> 32);
    uint64_t key[KEY_WORDS];
    size_t touched = touch_bytes(settings.touch, key_size(hash));
    contents_write(key, 0, touched, hash);
    struct entry *entry = dictionary_find(&table->entries, hash);
    if (entry != NULL && memcmp(entry->key, key, touched) != 0)
        worker->damaged++;
    bool looks = bits % 8 == 0;
    if (looks && entry != NULL)
        block_read(worker, &entry->value);
    else if (!looks && !table->drains && entry != NULL)
        entry_set(worker, entry, bits & 8);
    else if (!looks && !table->drains)
        entry_new(worker, &table->entries, hash, key);
    else if (!looks && entry != NULL)
        entry_drop(worker, hash, dictionary_take(worker, &table->entries, hash));
}

/* Makes a full table drain. Frees a table that has drained to a quarter and starts another one in
 * its place. */
static void turn(struct worker *worker, struct string_table *table)
{
    if (table->drains && table->entries.count <= table->full / 4) {
        dictionary_drop(worker, &table->entries, entry_drop);
        table->full = 0;
    }
    if (table->full == 0) {
        table->full = size_log_uniform(&worker->random, parameter("least"), parameter("most"));
        table->drains = false;
    }
    if (table->entries.count >= table->full)
        table->drains = true;
}

static void work(struct worker *worker)
{
    uint64_t count = parameter("tables");
    struct string_table *tables = table_new(count * sizeof *tables);
    struct string_table *table = tables;
    for (uint64_t n; (n = worker_next(worker)) > 0;) {
        if (random_below(&worker->random, STRETCH) == 0)
            table = &tables[random_below(&worker->random, count)];
        turn(worker, table);
        for (; n > 0; n--)
            operate(worker, table);
    }
    for (uint64_t i = 0; i < count; i++)
        dictionary_drop(worker, &tables[i].entries, entry_drop);
    table_free(tables, count * sizeof *tables);
}

const struct workload workload = {
    .name = "hash_table",
    .title = "hash tables with strings as keys fill, drain and die: three blocks per entry, and "
             "large arrays",
    .operation = "one key looked up (one in eight), set or removed",
    .own = own,
    .operations = 6000000,
    .batch = 256,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
};
