/* one_set_malloc.c - places blocks of 4 to 64 KiB at distances that are multiples of $ILL bytes.
 * ILL is a multiple of 4,096, so the same part of each block lies in the same set of the L1 cache.
 * Freed blocks are reused at once.
 *
 * The allocator's own work is that of a healthy one. If Cairn compares the two, it must say that
 * the program itself runs slower because its large blocks collide in a few cache sets.
 */
#include "ill.h" /* of cairn/bench/ill */

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

enum { PIECE = 64 << 20, PIECES_MAX = 64, PAGE = 4096, LEAST = 4096, MOST = 64 << 10 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *pieces[PIECES_MAX];
/* For each page of a piece: the size in pages of the block that begins there. */
static unsigned char rooms[PIECES_MAX][PIECE / PAGE];
static void *free_blocks[MOST / PAGE + 1];
static size_t piece_count, left;

/* Returns the entry of `rooms` that holds the block's size, or NULL for a block of another
 * allocator. */
static unsigned char *room_place(const char *block)
{
    for (size_t i = 0; i < piece_count; i++)
        if (block >= pieces[i] && block < pieces[i] + PIECE)
            return &rooms[i][(block - pieces[i]) / PAGE];
    return NULL;
}

static char *cut(size_t pages)
{
    size_t each = (pages * PAGE + ill_strength - 1) / ill_strength * ill_strength;
    if (left < each) {
        if (piece_count == PIECES_MAX)
            return NULL;
        char *at = mmap(NULL, PIECE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            return NULL;
        pieces[piece_count++] = at;
        left = PIECE;
    }
    char *block = pieces[piece_count - 1] + PIECE - left;
    left -= each;
    *room_place(block) = (unsigned char)pages;
    return block;
}

static void *serve(size_t bytes)
{
    if (bytes < LEAST || bytes > MOST)
        return NULL;
    size_t pages = (bytes + PAGE - 1) / PAGE;
    pthread_mutex_lock(&lock);
    void *block = free_blocks[pages];
    if (block != NULL)
        free_blocks[pages] = *(void **)block;
    else
        block = cut(pages);
    pthread_mutex_unlock(&lock);
    return block;
}

static size_t room_of(void *block)
{
    const unsigned char *pages = room_place(block);
    return pages != NULL ? (size_t)*pages * PAGE : 0;
}

static void take(void *block)
{
    pthread_mutex_lock(&lock);
    size_t pages = *room_place(block);
    *(void **)block = free_blocks[pages];
    free_blocks[pages] = block;
    pthread_mutex_unlock(&lock);
}

#include "serving.h"
