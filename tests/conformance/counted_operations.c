/* counted_operations.c - counted_operations WHAT OF COUNT: runs COUNT operations, whose
 * instructions test_instructions.py counts with valgrind. If OF is "allocator", the operations call
 * malloc and free. If OF is "nothing", they call functions that do nothing. WHAT is
 *
 *     32, 2000, …    pairs of malloc and free of that many bytes
 *     mixed          each operation frees one of 64 blocks of 16 to 1,024 bytes and allocates
 *                    another in its place
 *     far            pairs of memalign, for 100 bytes at a multiple of 4 GiB, and free
 *     remote         the main thread frees blocks of 64 bytes that another thread allocated, while
 *                    that thread waits; if OF is "nothing", the blocks stay allocated
 */
#include "conformance.h"

#include <pthread.h>

static void *nothing_malloc(size_t bytes)
{
    (void)bytes;
    return NULL;
}

static void nothing_free(void *block)
{
    (void)block;
}

/* malloc and free, or functions that do nothing. The program calls them through pointers, so that
 * the call instruction itself costs the same in both cases. */
static void *(*volatile take)(size_t) = nothing_malloc;
static void (*volatile give)(void *) = nothing_free;

static void pairs(size_t bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        give(take(bytes));
}

static void mixed(size_t count)
{
    enum { SLOTS = 64 };
    void *slots[SLOTS] = {NULL};
    uint64_t random = 1;
    for (size_t i = 0; i < count; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        give(slots[i % SLOTS]);
        slots[i % SLOTS] = take(16 + (size_t)(random >> 33) % 1009);
    }
    for (size_t i = 0; i < SLOTS; i++)
        give(slots[i]);
}

static void far(size_t count)
{
    for (size_t i = 0; i < count; i++)
        give(take == malloc ? memalign((size_t)1 << 32, 100) : take(100));
}

static void **blocks;
static size_t blocks_count;
static pthread_barrier_t made, over;

static void *make(void *argument)
{
    for (size_t i = 0; i < blocks_count; i++)
        blocks[i] = malloc(64);
    pthread_barrier_wait(&made);
    pthread_barrier_wait(&over);
    return argument;
}

static void require(bool holds)
{
    if (!holds)
        exit(1);
}

static void remote(size_t count)
{
    pthread_t thread;
    blocks_count = count;
    blocks = calloc(count, sizeof *blocks);
    require(pthread_barrier_init(&made, NULL, 2) == 0 && pthread_barrier_init(&over, NULL, 2) == 0);
    require(blocks != NULL && pthread_create(&thread, NULL, make, NULL) == 0);
    pthread_barrier_wait(&made);
    for (size_t i = 0; i < count; i++)
        give(blocks[i]);
    pthread_barrier_wait(&over);
    require(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    require(argc == 4);
    if (strcmp(argv[2], "allocator") == 0) {
        take = malloc;
        give = free;
    }
    size_t count = strtoul(argv[3], NULL, 10);
    if (strcmp(argv[1], "mixed") == 0)
        mixed(count);
    else if (strcmp(argv[1], "far") == 0)
        far(count);
    else if (strcmp(argv[1], "remote") == 0)
        remote(count);
    else
        pairs(strtoul(argv[1], NULL, 10), count);
    return 0;
}
