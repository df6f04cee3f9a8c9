/* probe_live.c - a program whose highest number of live bytes is known.
 *
 *     probe_live churn THREADS SLOTS OPERATIONS LEAST MOST
 *         Each thread keeps at most SLOTS blocks of LEAST to MOST bytes, and replaces a random one
 *         in each operation.
 *     probe_live together THREADS BYTES
 *         Each thread has a block of BYTES bytes while all the others have theirs.
 *     probe_live forms BYTES
 *         Allocates and frees blocks by each function of C and POSIX, frees blocks of other
 *         threads, and lets threads end with live blocks. At the end, blocks of BYTES bytes in
 *         total are live.
 *     probe_live fork BYTES
 *         Allocates blocks of BYTES bytes in total and forks. The child frees half of these blocks,
 *         and the parent frees all of them.
 *
 * It prints the highest number of live bytes: as requested, and as malloc_usable_size() reports.
 * The program itself adds up both sums. In "fork", parent and child each print a line.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static _Atomic long requested, usable, most_requested, most_usable;

static void raise_to(_Atomic long *most, long now)
{
    long before = atomic_load(most);
    while (now > before && !atomic_compare_exchange_weak(most, &before, now))
        ;
}

static void live(void *block, long bytes, int sign)
{
    long size = (long)malloc_usable_size(block);
    raise_to(&most_requested, atomic_fetch_add(&requested, sign * bytes) + sign * bytes);
    raise_to(&most_usable, atomic_fetch_add(&usable, sign * size) + sign * size);
}

static void *got(void *block, size_t bytes)
{
    if (block == NULL)
        abort();
    live(block, (long)bytes, 1);
    return block;
}

static void give_back(void *block, size_t bytes)
{
    live(block, (long)bytes, -1);
    free(block);
}

static void tell(const char *who)
{
    printf("%s %ld %ld\n", who, atomic_load(&most_requested), atomic_load(&most_usable));
    fflush(stdout);
}

/* --- churn ------------------------------------------------------------------------------------ */

static long slots, operations, least, most;

static void *churn(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    void **block = got(calloc((size_t)slots, sizeof *block), (size_t)slots * sizeof *block);
    size_t *bytes = got(calloc((size_t)slots, sizeof *bytes), (size_t)slots * sizeof *bytes);
    for (long i = 0; i < operations; i++) {
        seed = seed * 6364136223846793005 + 1442695040888963407;
        long slot = (long)((seed >> 33) % (uint64_t)slots);
        if (block[slot] != NULL)
            give_back(block[slot], bytes[slot]);
        seed = seed * 6364136223846793005 + 1442695040888963407;
        bytes[slot] = (size_t)(least + (long)((seed >> 33) % (uint64_t)(most - least + 1)));
        block[slot] = got(malloc(bytes[slot]), bytes[slot]);
    }
    for (long slot = 0; slot < slots; slot++)
        if (block[slot] != NULL)
            give_back(block[slot], bytes[slot]);
    give_back(block, (size_t)slots * sizeof *block);
    give_back(bytes, (size_t)slots * sizeof *bytes);
    return NULL;
}

static void run_threads(long count, void *(*run)(void *))
{
    pthread_t *threads = malloc((size_t)count * sizeof *threads);
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)(i + 1)) != 0)
            abort();
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    free(threads);
}

/* --- together --------------------------------------------------------------------------------- */

static pthread_barrier_t all_have_blocks;

static void *hold(void *argument)
{
    (void)argument;
    void *block = got(malloc((size_t)most), (size_t)most);
    pthread_barrier_wait(&all_have_blocks);
    give_back(block, (size_t)most);
    return NULL;
}

/* --- forms ------------------------------------------------------------------------------------ */

enum { ROUNDS = 20000, HANDED_OVER = 1000 };
static void *handed_over[HANDED_OVER];

static void *by_realloc(void *old, size_t was, size_t bytes)
{
    if (old != NULL)
        live(old, (long)was, -1);
    return got(realloc(old, bytes), bytes);
}

/* Allocates a block by each function and frees it again. A failed realloc leaves the block as it
 * was. */
static void *all_forms(void *nothing)
{
    for (size_t i = 0; i < ROUNDS; i++) {
        size_t bytes = 1 + i % 3000;
        void *block = by_realloc(by_realloc(NULL, 0, bytes), bytes, 2 * bytes);
        if (realloc(block, PTRDIFF_MAX) != NULL)
            abort();
        give_back(by_realloc(block, 2 * bytes, bytes / 2 + 1), bytes / 2 + 1);
        give_back(got(calloc(3, bytes), 3 * bytes), 3 * bytes);
        give_back(got(aligned_alloc(256, 512), 512), 512);
        give_back(got(memalign(64, bytes), bytes), bytes);
        if (posix_memalign(&block, 4096, bytes) != 0)
            abort();
        give_back(got(block, bytes), bytes);
        give_back(got(valloc(bytes), bytes), bytes);
        give_back(got(reallocarray(NULL, 2, bytes), 2 * bytes), 2 * bytes);
        block = got(malloc(bytes), bytes);
        live(block, (long)bytes, -1);
        if (realloc(block, 0) != NULL)
            abort();
    }
    return nothing;
}

static void *get_for_another(void *nothing)
{
    for (size_t i = 0; i < HANDED_OVER; i++)
        handed_over[i] = got(malloc(1000), 1000);
    return nothing;
}

static void *free_of_another(void *nothing)
{
    for (size_t i = 0; i < HANDED_OVER; i++)
        give_back(handed_over[i], 1000);
    return nothing;
}

/* --- fork ------------------------------------------------------------------------------------- */

enum { PIECE = 1000 };

static void **get_pieces(long bytes)
{
    size_t room = (size_t)(bytes / PIECE) * sizeof(void *);
    void **pieces = got(malloc(room), room);
    for (long i = 0; i < bytes / PIECE; i++)
        pieces[i] = got(malloc(PIECE), PIECE);
    return pieces;
}

static void free_pieces(void **pieces, long from, long to)
{
    for (long i = from; i < to; i++)
        give_back(pieces[i], PIECE);
}

int main(int count, char **arguments)
{
    const char *what = count > 2 ? arguments[1] : "";
    if (strcmp(what, "churn") == 0 && count > 6) {
        slots = atol(arguments[3]);
        operations = atol(arguments[4]);
        least = atol(arguments[5]);
        most = atol(arguments[6]);
        if (atol(arguments[2]) == 1)
            (void)churn((void *)(uintptr_t)1);
        else
            run_threads(atol(arguments[2]), churn);
        tell("churn");
    } else if (strcmp(what, "together") == 0 && count > 3) {
        most = atol(arguments[3]);
        pthread_barrier_init(&all_have_blocks, NULL, (unsigned)atol(arguments[2]));
        run_threads(atol(arguments[2]), hold);
        tell("together");
    } else if (strcmp(what, "forms") == 0) {
        run_threads(4, all_forms);
        for (int i = 0; i < 100; i++) {
            run_threads(1, get_for_another);
            run_threads(1, free_of_another);
        }
        (void)get_pieces(atol(arguments[2]));
        tell("forms");
    } else if (strcmp(what, "fork") == 0) {
        long bytes = atol(arguments[2]);
        void **pieces = get_pieces(bytes);
        pid_t child = fork();
        if (child == 0) {
            free_pieces(pieces, 0, bytes / PIECE / 2);
            tell("child");
            return 0;
        }
        waitpid(child, NULL, 0);
        free_pieces(pieces, 0, bytes / PIECE);
        tell("parent");
    } else {
        return 2;
    }
    return 0;
}
