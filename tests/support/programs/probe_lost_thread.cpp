/* probe_lost_thread.cpp - starts more threads than the probe's file has room for, because the size
 * of files is limited. The last thread makes pairs of new[] and delete[], and of memalign and free.
 * That thread is created when all others run, so that it has no room. Main keeps a block of 2 MiB.
 * The argument is the number of pairs of each kind.
 */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

enum { THREADS = 252 };

static pthread_barrier_t together;
static std::atomic<int> running;

static void *work(void *count)
{
    running++;
    pthread_barrier_wait(&together);
    for (long left = (long)count; left > 0; left--) {
        char *volatile array = new char[100];
        delete[] array;
        void *volatile aligned = memalign(64, 10000);
        free(aligned);
    }
    pthread_barrier_wait(&together);
    return nullptr;
}

int main(int argc, char **argv)
{
    void *volatile kept = malloc(2 << 20);
    const rlimit limit = {100 << 10, 100 << 10};
    pthread_t threads[THREADS];
    pthread_attr_t small;
    setrlimit(RLIMIT_FSIZE, &limit);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_barrier_init(&together, nullptr, THREADS);
    for (int i = 0; i < THREADS; i++) {
        while (i == THREADS - 1 && running < i)
            sched_yield();
        long count = i == THREADS - 1 && argc > 1 ? atol(argv[1]) : 0;
        if (pthread_create(&threads[i], &small, work, (void *)count) != 0)
            return 2;
    }
    for (pthread_t thread : threads)
        pthread_join(thread, nullptr);
    puts("done");
    return kept == nullptr;
}
