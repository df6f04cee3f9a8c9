/* probe_small_stacks.c BYTES [first] - starts 200 fibres on stacks of BYTES bytes each, which
 * allocate, resize and free between switches. Without "first" the stacks come from malloc. With
 * "first" they are static memory, so that the program's first malloc, calloc, realloc and free
 * happen on such a small stack.
 *
 * probe_small_stacks.c depth - makes each kind of call 3,000 times, and prints the largest number
 * of bytes that it took of the stack. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { FIBRES = 200, SWITCHES = 50, LARGEST = 16384, CALLS = 3000, FILLING = 0xa5 };

static ucontext_t scheduler, fibres[FIBRES];
static char stacks[FIBRES][LARGEST] __attribute__((aligned(64)));
static int finished;

static void work(int number)
{
    for (int i = 0; i < SWITCHES; i++) {
        char *block = malloc(64 + (size_t)number * 13 + (size_t)i);
        memset(block, number, 64);
        free(malloc(200000));
        free(calloc(3, 50));
        block = realloc(block, 3000);
        free(block);
        swapcontext(&fibres[number], &scheduler);
    }
    finished++;
}

static void start(int number, char *stack, size_t bytes, void (*run)(int))
{
    getcontext(&fibres[number]);
    fibres[number].uc_stack.ss_sp = stack;
    fibres[number].uc_stack.ss_size = bytes;
    fibres[number].uc_link = &scheduler;
    makecontext(&fibres[number], (void (*)(void))run, 1, number);
}

static int switch_often(size_t bytes, int first)
{
    for (int i = 0; i < FIBRES; i++)
        start(i, first ? stacks[i] : malloc(bytes), bytes, work);
    for (int k = 0; k <= SWITCHES; k++)
        for (int i = 0; i < FIBRES; i++)
            swapcontext(&scheduler, &fibres[i]);
    printf("%d fibres finished\n", finished);
    return finished != FIBRES;
}

/* --- depth ------------------------------------------------------------------------------------ */

static void *kept;

static void call_nothing(void)
{
}

static void call_malloc(void)
{
    kept = malloc(100);
}

static void call_free(void)
{
    free(kept);
    kept = NULL;
}

static void call_large(void)
{
    kept = malloc(300000);
}

static void call_calloc(void)
{
    kept = calloc(7, 9);
}

static void call_realloc(void)
{
    kept = realloc(kept, 700);
}

static void call_aligned(void)
{
    if (posix_memalign(&kept, 256, 100) != 0)
        abort();
}

static void call_usable_size(void)
{
    if (malloc_usable_size(kept) == 1)
        abort();
}

static const struct {
    const char *name;
    void (*call)(void);
} kinds[] = {
    {"nothing", call_nothing}, {"malloc", call_malloc},
    {"realloc", call_realloc}, {"malloc_usable_size", call_usable_size},
    {"free", call_free},       {"large", call_large},
    {"large free", call_free}, {"calloc", call_calloc},
    {"free", call_free},       {"aligned", call_aligned},
    {"free", call_free},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void call_kind(int kind)
{
    kinds[kind].call();
}

/* Runs one call on a stack of its own, and returns how many of the stack's bytes it wrote. */
static size_t depth_of(int kind)
{
    memset(stacks[kind], FILLING, LARGEST);
    start(kind, stacks[kind], LARGEST, call_kind);
    swapcontext(&scheduler, &fibres[kind]);
    size_t untouched = 0;
    while (untouched < LARGEST && (unsigned char)stacks[kind][untouched] == FILLING)
        untouched++;
    return LARGEST - untouched;
}

static int print_depths(void)
{
    size_t most[KINDS] = {0};
    for (int i = 0; i < CALLS; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            size_t depth = depth_of(kind);
            most[kind] = depth > most[kind] ? depth : most[kind];
        }
    for (int kind = 0; kind < KINDS; kind++)
        printf("%s=%zu\n", kinds[kind].name, most[kind]);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    if (strcmp(argv[1], "depth") == 0)
        return print_depths();
    return switch_often((size_t)atol(argv[1]), argc > 2);
}
