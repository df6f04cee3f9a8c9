/* paged.h - an allocator for blocks of $ILL bytes and more, which replaces the next allocator in
 * illnesses that work on whole OS pages. Each block has OS pages of its own, and a free page behind
 * them. Freed pages are used again for blocks that have the same number of pages.
 *
 * The file that includes this header defines two hooks. page_lent() is called before a block is
 * handed out, and page_back() after it was freed. Both get the first of the block's pages and their
 * number. `fresh` is 1 if the pages were never used before.
 */
#ifndef ILL_PAGED_H
#define ILL_PAGED_H

#include "ill.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

enum {
    PAGE = 4096,
    CHUNK = 4 << 20,
    CHUNK_PAGES = CHUNK / PAGE,
    RECORD_PAGES = (CHUNK_PAGES * 12 + PAGE - 1) / PAGE,
    PAGES_MAX = 64,
};

static void page_lent(char *pages, size_t count, int fresh);
static void page_back(char *pages, size_t count);

/* The records of a chunk, which lie at its start. Each page of the chunk has an entry; a block uses
 * the entry of its first page. `count` is the number of the block's pages. `next` is set when the
 * block is freed: the next freed block that has the same number of pages, or NULL.
 */
struct chunk {
    char *next[CHUNK_PAGES];
    uint32_t count[CHUNK_PAGES];
};

_Static_assert(sizeof(struct chunk) <= RECORD_PAGES * PAGE, "the records have room");

/* One bit for each CHUNK of the address space: 1 if the chunk belongs to this library. */
static _Atomic unsigned char chunks[(1ul << 47) / CHUNK / 8];
static pthread_mutex_t page_lock = PTHREAD_MUTEX_INITIALIZER;
static char *free_pages[PAGES_MAX + 1]; /* [n]: list of freed blocks of n pages */
static char *rest, *rest_end;           /* pages of the last chunk that were never used */

static int is_paged(const void *at)
{
    uintptr_t place = (uintptr_t)at / CHUNK;
    return (chunks[place / 8] >> place % 8) & 1;
}

static struct chunk *chunk_of(const void *at)
{
    return (struct chunk *)((uintptr_t)at & ~(uintptr_t)(CHUNK - 1));
}

static size_t page_of(const void *at)
{
    return (uintptr_t)at % CHUNK / PAGE;
}

static int begin_chunk(void)
{
    char *at = mmap(NULL, 2 * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return 0;
    size_t before = (CHUNK - (uintptr_t)at % CHUNK) % CHUNK;
    if (before != 0)
        munmap(at, before);
    at += before;
    munmap(at + CHUNK, CHUNK - before);
    uintptr_t place = (uintptr_t)at / CHUNK;
    chunks[place / 8] |= (unsigned char)(1u << place % 8);
    rest = at + RECORD_PAGES * PAGE;
    rest_end = at + CHUNK;
    return 1;
}

static char *take_pages(size_t count, int *fresh)
{
    char *pages = free_pages[count];
    *fresh = pages == NULL;
    if (pages != NULL) {
        free_pages[count] = chunk_of(pages)->next[page_of(pages)];
        return pages;
    }
    if ((size_t)(rest_end - rest) < (count + 1) * PAGE && !begin_chunk())
        return NULL;
    pages = rest;
    rest += (count + 1) * PAGE;
    chunk_of(pages)->count[page_of(pages)] = (uint32_t)count;
    return pages;
}

/* The block ends where its pages end, as in an allocator that watches for overruns. */
static void *serve(size_t bytes)
{
    size_t room = (bytes + 15) & ~(size_t)15, count = (room + PAGE - 1) / PAGE;
    if (bytes < ill_strength || count == 0 || count > PAGES_MAX)
        return NULL;
    int fresh;
    pthread_mutex_lock(&page_lock);
    char *pages = take_pages(count, &fresh);
    pthread_mutex_unlock(&page_lock);
    if (pages == NULL)
        return NULL;
    page_lent(pages, count, fresh);
    return pages + count * PAGE - room;
}

static size_t pages_room(char *block)
{
    char *pages = (char *)((uintptr_t)block & ~(uintptr_t)(PAGE - 1));
    return (size_t)(pages + chunk_of(block)->count[page_of(block)] * PAGE - block);
}

static size_t room_of(void *block)
{
    return is_paged(block) ? pages_room(block) : 0;
}

static void take(void *block)
{
    char *pages = (char *)((uintptr_t)block & ~(uintptr_t)(PAGE - 1));
    size_t count = chunk_of(pages)->count[page_of(pages)];
    page_back(pages, count);
    pthread_mutex_lock(&page_lock);
    chunk_of(pages)->next[page_of(pages)] = free_pages[count];
    free_pages[count] = pages;
    pthread_mutex_unlock(&page_lock);
}

#include "serving.h"

#endif
