/* guarded_deep.c - a library that frees a guarded block twice at the end of the program, twelve
 * calls deep. */
#include "conformance.h"

/* The volatile result keeps the compiler from making a loop of the calls. */
static __attribute__((noinline)) int misuse(int calls)
{
    volatile int deeper = 0;
    if (calls > 0)
        deeper = misuse(calls - 1) + 1;
    else
        free_guarded_twice();
    return deeper;
}

__attribute__((destructor)) static void end(void)
{
    misuse(12);
}
