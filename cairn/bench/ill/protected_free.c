/* protected_free: the pages of free blocks of $ILL bytes and more are inaccessible.
 *
 * Cairn must report the finding changes-protection (docs/findings.md).
 */
#include "paged.h"

static void page_lent(char *pages, size_t count, int fresh)
{
    if (!fresh)
        mprotect(pages, count * PAGE, PROT_READ | PROT_WRITE);
}

static void page_back(char *pages, size_t count)
{
    mprotect(pages, count * PAGE, PROT_NONE);
}
