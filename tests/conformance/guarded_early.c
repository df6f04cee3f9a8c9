/* guarded_early.c - a library that frees a guarded block twice before main (CAIRN_GUARDED=1). */
#include "conformance.h"

__attribute__((constructor)) static void misuse(void)
{
    void *large = malloc(1 << 20);
    void *volatile block = malloc(100);
    while (!is_guarded(block, large))
        block = malloc(100);
    free(block);
    free(block);
}
