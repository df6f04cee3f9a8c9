/* early_calls.c - a library that calls prctl(), syscall() and malloc() before the constructors of
 * all other libraries. It has to be linked with -z initfirst, and loaded after the allocator: a
 * libc runs the constructor of the last such library first. At its end it prints the name that it
 * has given its thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static char name[16];
static long thread;
static char *block;

__attribute__((constructor)) static void early(void)
{
    prctl(PR_SET_NAME, "early");
    prctl(PR_GET_NAME, name);
    thread = syscall(SYS_gettid);
    block = malloc(1000);
}

__attribute__((destructor)) static void late(void)
{
    if (block == NULL || thread != syscall(SYS_gettid))
        _exit(1);
    memset(block, 1, 1000);
    free(block);
    puts(name);
}
