#include <cairn/arena.h>
#include <stdio.h>

int main(void)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    char *greeting = cairn_arena_strdup(arena, "no free() in sight");
    int *squares = cairn_arena_alloc_array(arena, 1000, sizeof *squares);
    for (int i = 0; i < 1000; i++)
        squares[i] = i * i;
    printf("%s, %d\n", greeting, squares[999]);
    cairn_arena_destroy(arena);
}
