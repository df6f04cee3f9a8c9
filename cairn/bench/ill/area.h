/* area.h - an allocator for blocks of up to 1 KiB, which replaces the next allocator in illnesses
 * that must place blocks themselves. The blocks come from extents. $ILL percent of the bytes of
 * each extent are never used for blocks.
 *
 * The file that includes this header defines two things. area_extent_bytes is the size of an
 * extent, a power of two. area.h calls area_begin_extent() for each extent before its first block,
 * with the extent's start and the number of bytes that are used for blocks.
 */
#ifndef ILL_AREA_H
#define ILL_AREA_H

#include "ill.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

enum { PIECE = 64 << 20, SERVED_MAX = 1024, PIECES_MAX = 1024 };

static const size_t area_extent_bytes;
static void area_begin_extent(char *start, size_t given_bytes);

struct header { /* lies before every block */
    struct header *next;
    size_t room;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct header *free_lists[SERVED_MAX / 16 + 1];
static char *pieces[PIECES_MAX];
static _Atomic size_t piece_count;
static size_t used = PIECE; /* bytes used of the last piece */

static int is_own(const char *at)
{
    for (size_t i = 0; i < piece_count; i++)
        if (at >= pieces[i] && at < pieces[i] + PIECE)
            return 1;
    return 0;
}

static int has_piece(void)
{
    if (used < PIECE)
        return 1;
    if (piece_count == PIECES_MAX)
        return 0;
    char *at = mmap(NULL, PIECE + area_extent_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return 0;
    pieces[piece_count++] =
        at + (area_extent_bytes - (uintptr_t)at % area_extent_bytes) % area_extent_bytes;
    used = 0;
    return 1;
}

static struct header *cut(size_t room)
{
    size_t given_bytes = area_extent_bytes / 100 * (100 - ill_strength);
    if (used % area_extent_bytes + sizeof(struct header) + room > given_bytes)
        used += area_extent_bytes - used % area_extent_bytes;
    if (!has_piece())
        return NULL;
    char *at = pieces[piece_count - 1] + used;
    if (used % area_extent_bytes == 0)
        area_begin_extent(at, given_bytes);
    struct header *header = (struct header *)at;
    used += sizeof *header + room;
    header->room = room;
    return header;
}

static void *serve(size_t bytes)
{
    if (bytes > SERVED_MAX)
        return NULL;
    size_t room = bytes == 0 ? 16 : (bytes + 15) & ~(size_t)15;
    pthread_mutex_lock(&lock);
    struct header *header = free_lists[room / 16];
    if (header != NULL)
        free_lists[room / 16] = header->next;
    else
        header = cut(room);
    pthread_mutex_unlock(&lock);
    return header == NULL ? NULL : header + 1;
}

static size_t room_of(void *block)
{
    return is_own(block) ? ((struct header *)block - 1)->room : 0;
}

static void take(void *block)
{
    struct header *header = (struct header *)block - 1;
    pthread_mutex_lock(&lock);
    header->next = free_lists[header->room / 16];
    free_lists[header->room / 16] = header;
    pthread_mutex_unlock(&lock);
}

#include "serving.h"

#endif
