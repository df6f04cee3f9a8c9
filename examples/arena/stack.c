/* An arena on the stack: it makes no system call, and no call of malloc, while its blocks fit. */
#include <cairn/arena.h>
#include <stdio.h>

static unsigned count_primes(unsigned below)
{
    char memory[4096];
    struct cairn_arena *arena = cairn_arena_create_with(
        &(struct cairn_arena_options){.memory = memory, .memory_bytes = sizeof memory});
    unsigned char *crossed = cairn_arena_alloc_zeroed(arena, below, 1);
    unsigned count = 0;
    for (unsigned n = 2; crossed != NULL && n < below; n++) {
        count += !crossed[n];
        for (unsigned multiple = 2 * n; multiple < below; multiple += n)
            crossed[multiple] = 1;
    }
    cairn_arena_destroy(arena);
    return count;
}

int main(void)
{
    printf("%u primes below 1000, %u below 100000\n", count_primes(1000), count_primes(100000));
}
