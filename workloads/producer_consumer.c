/* Producers and consumers: some threads allocate and fill messages of mixed sizes and pass them
 * through bounded queues to other threads. These read and free the messages, as in a server whose
 * stages have threads of their own. Every free is remote, and no consumer ever allocates. The
 * allocator must return the memory to the producers. Otherwise memory grows with the number of
 * messages ever sent, not with the number of messages in the queues.
 *
 * The workload tests the path of remote frees and says nothing about frees by the owner. The queues
 * are in the workload's own tables. Messages are put and taken in parcels, and a sleeping thread is
 * woken only when its queue is half full (a consumer) or half empty (a producer). So locks cost
 * only a few ns per message, and the time is mostly that of the allocator.
 */
#include "common/doublings.h"
#include "common/workload.h"

#include <pthread.h>

/* Number of messages that are put or taken at once. A queue has room for at least two parcels. */
enum { PARCEL = 32 };

static struct parameter own[] = {
    {.name = "consumers",
     .help = "threads that consume; all others produce; 0: half of the threads",
     .value = 0,
     .most = 1023},
    {.name = "queues",
     .help = "number of queues; 0: one for each pair of threads",
     .value = 0,
     .most = 512},
    {.name = "depth",
     .help = "messages that one queue has room for",
     .value = 4096,
     .least = 2 * PARCEL,
     .most = MIB},
    {.name = "least",
     .help = "bytes of the smallest message",
     .value = 16,
     .least = 1,
     .most = MIB},
    {.name = "most",
     .help = "bytes of the largest message",
     .value = 2048,
     .least = 1,
     .most = MIB},
    {0},
};

static unsigned producers;
static unsigned queue_count;
static uint64_t depth;
static struct doublings sizes;

/* Threads change the fields, and the `count` messages from `first` on, only while they hold
 * `lock`. */
struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;  /* signalled if the queue is half full, or closed */
    pthread_cond_t emptied; /* signalled if the queue is half empty */
    unsigned open;          /* producers that may still put messages */
    uint64_t first;
    uint64_t count;
    struct block messages[];
};
static struct queue *queues[512];

static size_t queue_bytes(void)
{
    return sizeof(struct queue) + depth * sizeof(struct block);
}

static void prepare(void)
{
    size_t least = parameter("least");
    size_t most = parameter("most");
    if (most < least)
        workload_refuse("--most %zu is less than --least %zu", most, least);
    sizes = doublings_of(least, most);
    depth = parameter("depth");
    unsigned consumers = (unsigned)parameter("consumers");
    if (consumers == 0)
        consumers = settings.threads / 2;
    if (consumers >= settings.threads)
        workload_refuse("--consumers %u of %u threads leave no producer", consumers,
                        settings.threads);
    producers = settings.threads - consumers;
    unsigned pairs = producers < consumers ? producers : consumers;
    queue_count = (unsigned)parameter("queues");
    if (queue_count == 0)
        queue_count = pairs;
    if (queue_count > pairs)
        workload_refuse("--queues %u is too many for %u producers and %u consumers", queue_count,
                        producers, consumers);
    for (unsigned i = 0; i < queue_count; i++) {
        queues[i] = table_new(queue_bytes());
        pthread_mutex_init(&queues[i]->lock, NULL);
        pthread_cond_init(&queues[i]->filled, NULL);
        pthread_cond_init(&queues[i]->emptied, NULL);
        queues[i]->open = producers / queue_count + (i < producers % queue_count);
    }
}

static void queue_put(struct queue *queue, const struct block *parcel, unsigned count)
{
    pthread_mutex_lock(&queue->lock);
    while (depth - queue->count < count)
        pthread_cond_wait(&queue->emptied, &queue->lock);
    uint64_t place = (queue->first + queue->count) % depth;
    for (unsigned i = 0; i < count; i++) {
        queue->messages[place] = parcel[i];
        place = place + 1 < depth ? place + 1 : 0;
    }
    queue->count += count;
    /* The consumers never stay asleep while a producer waits. A producer waits only if the queue
     * has no room for a parcel. The queue is then at least half full, because it has room for at
     * least two parcels. So the put that filled it has woken a consumer. */
    if (queue->count >= depth / 2)
        pthread_cond_signal(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
}

/* Called by a producer that puts no more messages. */
static void queue_close(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    if (--queue->open == 0)
        pthread_cond_broadcast(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
}

/* Takes up to PARCEL messages and returns their number. Waits while the queue is empty. Returns 0
 * if the queue is empty and no producer will put more messages. */
static unsigned queue_take(struct queue *queue, struct block *parcel)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->count == 0 && queue->open > 0)
        pthread_cond_wait(&queue->filled, &queue->lock);
    unsigned count = queue->count < PARCEL ? (unsigned)queue->count : PARCEL;
    for (unsigned i = 0; i < count; i++) {
        parcel[i] = queue->messages[queue->first];
        queue->first = queue->first + 1 < depth ? queue->first + 1 : 0;
    }
    queue->count -= count;
    if (queue->count <= depth / 2)
        pthread_cond_broadcast(&queue->emptied);
    pthread_mutex_unlock(&queue->lock);
    return count;
}

static void produce(struct worker *worker, struct queue *queue)
{
    if (settings.seconds_ns == 0)
        worker->share =
            settings.operations / producers + (worker->index < settings.operations % producers);
    struct block parcel[PARCEL];
    unsigned count = 0;
    for (uint64_t n; (n = worker_next(worker)) > 0;) {
        for (; n > 0; n--) {
            parcel[count++] = block_new(worker, size_of_doublings(&worker->random, &sizes));
            if (count == PARCEL) {
                queue_put(queue, parcel, count);
                count = 0;
            }
        }
    }
    queue_put(queue, parcel, count);
    queue_close(queue);
}

static void consume(struct worker *worker, struct queue *queue)
{
    struct block parcel[PARCEL];
    for (unsigned count; (count = queue_take(queue, parcel)) > 0;) {
        for (unsigned i = 0; i < count; i++)
            block_drop(worker, &parcel[i]);
        worker_end(worker, 0); /* updates the live bytes */
    }
}

static void work(struct worker *worker)
{
    if (worker->index < producers)
        produce(worker, queues[worker->index % queue_count]);
    else
        consume(worker, queues[(worker->index - producers) % queue_count]);
}

static void conclude(void)
{
    for (unsigned i = 0; i < queue_count; i++) {
        pthread_mutex_destroy(&queues[i]->lock);
        pthread_cond_destroy(&queues[i]->filled);
        pthread_cond_destroy(&queues[i]->emptied);
        table_free(queues[i], queue_bytes());
    }
}

const struct workload workload = {
    .name = "producer_consumer",
    .title = "threads allocate messages, other threads read and free them",
    .operation = "one message allocated, filled, passed on, read and freed; the time is that of "
                 "the producers, which wait when a queue is full",
    .own = own,
    .operations = 6000000,
    .batch = 8 * PARCEL,
    .threads = 2,
    .threads_least = 2,
    .prepare = prepare,
    .work = work,
    .conclude = conclude,
};
