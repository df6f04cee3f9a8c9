/* early.c - allocates before any constructor has run, and frees blocks in the last destructor.
 * free(NULL) is the program's first call of the allocator. Further calls follow in every phase of
 * the program's start, and at its exit. */
#include "conformance.h"

#include <unistd.h>

static void *kept[8];
static unsigned stage;

static void allocate_here(void)
{
    free(NULL);
    if (malloc_usable_size(NULL) != 0)
        _exit(3);
    char *p = realloc(NULL, 10 + stage);
    if (p == NULL)
        _exit(4);
    memset(p, 1, 10 + stage);
    kept[stage++] = p;
    free(calloc(1, 100000));
}

static void before_all(int argc, char **argv, char **environment)
{
    (void)argc, (void)argv, (void)environment;
    allocate_here();
}

__attribute__((section(".preinit_array"), used)) static void (*const before)(int, char **,
                                                                             char **) = before_all;

__attribute__((constructor(101))) static void first_constructor(void)
{
    allocate_here();
}

__attribute__((constructor)) static void last_constructor(void)
{
    allocate_here();
}

__attribute__((destructor(101))) static void last_destructor(void)
{
    for (unsigned i = 0; i < stage; i++)
        free(kept[i]);
    char *p = malloc(50000);
    if (p == NULL)
        _exit(5);
    free(p);
    if (write(STDOUT_FILENO, "ended\n", 6) != 6)
        _exit(6);
}

static void at_exit(void)
{
    allocate_here();
}

int main(void)
{
#ifdef __GLIBC__
    enum { STAGES = 3 };
#else
    enum { STAGES = 2 }; /* musl does not run .preinit_array */
#endif
    require_cairn();
    if (stage != STAGES)
        return 2;
    return atexit(at_exit);
}
