/* mmap_storm: every hundredth malloc maps $ILL pages, which are never unmapped.
 *
 * Cairn must report the finding asks-too-often (docs/findings.md).
 */
#include "ill.h"

#include <sys/mman.h>

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
    if (!ill_every(100))
        return;
    for (unsigned long i = 0; i < ill_strength; i++)
        if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
            MAP_FAILED)
            return;
}

static int ill_frees(void *block)
{
    (void)block;
    return 1;
}
