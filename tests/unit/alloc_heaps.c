/* alloc_heaps.c - tests shared heaps (heaps that belong to no thread) beside running and ended
 * threads. A destroyed heap takes only its own blocks with it, and all threads take the locks in
 * the same order. */
#include "alloc/alloc.h"

#include "alloc/page_heap.h"
#include "alloc/shared_heap.h"
#include "alloc/stats.h"
#include "alloc_os.h"
#include "test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 40, BYTES = 100, FILL = 0x5a, ROUNDS = 20000 };

static unsigned char *left[MANY];

static void *leave_blocks(void *argument)
{
    for (unsigned i = 0; i < MANY; i++) {
        left[i] = alloc_malloc(BYTES);
        memset(left[i], FILL, BYTES);
    }
    return argument;
}

/* A new heap once adopted the slab that an ended thread had left, and destroyed all blocks in
 * it. */
TEST(a_heap_that_is_destroyed_takes_no_block_of_an_ended_thread_with_it)
{
    pthread_t id;
    REQUIRE(pthread_create(&id, NULL, leave_blocks, NULL) == 0 && pthread_join(id, NULL) == 0);
    struct heap *heap = shared_heap_create();
    REQUIRE(heap != NULL);
    bool zero;
    for (unsigned i = 0; i < 10 * MANY; i++)
        CHECK(shared_heap_allocate(heap, BYTES, 1, &zero) != NULL);
    shared_heap_destroy(heap);
    for (unsigned i = 0; i < 10 * MANY; i++)
        memset(alloc_malloc(BYTES), 0, BYTES);
    for (unsigned i = 0; i < MANY; i++) {
        REQUIRE(alloc_usable_size(left[i]) >= BYTES);
        CHECK(left[i][0] == FILL && left[i][BYTES - 1] == FILL);
        alloc_free(left[i]);
    }
    page_heap_check();
}

static _Atomic unsigned locked; /* how often the main thread locked all heaps */

static void *come_and_go(void *argument)
{
    for (unsigned i = 0; locked < ROUNDS; i++) {
        struct heap *heap = shared_heap_create();
        bool zero;
        if (heap == NULL || shared_heap_allocate(heap, i % 3000, 1, &zero) == NULL)
            abort();
        if (i % 2 == 0)
            shared_heap_destroy(heap);
        else
            shared_heap_release(heap);
    }
    return argument;
}

/* The thread that destroyed a heap and the thread that locked all heaps once took the same two
 * locks in opposite orders, and deadlocked. */
TEST(heaps_can_be_destroyed_while_another_thread_locks_all_heaps)
{
    pthread_t id;
    alarm(60);
    REQUIRE(pthread_create(&id, NULL, come_and_go, NULL) == 0);
    for (; locked < ROUNDS; locked++) {
        heap_lock_all();
        heap_unlock_all();
        shared_heap_check_all();
    }
    CHECK(pthread_join(id, NULL) == 0);
    alarm(0);
    page_heap_check();
}

/* The memory of a heap record may have belonged to a large block, and is then not zero. */
TEST(many_heaps_can_be_made_from_memory_that_was_used_before)
{
    static struct heap *heaps[100];
    static void *runs[400];
    for (unsigned i = 0; i < COUNT_OF(runs); i++) {
        runs[i] = alloc_malloc(SIZE_CLASS_BYTES_MAX + 1);
        REQUIRE(runs[i] != NULL);
        memset(runs[i], 0xff, SIZE_CLASS_BYTES_MAX + 1);
    }
    for (unsigned i = 0; i < COUNT_OF(runs); i++)
        alloc_free(runs[i]);
    for (unsigned i = 0; i < COUNT_OF(heaps); i++) {
        bool zero;
        heaps[i] = shared_heap_create();
        REQUIRE(heaps[i] != NULL);
        CHECK(shared_heap_allocate(heaps[i], 10 * i, 1, &zero) != NULL);
        CHECK(shared_heap_allocate(heaps[i], 100000, 1, &zero) != NULL);
    }
    shared_heap_check_all();
    for (unsigned i = 0; i < COUNT_OF(heaps); i++)
        shared_heap_destroy(heaps[i]);
    page_heap_check();
}

enum { WAITING = 3 };

static pthread_barrier_t barrier;

static void *allocate_and_wait(void *argument)
{
    void *p = alloc_malloc(BYTES);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    alloc_free(p);
    return argument;
}

/* Otherwise the threads that exist only in the parent would reduce what the child may keep. */
TEST(the_child_of_a_fork_counts_its_own_thread_and_the_shared_heaps)
{
    alloc_free(alloc_malloc(BYTES));
    uint32_t before = heaps_in_use; /* this thread's heap, and those of earlier tests */
    struct heap *shared = shared_heap_create();
    pthread_t ids[WAITING];
    REQUIRE(shared != NULL && pthread_barrier_init(&barrier, NULL, WAITING + 1) == 0);
    for (unsigned i = 0; i < WAITING; i++)
        REQUIRE(pthread_create(&ids[i], NULL, allocate_and_wait, NULL) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(heaps_in_use == before + 1 + WAITING);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0)
        _exit(heaps_in_use == before + 1 && thread_own_heap()->has_thread &&
                      thread_own_heap()->runs.most == heap_run_share()
                  ? 0
                  : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < WAITING; i++)
        pthread_join(ids[i], NULL);
    shared_heap_destroy(shared);
    CHECK(heaps_in_use == before);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
