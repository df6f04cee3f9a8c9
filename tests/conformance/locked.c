/* locked.c - after mlockall(MCL_FUTURE) every mapped page is resident, and madvise fails on it.
 * Resident memory must stay near the memory in use, and the memory of calloc must be zero. Prints
 * the resident memory in kB while blocks of 20,000 kB in all are live, and then how many purges the
 * allocator tried while 320 MB of large blocks were freed. */
#include "conformance.h"

#include <cairn/cairn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

int main(void)
{
    require_cairn();
    enum { NEEDED = 448 << 20 };
    struct rlimit most;
    if (getrlimit(RLIMIT_MEMLOCK, &most) != 0 || (geteuid() != 0 && most.rlim_cur < NEEDED) ||
        mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        puts("not allowed");
        return 0;
    }
    enum { MANY = 20000, BYTES = 1000 };
    static char *blocks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        blocks[i] = malloc(BYTES);
        if (blocks[i] == NULL)
            return 1;
        memset(blocks[i], 0xff, BYTES);
    }
    printf("%ld\n", status_kb("VmRSS"));
    for (size_t i = 0; i < MANY; i++)
        free(blocks[i]);
    malloc_trim(0);
    for (size_t size = 1000; size < 5000000; size *= 3) {
        unsigned char *p = calloc(1, size);
        if (p == NULL)
            return 1;
        for (size_t i = 0; i < size; i++)
            if (p[i] != 0)
                return 3;
        memset(p, 0xff, size);
        free(p);
    }
    enum { LARGE = 80, LARGE_BYTES = 4 << 20 };
    static char *large[LARGE];
    for (size_t i = 0; i < LARGE; i++)
        if ((large[i] = malloc(LARGE_BYTES)) == NULL)
            return 1;
    __typeof__(cairn_statistics) *statistics =
        (__typeof__(cairn_statistics) *)dlsym(RTLD_DEFAULT, "cairn_statistics");
    if (statistics == NULL)
        return 4;
    struct cairn_stats before, after;
    statistics(&before);
    for (size_t i = 0; i < LARGE; i++)
        free(large[i]);
    statistics(&after);
    printf("%zu\n", (size_t)(after.purge_calls - before.purge_calls));
    return 0;
}
