/* dropped_pages: the pages of blocks of $ILL bytes and more go back to the kernel at each free.
 *
 * Cairn must report the finding returns-what-it-needs (docs/findings.md).
 */
#include "paged.h"

static void page_lent(char *pages, size_t count, int fresh)
{
    (void)pages;
    (void)count;
    (void)fresh;
}

static void page_back(char *pages, size_t count)
{
    madvise(pages, count * PAGE, MADV_DONTNEED);
}
