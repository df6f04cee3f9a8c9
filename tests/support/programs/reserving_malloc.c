/* reserving_malloc.c - an allocator that reserves 64 GiB of addresses without access.
 *
 * Each malloc forbids access to a slot of 64 KiB, permits it again, and hands out the slot. The 16
 * slots are handed out in turn, and no block is larger than a slot.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

enum { SLOT = 64 << 10, SLOTS = 16 };

static const size_t reserved = (size_t)64 << 30;
static char *start;
static unsigned next;

void *malloc(size_t bytes)
{
    if (start == NULL) /* there are no other threads yet */
        start = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *slot = start + (size_t)(next++ % SLOTS) * SLOT;
    if (start == MAP_FAILED || bytes > SLOT || mprotect(slot, SLOT, PROT_NONE) != 0 ||
        mprotect(slot, SLOT, PROT_READ | PROT_WRITE) != 0) {
        errno = ENOMEM;
        return NULL;
    }
    return slot;
}

void free(void *block)
{
    (void)block;
}

void *calloc(size_t count, size_t bytes)
{
    void *block = malloc(count * bytes);
    return block != NULL ? memset(block, 0, count * bytes) : NULL;
}

void *realloc(void *block, size_t bytes)
{
    return block != NULL && bytes <= SLOT ? block : malloc(bytes);
}
