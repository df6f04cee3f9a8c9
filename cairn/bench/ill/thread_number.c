/* thread_number: every malloc and free asks the kernel $ILL times for the number of its thread.
 *
 * Cairn must report the finding calls-the-kernel (docs/findings.md).
 */
#include "ill.h"

#include <sys/syscall.h>
#include <unistd.h>

static void ask(void)
{
    for (unsigned long i = 0; i < ill_strength; i++)
        syscall(SYS_gettid);
}

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
    ask();
}

static int ill_frees(void *block)
{
    (void)block;
    ask();
    return 1;
}
