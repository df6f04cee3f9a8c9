/* A cache with a byte budget that evicts the least recently used entry, like web proxies, memcached
 * and the page caches of databases. The cache is a doubly linked list and a hash table. An entry
 * and its value are two blocks. Objects have the sizes of a fleet (see distribution.h), and an
 * object changes its size when it is fetched again. So a miss frees blocks of other sizes than it
 * needs. Memory is full, and the age of a block hardly correlates with its size. The popularity of
 * an object falls with its rank r as r^-0.75. Breslau et al., "Web caching and Zipf-like
 * distributions" (INFOCOM 1999), found exponents from 0.64 to 0.83.
 *
 * The workload says nothing about growth or idleness, nor about threads that share a cache, because
 * each thread has its own cache. Entries and table are always written in full, because lookups read
 * them; --touch affects values.
 */
#include "common/dictionary.h"

static struct parameter own[] = {
    {.name = "bytes",
     .help = "budget of values and entries, over all threads",
     .value = 32 * MIB,
     .least = 1,
     .most = GIB << 10},
    {.name = "keys",
     .help = "number of different objects for each thread",
     .value = 1000000,
     .least = 1,
     .most = GIB},
    {0},
};

enum { SETS_ONE_IN = 16 };

struct entry {
    uint64_t hash;
    struct entry *newer;
    struct entry *older;
    struct block value;
};

struct cache {
    struct worker *worker;
    struct dictionary entries;
    struct entry *newest;
    struct entry *oldest;
    uint64_t bytes;
    uint64_t budget;
    uint64_t hits;
};

static atomic_uint_fast64_t hits;
static atomic_uint_fast64_t entries_at_end;

static void list_push(struct cache *cache, struct entry *entry)
{
    entry->newer = NULL;
    entry->older = cache->newest;
    if (cache->newest != NULL)
        cache->newest->newer = entry;
    else
        cache->oldest = entry;
    cache->newest = entry;
}

static void list_remove(struct cache *cache, struct entry *entry)
{
    if (entry->newer != NULL)
        entry->newer->older = entry->older;
    else
        cache->newest = entry->older;
    if (entry->older != NULL)
        entry->older->newer = entry->newer;
    else
        cache->oldest = entry->newer;
}

static void evict(struct cache *cache, struct entry *entry)
{
    list_remove(cache, entry);
    if (dictionary_take(cache->worker, &cache->entries, entry->hash) != entry)
        workload_fail("an entry of the list is not in the table");
    cache->bytes -= sizeof *entry + entry->value.size;
    block_drop(cache->worker, &entry->value);
    worker_free(cache->worker, entry, sizeof *entry);
}

static void fetch(struct cache *cache, uint64_t hash)
{
    struct entry *entry;
    size_t size = size_of_fleet(&cache->worker->random);
    uint64_t bytes = sizeof *entry + size;
    while (cache->oldest != NULL && cache->bytes + bytes > cache->budget)
        evict(cache, cache->oldest);
    entry = worker_malloc(cache->worker, sizeof *entry);
    entry->hash = hash;
    entry->value = block_new(cache->worker, size);
    list_push(cache, entry);
    dictionary_put(cache->worker, &cache->entries, hash, entry);
    cache->bytes += bytes;
}

/* Looks up a random object. Its rank r is `keys` × u^4 for a uniform u. The density of this r falls
 * as r^-0.75. Sometimes a new version of the object replaces the old one. */
static void look_up(struct cache *cache, double keys)
{
    struct random *random = &cache->worker->random;
    double u = random_unit(random);
    uint64_t hash = random_mix((uint64_t)(keys * u * u * u * u));
    struct entry *entry = dictionary_find(&cache->entries, hash);
    if (entry != NULL && random_below(random, SETS_ONE_IN) > 0) {
        list_remove(cache, entry);
        list_push(cache, entry);
        block_read(cache->worker, &entry->value);
        cache->hits++;
        return;
    }
    if (entry != NULL)
        evict(cache, entry);
    fetch(cache, hash);
}

static void work(struct worker *worker)
{
    double keys = (double)parameter("keys");
    struct cache cache = {.worker = worker, .budget = parameter("bytes") / settings.threads};
    for (uint64_t n; (n = worker_next(worker)) > 0;)
        for (; n > 0; n--)
            look_up(&cache, keys);
    atomic_fetch_add(&hits, cache.hits);
    atomic_fetch_add(&entries_at_end, cache.entries.count);
    while (cache.oldest != NULL)
        evict(&cache, cache.oldest);
    dictionary_drop(worker, &cache.entries, NULL);
}

static void conclude(void)
{
    workload_figure("hits", (double)atomic_load(&hits));
    workload_figure("entries_at_end", (double)atomic_load(&entries_at_end));
}

const struct workload workload = {
    .name = "lru_cache",
    .title =
        "a cache of a fixed budget: hits move to the front, misses evict the oldest and allocate",
    .operation = "one lookup; a miss evicts entries until there is room and stores a new entry",
    .own = own,
    .operations = 4000000,
    .batch = 256,
    .threads = 1,
    .threads_least = 1,
    .work = work,
    .conclude = conclude,
};
