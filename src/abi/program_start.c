/* program_start.c - makes preparations before main that are impossible when the library is
 * initialised.
 *
 * The library is initialised before libc is (initfirst in CMakeLists.txt). At that time it must not
 * load another library: dlopen() would initialise libc without the program's arguments, and libc
 * would forget the program's environment. But the first backtrace() of a process loads a library.
 *
 * The start of a program calls __libc_start_main(), after all its libraries are initialised and
 * before its own constructors and main. The function here prepares the stacks of guarded blocks,
 * and then calls libc's. A program with another start, such as one in Go without C, gets reports
 * without stacks.
 */
#include "abi/abi.h"
#include "alloc/guarded_block.h"

#include <dlfcn.h>

typedef int program_main(int, char **, char **);
typedef int start_program(program_main *, int, char **, void (*)(void), void (*)(void),
                          void (*)(void), void *);

EXPORT start_program __libc_start_main;

EXPORT int __libc_start_main(program_main *main, int count, char **arguments, void (*begin)(void),
                             void (*end)(void), void (*end_of_loader)(void), void *stack_end)
{
    guarded_prepare_stacks();
    start_program *next = (start_program *)dlsym(RTLD_NEXT, "__libc_start_main");
    return next(main, count, arguments, begin, end, end_of_loader, stack_end);
}
