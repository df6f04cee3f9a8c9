/* guarded_early.c - a library that frees a guarded block twice before main (CAIRN_GUARDED=1). */
#include "conformance.h"

__attribute__((constructor)) static void misuse(void)
{
    free_guarded_twice();
}
