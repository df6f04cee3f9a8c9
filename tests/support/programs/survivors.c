/* survivors.c - allocates in ten functions. The blocks of five of them keep memory that is nearly
 * empty.
 *
 * survivors ROUNDS: each of the functions pins_0 to pins_4 is called in many rounds: pins_K in
 * ROUNDS + ROUNDS / 2 * K of them. In each round, pins_K() allocates one block, which stays until
 * the end. Then the function fills() allocates 3 pages of blocks of the same size. All blocks of
 * fills() are freed at the end.
 *
 * Blocks of the same size lie side by side under any allocator. So in the end each block of pins_K
 * is the only live one on its page. After the rounds, functions dense_0 to dense_3 allocate 2,000
 * blocks each, of other sizes, which also stay.
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

/* Defines the function pins_k. The macro ends in a declaration of it, so that a use of the macro
 * can end in a semicolon. */
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
