/* guard_pages: blocks of $ILL bytes and more lie before a page that is made inaccessible when the
 * block is handed out, and accessible when it is freed.
 *
 * Cairn must report the finding changes-protection (docs/findings.md).
 */
#include "paged.h"

static void page_lent(char *pages, size_t count, int fresh)
{
    (void)fresh;
    mprotect(pages + count * PAGE, PAGE, PROT_NONE);
}

static void page_back(char *pages, size_t count)
{
    mprotect(pages + count * PAGE, PAGE, PROT_READ | PROT_WRITE);
}
