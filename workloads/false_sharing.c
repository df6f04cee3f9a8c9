/* False sharing: threads write small objects of their own again and again. If the allocator put
 * objects of two threads into one cache line, every write takes this line from the other processor.
 * The workload has two kinds of false sharing.
 *
 * Active: each thread allocates its objects itself. Objects of two threads share a line only if the
 * allocator places them so. Passive: the first thread allocates adjacent objects and gives them to
 * all threads, and each thread frees the objects that it got. If the allocator then gives each
 * thread the memory of the objects that the thread freed, the threads share lines again. The terms
 * are from Berger et al., "Hoard: a scalable memory allocator for multithreaded applications"
 * (ASPLOS 2000).
 *
 * The workload measures the writes. --touch header writes the first 8 bytes of an object, and
 * --touch none writes nothing. The time shows sharing only if the threads run on several processors
 * at once. The figures count the shared lines by the addresses of the objects, which does not
 * depend on where the threads run. The workload says nothing about the speed of malloc.
 */
#include "common/workload.h"

#include <stdlib.h>

enum kind { KIND_ACTIVE, KIND_PASSIVE };
enum { OBJECTS_MOST = 64, LINE_BYTES = 64 };

static struct parameter own[] = {
    {.name = "kind",
     .help = "kind of false sharing",
     .value = KIND_PASSIVE,
     .choices = "active|passive"},
    {.name = "objects",
     .help = "objects that each thread holds at once",
     .value = 8,
     .least = 1,
     .most = OBJECTS_MOST},
    {.name = "size", .help = "bytes of an object", .value = 8, .least = 8, .most = 4096},
    {.name = "writes",
     .help = "writes to every word of an object while it is alive",
     .value = 1000,
     .least = 1,
     .most = 1000000000},
    {0},
};

static enum kind kind;
static unsigned objects;
static size_t size;
static uint64_t writes;
static uint64_t words; /* words of an object that are written */

/* An object of the first round, and the thread that owns the object. Thread i has `objects` places,
 * the first of which is i × objects. In the passive kind, the places first hold the objects that
 * worker 0 gives away: the object in place j goes to thread j % threads, so that neighbours go to
 * different threads. */
struct place {
    uint64_t *object;
    unsigned thread;
};
static struct place *places;

static size_t places_bytes(void)
{
    return (size_t)settings.threads * objects * sizeof *places;
}

static void prepare(void)
{
    kind = (enum kind)parameter("kind");
    objects = (unsigned)parameter("objects");
    size = parameter("size");
    writes = parameter("writes");
    words = touch_bytes(settings.touch, size) / 8;
    places = table_new(places_bytes());
}

/* Worker 0 allocates objects for all threads. Each thread frees its share of these objects. */
static void hand_round(struct worker *worker)
{
    if (worker->index == 0)
        for (unsigned i = 0; i < settings.threads * objects; i++)
            places[i].object = worker_malloc(worker, size);
    workers_meet();
    for (unsigned i = 0; i < objects; i++)
        worker_free(worker, places[i * settings.threads + worker->index].object, size);
    workers_meet(); /* the places are used for other objects after this */
}

static void allocate(struct worker *worker, uint64_t **held)
{
    for (unsigned i = 0; i < objects; i++) {
        held[i] = worker_malloc(worker, size);
        for (uint64_t word = 0; word < words; word++)
            held[i][word] = worker->serial;
    }
}

static void write_all(uint64_t **held)
{
    for (uint64_t n = 0; n < writes; n++)
        for (unsigned i = 0; i < objects; i++)
            for (uint64_t word = 0; word < words; word++)
                /* volatile, so that every write reaches the cache */
                ++*(volatile uint64_t *)&held[i][word];
}

static void release(struct worker *worker, uint64_t **held)
{
    for (unsigned i = 0; i < objects; i++) {
        bool whole = true;
        for (uint64_t word = 0; word < words; word++)
            whole = whole && held[i][word] == worker->serial + writes;
        if (!whole)
            worker->damaged++;
        worker_sum(worker, words > 0 ? held[i][0] : worker->serial);
        worker_free(worker, held[i], size);
    }
    worker->serial++;
}

static void work(struct worker *worker)
{
    uint64_t *held[OBJECTS_MOST];
    if (kind == KIND_PASSIVE)
        hand_round(worker);
    bool first = true;
    for (uint64_t n; (n = worker_next(worker)) > 0;) {
        for (; n > 0; n--) {
            allocate(worker, held);
            if (first) {
                for (unsigned i = 0; i < objects; i++)
                    places[worker->index * objects + i] = (struct place){held[i], worker->index};
                /* All objects exist now, so that their cache lines can be compared. */
                workers_meet();
                first = false;
            }
            write_all(held);
            release(worker, held);
        }
    }
}

static int by_address(const void *a, const void *b)
{
    uintptr_t left = (uintptr_t)((const struct place *)a)->object;
    uintptr_t right = (uintptr_t)((const struct place *)b)->object;
    return (left > right) - (left < right);
}

static bool share_line(const struct place *low, const struct place *high)
{
    uintptr_t low_last = (uintptr_t)low->object + size - 1;
    return low->thread != high->thread &&
           low_last / LINE_BYTES == (uintptr_t)high->object / LINE_BYTES;
}

/* Counts the objects of the first round that share a line with an adjacent object of another
 * thread. */
static void conclude(void)
{
    unsigned count = settings.threads * objects;
    unsigned sharing = 0;
    qsort(places, count, sizeof *places, by_address);
    for (unsigned i = 0; i < count; i++)
        sharing += (i > 0 && share_line(&places[i - 1], &places[i])) ||
                   (i + 1 < count && share_line(&places[i], &places[i + 1]));
    workload_figure("objects", count);
    workload_figure("objects_sharing_a_line", sharing);
    table_free(places, places_bytes());
}

const struct workload workload = {
    .name = "false_sharing",
    .title = "threads write small objects of their own, which may share cache lines",
    .operation =
        "one round: --objects allocated, each of their words written --writes times, freed",
    .own = own,
    .operations = 100000,
    .batch = 10,
    .threads = 2,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
    .conclude = conclude,
};
