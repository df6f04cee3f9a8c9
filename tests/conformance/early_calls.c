/* early_calls.c - calls prctl(), syscall() and malloc() before any constructor has run. A libc runs
 * the functions of .preinit_array before the constructors of all libraries. */
#define _GNU_SOURCE 1
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static char name[16];
static long thread;
static char *block;

static void early(void)
{
    prctl(PR_SET_NAME, "early");
    prctl(PR_GET_NAME, name);
    thread = syscall(SYS_gettid);
    block = malloc(1000);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = early;

int main(void)
{
    if (block == NULL || thread != syscall(SYS_gettid))
        return 1;
    memset(block, 1, 1000);
    free(block);
    puts(name);
    return 0;
}
