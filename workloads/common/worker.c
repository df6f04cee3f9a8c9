#include "common/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static struct worker *workers;
static pthread_barrier_t meeting;
static uint64_t deadline_at;
static atomic_uint_fast64_t idle_ns;
static atomic_int_fast64_t live_bytes; /* sum of the workers' flushed live bytes */
static atomic_int_fast64_t live_peak_bytes;

uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void *table_new(size_t bytes)
{
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        workload_fail("cannot map %zu bytes for the workload's own table: %s", bytes,
                      strerror(errno));
    return table;
}

void table_free(void *table, size_t bytes)
{
    munmap(table, bytes);
}

/* Adds this worker's live bytes to the sum over all workers and updates the peak. */
static void flush_live(struct worker *worker)
{
    int64_t before = atomic_fetch_add_explicit(&live_bytes, worker->live, memory_order_relaxed);
    int64_t peak = before + worker->live_most;
    int64_t seen = atomic_load_explicit(&live_peak_bytes, memory_order_relaxed);
    while (peak > seen &&
           !atomic_compare_exchange_weak_explicit(&live_peak_bytes, &seen, peak,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    worker->live = 0;
    worker->live_most = 0;
}

void worker_begin(struct worker *worker)
{
    worker->lap_at = clock_ns();
}

void worker_end(struct worker *worker, uint64_t operations)
{
    uint64_t now = clock_ns();
    if (operations > 0)
        recorder_add(&worker->recorder, now - worker->lap_at, operations);
    worker->done += operations;
    worker->lap_at = now;
    flush_live(worker);
}

bool worker_goes_on(const struct worker *worker)
{
    if (settings.seconds_ns > 0)
        return worker->done == 0 || clock_ns() < deadline_at;
    return worker->done < worker->share;
}

uint64_t worker_next(struct worker *worker)
{
    if (worker->lap_operations > 0)
        worker_end(worker, worker->lap_operations);
    else
        worker_begin(worker);
    worker->lap_operations = 0;
    bool over = settings.seconds_ns > 0 && worker->done > 0 && worker->lap_at >= deadline_at;
    if (!over && worker->done < worker->share) {
        uint64_t left = worker->share - worker->done;
        worker->lap_operations = left < workload.batch ? left : workload.batch;
    }
    return worker->lap_operations;
}

/* Counts the time since `began` as idle time, because the caller slept or measured memory during
 * it. */
static void set_apart(uint64_t began)
{
    atomic_fetch_add_explicit(&idle_ns, clock_ns() - began, memory_order_relaxed);
}

void workload_sleep(uint64_t ns)
{
    uint64_t began = clock_ns();
    struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    while (nanosleep(&left, &left) != 0) {
    }
    set_apart(began);
}

void workers_meet(void)
{
    if (settings.threads > 1)
        pthread_barrier_wait(&meeting);
}

struct thread {
    pthread_t id;
    void *(*body)(void *);
    void *argument;
};

static void *thread_body(void *argument)
{
    struct thread *thread = argument;
    return thread->body(thread->argument);
}

struct thread *thread_start(void *(*body)(void *argument), void *argument, size_t stack_bytes)
{
    struct thread *thread = table_new(sizeof *thread);
    thread->body = body;
    thread->argument = argument;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack_bytes > 0)
        pthread_attr_setstacksize(&attributes, stack_bytes);
    int problem = pthread_create(&thread->id, &attributes, thread_body, thread);
    pthread_attr_destroy(&attributes);
    if (problem != 0)
        workload_fail("cannot start a thread: %s", strerror(problem));
    return thread;
}

void thread_join(struct thread *thread)
{
    pthread_join(thread->id, NULL);
    table_free(thread, sizeof *thread);
}

static uint64_t minor_faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_minflt;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    workers_meet();
    workload.work(worker);
    flush_live(worker);
    return NULL;
}

void workers_run(struct outcome *outcome)
{
    unsigned threads = settings.threads;
    workers = table_new(threads * sizeof *workers);
    for (unsigned i = 0; i < threads; i++) {
        struct worker *worker = &workers[i];
        worker->index = i;
        worker->random = random_of(settings.seed, i);
        worker->serial = (uint32_t)random_mix(settings.seed + i);
        worker->share = settings.seconds_ns > 0
                            ? UINT64_MAX
                            : settings.operations / threads + (i < settings.operations % threads);
    }
    if (threads > 1)
        pthread_barrier_init(&meeting, NULL, threads);
    struct thread *started[threads]; /* started[0] is unused */
    for (unsigned i = 1; i < threads; i++)
        started[i] = thread_start(work, &workers[i], 0);
    uint64_t faults = minor_faults();
    uint64_t began = clock_ns();
    deadline_at = began + settings.seconds_ns;
    work(&workers[0]);
    for (unsigned i = 1; i < threads; i++)
        thread_join(started[i]);
    uint64_t wall = clock_ns() - began;
    outcome->minor_faults = minor_faults() - faults;
    outcome->idle_ns = atomic_load(&idle_ns);
    outcome->busy_ns = wall > outcome->idle_ns ? wall - outcome->idle_ns : 0;
    for (unsigned i = 0; i < threads; i++) {
        recorder_merge(&outcome->recorder, &workers[i].recorder);
        outcome->checksum += workers[i].checksum;
        outcome->damaged += workers[i].damaged;
    }
    outcome->live_peak_bytes = (uint64_t)atomic_load(&live_peak_bytes);
    if (threads > 1)
        pthread_barrier_destroy(&meeting);
    table_free(workers, threads * sizeof *workers);
}

/* Returns the number after `name` in the text of smaps_rollup, converted from KiB to bytes. */
static uint64_t figure_of(const char *text, const char *name)
{
    const char *line = strstr(text, name);
    return line != NULL ? strtoull(line + strlen(name), NULL, 10) * KIB : 0;
}

uint64_t resident_bytes(uint64_t *lazy_bytes)
{
    /* The kernel walks all page tables for this file, so the time is counted as idle. */
    uint64_t began = clock_ns();
    /* stdio is not used, because its allocation could make an idle allocator return memory. */
    char text[4096];
    *lazy_bytes = 0;
    int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    set_apart(began);
    *lazy_bytes = figure_of(text, "LazyFree:");
    return figure_of(text, "Rss:");
}
