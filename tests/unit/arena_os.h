/* arena_os.h - replaces os.h under an arena: it calls the real functions, records every mapping,
 * and can refuse any call.
 *
 * A test program that is linked with src/arena, and not with src/os, includes this header in its
 * only source file. Always:
 *
 *     fake_os.mapped_bytes == sum of the sizes in `ledger`, which are the mappings of the arenas
 *
 * os_unmap() aborts the program if the ledger has no mapping of that address and size.
 */
#ifndef CAIRN_ARENA_OS_H
#define CAIRN_ARENA_OS_H

#define os_page_bytes      real_page_bytes
#define os_map             real_map
#define os_unmap           real_unmap
#define os_give_back       real_give_back
#define os_want_huge_pages real_want_huge_pages
#define os_die             real_die
#include "../../src/os/os_linux.c"
#undef os_page_bytes
#undef os_map
#undef os_unmap
#undef os_give_back
#undef os_want_huge_pages
#undef os_die

static struct {
    struct {
        char *start;
        size_t bytes;
    } ledger[4096];
    size_t mapped_bytes;
    unsigned map_count;
    unsigned unmap_count;
    unsigned give_back_count;
    unsigned huge_count;
    unsigned call_count;   /* sum of the four counts above */
    unsigned refuse_call;  /* number of the call to refuse, from 1; 0: none */
    unsigned refuse_after; /* refuses every call after this many; 0: none */
    unsigned refused_count;
} fake_os;

size_t os_page_bytes(void);
void *os_map(size_t bytes, size_t alignment, size_t offset_bytes);
bool os_unmap(void *start, size_t bytes);
bool os_give_back(void *start, size_t bytes);
bool os_want_huge_pages(void *start, size_t bytes);
_Noreturn void os_die(const char *line, size_t length);

static bool fake_refuses(unsigned *count)
{
    (*count)++;
    fake_os.call_count++;
    bool all = fake_os.refuse_after > 0 && fake_os.call_count > fake_os.refuse_after;
    bool refused = all || fake_os.call_count == fake_os.refuse_call;
    fake_os.refused_count += refused;
    return refused;
}

size_t os_page_bytes(void)
{
    return real_page_bytes();
}

void *os_map(size_t bytes, size_t alignment, size_t offset_bytes)
{
    size_t page = real_page_bytes();
    if (bytes == 0 || bytes % page != 0 || (alignment > page && offset_bytes % page != 0))
        abort();
    char *start =
        fake_refuses(&fake_os.map_count) ? NULL : real_map(bytes, alignment, offset_bytes);
    size_t i = 0;
    while (start != NULL && fake_os.ledger[i].start != NULL)
        if (++i == COUNT_OF(fake_os.ledger))
            abort();
    if (start != NULL) {
        fake_os.ledger[i].start = start;
        fake_os.ledger[i].bytes = bytes;
        fake_os.mapped_bytes += bytes;
    }
    return start;
}

bool os_unmap(void *start, size_t bytes)
{
    size_t i = 0;
    while (fake_os.ledger[i].start != start || fake_os.ledger[i].bytes != bytes)
        if (++i == COUNT_OF(fake_os.ledger))
            abort();
    if (fake_refuses(&fake_os.unmap_count) || !real_unmap(start, bytes))
        return false;
    fake_os.ledger[i].start = NULL;
    fake_os.mapped_bytes -= bytes;
    return true;
}

static bool fake_is_mapped(const char *start, size_t bytes)
{
    for (size_t i = 0; i < COUNT_OF(fake_os.ledger); i++)
        if (fake_os.ledger[i].start != NULL && start >= fake_os.ledger[i].start &&
            start + bytes <= fake_os.ledger[i].start + fake_os.ledger[i].bytes)
            return true;
    return false;
}

bool os_give_back(void *start, size_t bytes)
{
    if (((uintptr_t)start | bytes) % real_page_bytes() != 0 || !fake_is_mapped(start, bytes))
        abort();
    return !fake_refuses(&fake_os.give_back_count) && real_give_back(start, bytes);
}

bool os_want_huge_pages(void *start, size_t bytes)
{
    if ((uintptr_t)start % OS_HUGE_PAGE_BYTES != 0 || !fake_is_mapped(start, bytes))
        abort();
    return !fake_refuses(&fake_os.huge_count) && real_want_huge_pages(start, bytes);
}

_Noreturn void os_die(const char *line, size_t length)
{
    real_die(line, length);
}

#endif
