/* survivors.c - allocates in ten functions, and the blocks of five of them keep memory that is
 * nearly empty.
 *
 * survivors ROUNDS: function pins_K of 0 to 4 has ROUNDS + ROUNDS / 2 * K rounds. In each round, it
 * allocates one block, which stays. Then fills allocates as many blocks of the same size as have
 * the bytes of 3 pages. All these are freed at the end.
 * Blocks of the same size lie side by side under any allocator. So each block of pins_K is the only
 * live one on its page. After the rounds, functions dense_0 to dense_3 allocate 2,000 blocks each,
 * of other sizes, which stay.
 */
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone))

enum { PINS = 5, PAGE_BYTES = 4096, DENSE = 2000 };
static const size_t sizes[PINS] = {32, 48, 64, 96, 112};

static void **filling;
static size_t filling_count;
static void *volatile kept;

static NOINLINE void *keep(void *block, int number)
{
    kept = block;
    *(volatile char *)block = (char)number;
    return block;
}

/* The declaration at the end makes each use a statement with a semicolon. */
#define PIN(k)                                                                                     \
    NOINLINE void pins_##k(void)                                                                   \
    {                                                                                              \
        keep(malloc(sizes[k]), k);                                                                 \
    }                                                                                              \
    void pins_##k(void)
PIN(0);
PIN(1);
PIN(2);
PIN(3);
PIN(4);

NOINLINE void fills(size_t bytes)
{
    for (size_t i = 0; i < 3 * PAGE_BYTES / bytes; i++)
        filling[filling_count++] = keep(malloc(bytes), 9);
}

#define KEEP(k)                                                                                    \
    NOINLINE void dense_##k(void)                                                                  \
    {                                                                                              \
        for (int i = 0; i < DENSE; i++)                                                            \
            keep(malloc(512 + 256 * (k)), k);                                                      \
    }                                                                                              \
    void dense_##k(void)
KEEP(0);
KEEP(1);
KEEP(2);
KEEP(3);

static void (*const pins[PINS])(void) = {pins_0, pins_1, pins_2, pins_3, pins_4};

int main(int count, char **arguments)
{
    unsigned rounds = count > 1 ? (unsigned)strtoul(arguments[1], NULL, 10) : 1;
    filling = malloc((size_t)rounds * 2000 * sizeof *filling);
    if (filling == NULL)
        return 1;
    for (unsigned k = 0; k < PINS; k++)
        for (unsigned round = 0; round < rounds + rounds / 2 * k; round++) {
            pins[k]();
            fills(sizes[k]);
        }
    dense_0();
    dense_1();
    dense_2();
    dense_3();
    while (filling_count > 0)
        free(filling[--filling_count]);
    free(filling);
    return 0;
}
