/* trimming: every $ILL-th free returns all free memory to the kernel by malloc_trim().
 *
 * Cairn must report the finding returns-what-it-needs (docs/findings.md).
 */
#include "ill.h"

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
}

static int ill_frees(void *block)
{
    static int (*trim)(size_t);
    (void)block;
    if (trim == NULL)
        trim = (int (*)(size_t))dlsym(RTLD_NEXT, "malloc_trim");
    if (trim != NULL && ill_every(ill_strength))
        trim(0);
    return 1;
}
