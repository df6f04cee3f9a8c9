/* carries.c - a program with its own allocator under another name.
 *
 *     carries own|libc [MIB]      allocates and fills MIB mebibytes of blocks (default 64), from
 *                                 its own allocator or from malloc
 *
 * Compiled with -DNO_LIBC the program does not import malloc, and so never calls it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCK 1000

__attribute__((noinline, used)) void *mi_malloc(size_t bytes)
{
    static char *area;
    static size_t left;
    if (left < bytes) {
        area = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (area == MAP_FAILED)
            return NULL;
        left = 1 << 20;
    }
    left -= bytes;
    area += bytes;
    return area - bytes;
}

int main(int argc, char **argv)
{
    size_t mebibytes = argc > 2 ? (size_t)atol(argv[2]) : 64;
    unsigned long sum = 0;
#ifdef NO_LIBC
    void *(*allocate)(size_t) = mi_malloc;
#else
    void *(*allocate)(size_t) = argc > 1 && strcmp(argv[1], "own") == 0 ? mi_malloc : malloc;
#endif
    for (size_t count = mebibytes * 1048 * 1000 / BLOCK; count > 0; count--) {
        unsigned char *block = allocate(BLOCK);
        if (block == NULL)
            return 1;
        memset(block, 1, BLOCK);
        sum += block[BLOCK / 2];
    }
    printf("checksum %lu\n", sum);
    return 0;
}
