/* sparse.c - sparse COUNT BYTES: allocates COUNT buffers of BYTES bytes, and writes only the first
 * 100 bytes of each. Prints two numbers in KB: the anonymous memory by which the process has grown,
 * and the OS pages that were written. */
#include "conformance.h"

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    size_t count = strtoul(argv[1], NULL, 10);
    size_t bytes = strtoul(argv[2], NULL, 10);
    require_cairn();
    long before = rollup_kb("Anonymous:");
    uintptr_t last = 0;
    size_t pages = 0;
    for (size_t i = 0; i < count; i++) {
        char *p = malloc(bytes);
        if (p == NULL)
            return 1;
        memset(p, 1, 100);
        *(char **)p = p; /* so that the compiler keeps the block */
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        pages += (uintptr_t)p / page != last;
        pages += (uintptr_t)(p + 99) / page != (uintptr_t)p / page;
        last = (uintptr_t)(p + 99) / page;
    }
    printf("%ld %zu\n", rollup_kb("Anonymous:") - before,
           pages * (size_t)sysconf(_SC_PAGESIZE) / 1024);
    return 0;
}
