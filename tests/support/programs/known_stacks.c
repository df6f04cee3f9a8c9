/* known_stacks.c - allocates in functions whose bytes and blocks follow by a formula.
 *
 * known_stacks ROUNDS: in each round, function known_K (K from 0 to 31) allocates K % 4 + 1 blocks
 * of 24 * (K + 1) bytes. In every fourth round these blocks stay until the end. In all other rounds
 * they are freed: immediately if K is even, and at the end of the round if K is odd. The function
 * one() calls known_0, known_8, known_16 and known_24. The function other() calls the rest.
 * known_stacks.py repeats the formula.
 */
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))

enum { FUNCTIONS = 32, BLOCKS = 4 };

static void *waiting[FUNCTIONS * BLOCKS];
static unsigned waiting_count;

static NOINLINE void keep(void *block)
{
    __asm__ volatile("" : : "r"(block) : "memory");
}

/* Defines the function known_k. The asm statement at its end contains k, so that the compiler
 * cannot merge two functions with equal code. */
#define FUNCTION(k)                                                                                \
    NOINLINE void known_##k(unsigned round)                                                        \
    {                                                                                              \
        for (unsigned i = 0; i < (k) % BLOCKS + 1; i++) {                                          \
            void *block = malloc(24 * ((k) + 1));                                                  \
            keep(block);                                                                           \
            if (round % 4 == 0)                                                                    \
                continue;                                                                          \
            if ((k) % 2 == 0)                                                                      \
                free(block);                                                                       \
            else                                                                                   \
                waiting[waiting_count++] = block;                                                  \
        }                                                                                          \
        __asm__ volatile("" : : "i"(k));                                                           \
    }
#define EIGHT(a, b, c, d, e, f, g, h)                                                              \
    FUNCTION(a) FUNCTION(b) FUNCTION(c) FUNCTION(d) FUNCTION(e) FUNCTION(f) FUNCTION(g) FUNCTION(h)
EIGHT(0, 1, 2, 3, 4, 5, 6, 7)
EIGHT(8, 9, 10, 11, 12, 13, 14, 15)
EIGHT(16, 17, 18, 19, 20, 21, 22, 23)
EIGHT(24, 25, 26, 27, 28, 29, 30, 31)

NOINLINE void one(unsigned round)
{
    known_0(round);
    known_8(round);
    known_16(round);
    known_24(round);
    keep(NULL);
}

#define SEVEN(a, b, c, d, e, f, g)                                                                 \
    known_##a(round), known_##b(round), known_##c(round), known_##d(round), known_##e(round),      \
        known_##f(round), known_##g(round)
NOINLINE void other(unsigned round)
{
    SEVEN(1, 2, 3, 4, 5, 6, 7);
    SEVEN(9, 10, 11, 12, 13, 14, 15);
    SEVEN(17, 18, 19, 20, 21, 22, 23);
    SEVEN(25, 26, 27, 28, 29, 30, 31);
    keep(NULL);
}

int main(int count, char **arguments)
{
    unsigned rounds = count > 1 ? (unsigned)strtoul(arguments[1], NULL, 10) : 1;
    for (unsigned round = 0; round < rounds; round++) {
        one(round);
        other(round);
        while (waiting_count > 0)
            free(waiting[--waiting_count]);
    }
    return 0;
}
