/* madvise_storm: every hundredth free returns $ILL pages to the kernel and touches them again.
 *
 * Cairn must report the finding returns-what-it-needs (docs/findings.md).
 */
#include "ill.h"

#include <sys/mman.h>

enum { PAGE = 4096, PAGES_MOST = 1024 };

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
}

static int ill_frees(void *block)
{
    static char *_Atomic pages;
    (void)block;
    if (!ill_every(100))
        return 1;
    char *all = pages;
    if (all == NULL)
        pages = all = mmap(NULL, PAGE * PAGES_MOST, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t given = ill_strength < PAGES_MOST ? ill_strength : PAGES_MOST;
    madvise(all, given * PAGE, MADV_DONTNEED);
    for (size_t i = 0; i < given; i++)
        all[i * PAGE] = 1;
    return 1;
}
