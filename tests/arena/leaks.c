/* leaks.c - allocates blocks by malloc, to which only blocks of an arena point. With an argument
 * the program destroys the arena, which leaks the blocks of malloc. */
#include <cairn/arena.h>
#include <stdlib.h>

__attribute__((noinline)) static void fill(struct cairn_arena *arena)
{
    for (unsigned i = 0; i < 100; i++) {
        void **owner = cairn_arena_alloc(arena, 10000);
        *owner = malloc(50);
    }
}

int main(int argc, char **argv)
{
    (void)argv;
    struct cairn_arena *arena = cairn_arena_create(0);
    fill(arena);
    if (argc > 1)
        cairn_arena_destroy(arena);
}
