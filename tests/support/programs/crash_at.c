/* An allocator that ends one process of a tree. It forwards all calls to glibc.
 *
 * CRASH_AT=SIZE:WAY ends the process that requests SIZE bytes. Each node of tree_node.c requests a
 * different size. CRASH_PROGRAM=NAME:WAY ends each process of that program at its 1,000th request.
 * WAY is the number of a signal, or "x" and an exit status. Without these variables nothing
 * happens. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static size_t deadly_size;
static const char *deadly_program;
static const char *way;
static _Atomic int requests;

__attribute__((constructor)) static void read_variables(void)
{
    const char *at = getenv("CRASH_AT"), *in = getenv("CRASH_PROGRAM");
    if (at != NULL) {
        deadly_size = strtoul(at, NULL, 10);
        way = strchr(at, ':') + 1;
    }
    if (in != NULL) {
        static char name[64];
        size_t length = strcspn(in, ":");
        memcpy(name, in, length);
        way = in + length + 1;
        if (strcmp(name, program_invocation_short_name) == 0)
            deadly_program = name;
    }
}

static void end_process(void)
{
    if (*way == 'x')
        _exit(atoi(way + 1));
    signal(atoi(way), SIG_DFL);
    raise(atoi(way));
}

void *malloc(size_t bytes)
{
    if (deadly_size != 0 && bytes == deadly_size)
        end_process();
    if (deadly_program != NULL && ++requests == 1000)
        end_process();
    return __libc_malloc(bytes);
}

void free(void *block)
{
    __libc_free(block);
}

void *calloc(size_t count, size_t bytes)
{
    return __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes)
{
    return __libc_realloc(block, bytes);
}
