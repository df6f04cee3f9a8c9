/* huge_bloat: blocks of up to 1 KiB lie in huge pages, $ILL of 100 bytes of which nobody is ever given.
 *
 * Found: huge-page-bloat, where the kernel has huge pages for who asks. */
#include "ill.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

enum { EXTENT = 2 << 20, PIECE = 64 << 20, SERVED_MAX = 1024, AREA_PIECES = 1024 };

struct header { /* before every block */
    struct header *next;
    size_t room;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct header *free_lists[SERVED_MAX / 16 + 1];
static char *pieces[AREA_PIECES];
static _Atomic size_t piece_count;
static size_t used = PIECE; /* of the last piece */

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
    if (piece_count == AREA_PIECES)
        return 0;
    char *at = mmap(NULL, PIECE + EXTENT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (at == MAP_FAILED)
        return 0;
    at += (EXTENT - (uintptr_t)at % EXTENT) % EXTENT;
    madvise(at, PIECE, MADV_HUGEPAGE);
    pieces[piece_count++] = at;
    used = 0;
    return 1;
}

static struct header *cut(size_t room)
{
    size_t of_extent = EXTENT / 100 * (100 - ill_strength);
    if (used % EXTENT + sizeof(struct header) + room > of_extent)
        used += EXTENT - used % EXTENT;
    if (!has_piece())
        return NULL;
    struct header *header = (struct header *)(pieces[piece_count - 1] + used);
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

__attribute__((constructor)) static void begin(void)
{
    static const struct ill_own own = {serve, room_of, take};
    ill_own = &own;
}

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
}

static int ill_frees(void *block)
{
    (void)block;
    return 1;
}
