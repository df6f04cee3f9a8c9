/* known_lines.c - allocates on lines whose bytes and blocks follow by a formula.
 *
 * known_lines ROUNDS: in each round, the line that is marked "line K" allocates K + 1 blocks of
 * 32 * (K + 1) bytes. Line 3 is in a function that is inlined into two others. Each of these two
 * calls the function once in a round, so that line 3 allocates twice as much. The blocks of lines 0
 * and 2 stay until the end, and all others are freed. known_lines.py repeats the formula.
 */
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone))
#define INLINED  static inline __attribute__((always_inline))

static void keep(void *block)
{
    __asm__ volatile("" : : "r"(block) : "memory");
}

INLINED void *three(void)
{
    return malloc(128); /* line 3 */
}

INLINED void four_of_three(void)
{
    for (unsigned i = 0; i < 4; i++) {
        void *block = three(); /* calls line 3 */
        keep(block);
        free(block);
    }
}

NOINLINE void *several(unsigned block)
{
    void *got = NULL;
    if (block == 0)
        got = malloc(32); /* line 0 */
    else if (block == 1)
        got = calloc(2, 32); /* line 1 */
    else
        got = malloc(96); /* line 2 */
    keep(got);
    return got;
}

NOINLINE void first(void)
{
    four_of_three(); /* first */
    keep(NULL);
}

NOINLINE void second(void)
{
    four_of_three(); /* second */
    keep(NULL);
}

int main(int count, char **arguments)
{
    unsigned rounds = count > 1 ? (unsigned)strtoul(arguments[1], NULL, 10) : 1;
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned line = 0; line < 3; line++) {
            for (unsigned i = 0; i < line + 1; i++) {
                void *block = several(line);
                if (line % 2 == 1)
                    free(block);
            }
        }
        first();
        second();
    }
    return 0;
}
