/* aligned_far.c - allocates a block at each alignment from 4 GiB to 64 GiB. Prints the kilobytes of
 * address space that the process gained. */
#include "conformance.h"

int main(void)
{
    require_cairn();
    long before = status_kb("VmSize");
    for (size_t alignment = (size_t)1 << 32; alignment <= (size_t)1 << 36; alignment *= 2) {
        char *p = memalign(alignment, 100);
        if (p == NULL || (uintptr_t)p % alignment != 0)
            return 1;
        *p = 1;
    }
    printf("%ld\n", status_kb("VmSize") - before);
    return 0;
}
