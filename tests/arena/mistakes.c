/* mistakes.c - a program that makes the mistake named by its argument. The arena's checks or the
 * address sanitizer must find the mistake. */
#include <cairn/arena.h>
#include <string.h>

static volatile char seen;

int main(int argc, char **argv)
{
    const char *mistake = argc > 1 ? argv[1] : "none";
    struct cairn_arena *arena = cairn_arena_create(0);
    struct cairn_arena_point early = cairn_arena_mark(arena);
    volatile char *kept = cairn_arena_alloc(arena, 100);
    struct cairn_arena_point late = cairn_arena_mark(arena);
    volatile char *block = cairn_arena_alloc(arena, 100000);
    block[99999] = kept[99] = 'x';
    struct cairn_pool *pool = cairn_pool_create(40, 8);
    struct cairn_pool *shared =
        cairn_pool_create_with(&(struct cairn_pool_options){.object_bytes = 40, .shared = true});
    volatile char *object = cairn_pool_alloc(pool);
    volatile char *common = cairn_pool_alloc(shared);
    object[39] = common[39] = 'x';

    if (strcmp(mistake, "read-after-reset") == 0) {
        cairn_arena_reset(arena);
        seen = kept[50];
    } else if (strcmp(mistake, "write-after-rewind") == 0) {
        cairn_arena_rewind(arena, late);
        block[50000] = 'y';
    } else if (strcmp(mistake, "read-past-the-end") == 0) {
        seen = kept[100];
    } else if (strcmp(mistake, "read-after-giving-back") == 0) {
        cairn_pool_free(pool, (void *)object);
        seen = object[39];
    } else if (strcmp(mistake, "write-after-giving-back-to-a-shared-pool") == 0) {
        cairn_pool_free(shared, (void *)common);
        common[20] = 'y';
    } else if (strcmp(mistake, "write-the-first-word-after-giving-back") == 0) {
        cairn_pool_free(pool, (void *)object);
        *(void *volatile *)object = NULL;
        cairn_pool_alloc(pool);
    } else if (strcmp(mistake, "rewind-twice") == 0) {
        cairn_arena_rewind(arena, early);
        cairn_arena_alloc(arena, 5000);
        cairn_arena_rewind(arena, late);
    } else if (strcmp(mistake, "give-back-twice") == 0) {
        cairn_pool_free(pool, (void *)object);
        cairn_pool_free(pool, (void *)object);
    } else {
        cairn_arena_rewind(arena, late);
        seen = kept[99];
        cairn_pool_free(pool, (void *)object);
        cairn_pool_free(shared, (void *)common);
    }
    cairn_pool_destroy(shared);
    cairn_pool_destroy(pool);
    cairn_arena_destroy(arena);
}
