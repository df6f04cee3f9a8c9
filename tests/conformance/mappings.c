/* mappings.c - allocates in a process that has nearly as many mappings as the kernel allows.
 *
 * First makes 60,000 mappings, allocates, frees and resizes blocks, and then makes mappings until
 * the kernel refuses another one. From then on a block may be refused with ENOMEM, but blocks that
 * exist stay as they are, and freed memory can be allocated again. At the end, after the mappings
 * are gone, every request succeeds. Prints the number of mappings that the process had. */
#include "conformance.h"

#include <sys/mman.h>

enum { FIRST = 60000, MOST = 200000, SLOTS = 200 };

static char *mapped[MOST];

/* Makes mappings until there are `most`, or until the kernel refuses one. `count` is their number
 * before. Returns their number afterwards. Neighbours have different rights, so that the kernel
 * does not merge them. */
static size_t map_more(size_t count, size_t most)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (; count < most; count++) {
        mapped[count] = mmap(NULL, page, count % 2 == 0 ? PROT_NONE : PROT_READ,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped[count] == MAP_FAILED)
            break;
    }
    return count;
}

static void work(uint64_t state, bool may_fail)
{
    static struct {
        unsigned char *p;
        size_t size;
    } slots[SLOTS];
    for (int i = 0; i < 20000; i++) {
        size_t at = draw_below(&state, SLOTS);
        size_t size = 1 + draw_below(&state, i % 20 == 0 ? 4000000 : 3000);
        unsigned char *p = slots[at].p;
        if (p != NULL && (p[0] != (unsigned char)at || p[slots[at].size - 1] != (unsigned char)at))
            exit(3);
        bool resizes = i % 3 == 0;
        unsigned char *q = resizes ? realloc(p, size) : malloc(size);
        if (q == NULL) {
            if (!may_fail || errno != ENOMEM)
                exit(4);
            continue;
        }
        if (!resizes)
            free(p);
        q[0] = q[size - 1] = (unsigned char)at;
        slots[at].p = q;
        slots[at].size = size;
    }
    for (size_t at = 0; at < SLOTS; at++) {
        free(slots[at].p);
        slots[at].p = NULL;
    }
    malloc_trim(0);
}

int main(void)
{
    require_cairn();
    size_t count = map_more(0, FIRST);
    if (count < FIRST) {
        puts("not allowed");
        return 0;
    }
    work(1, false);
    count = map_more(count, MOST);
    work(2, true);
    for (size_t i = 0; i < count; i++)
        munmap(mapped[i], (size_t)sysconf(_SC_PAGESIZE));
    work(3, false);
    printf("%zu\n", count);
    return 0;
}
