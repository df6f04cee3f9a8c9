/* slots.h - an allocator for blocks of up to SERVED_MAX bytes, which replaces the next allocator in
 * illnesses that choose the place of each block. A block has 16 bytes before it for records.
 *
 * The file that includes this header defines three hooks, which are called under the lock of this
 * header. slot_find() returns a free slot for a size class, or NULL to cut a new one. slot_cut()
 * returns a new slot, or NULL if there is no memory. slot_free() takes a slot back.
 */
#ifndef ILL_SLOTS_H
#define ILL_SLOTS_H

#include "ill.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

#ifndef SERVED_MAX
#define SERVED_MAX 1024
#endif

enum { PIECE = 64 << 20, PIECES_MAX = 64 };

struct slot { /* lies before every block */
    struct slot *next;
    size_t room;
};

static struct slot *slot_find(size_t room);
static struct slot *slot_cut(size_t room);
static void slot_free(struct slot *slot);

static pthread_mutex_t slot_lock = PTHREAD_MUTEX_INITIALIZER;
static char *pieces[PIECES_MAX];
static _Atomic size_t piece_count;

static int is_slot(const char *at)
{
    for (size_t i = 0; i < piece_count; i++)
        if (at >= pieces[i] && at < pieces[i] + PIECE)
            return 1;
    return 0;
}

/* Maps a piece. Returns NULL if there is no memory, or if there are too many pieces. */
static char *slot_piece(void)
{
    if (piece_count == PIECES_MAX)
        return NULL;
    char *at = mmap(NULL, PIECE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    pieces[piece_count] = at;
    piece_count++;
    return at;
}

static void *serve(size_t bytes)
{
    if (bytes > SERVED_MAX)
        return NULL;
    size_t room = bytes == 0 ? 16 : (bytes + 15) & ~(size_t)15;
    pthread_mutex_lock(&slot_lock);
    struct slot *slot = slot_find(room);
    if (slot == NULL && (slot = slot_cut(room)) != NULL)
        slot->room = room;
    pthread_mutex_unlock(&slot_lock);
    return slot == NULL ? NULL : slot + 1;
}

static size_t room_of(void *block)
{
    return is_slot(block) ? ((struct slot *)block - 1)->room : 0;
}

static void take(void *block)
{
    pthread_mutex_lock(&slot_lock);
    slot_free((struct slot *)block - 1);
    pthread_mutex_unlock(&slot_lock);
}

#include "serving.h"

#endif
