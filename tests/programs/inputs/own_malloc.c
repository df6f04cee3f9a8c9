/* A program with its own malloc, calloc, realloc and free, as the C library's manual permits. It
 * also uses reallocarray(), which the library builds on these four. The program does three things
 * that chromium does: its malloc makes a system call while it holds a lock, its malloc is called
 * before any library is initialised, and a child process ends whose thread-local storage is not
 * libc's. */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 24 };

static atomic_flag lock;
static char *arena;
static size_t used;

void *malloc(size_t size)
{
    while (atomic_flag_test_and_set(&lock))
        ;
    if (arena == NULL)
        arena = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t *head = (size_t *)(arena + used);
    used += (size + 31) & ~(size_t)15;
    *head = size;
    atomic_flag_clear(&lock);
    return head + 2;
}

static void early(void)
{
    free(malloc(10));
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = early;

void free(void *block)
{
    (void)block;
}

void *calloc(size_t count, size_t size)
{
    return memset(malloc(count * size), 0, count * size);
}

void *realloc(void *block, size_t size)
{
    void *moved = malloc(size);
    if (block != NULL) {
        size_t have = ((size_t *)block)[-2];
        memcpy(moved, block, have < size ? have : size);
    }
    return moved;
}

static int leave(void *nothing)
{
    (void)nothing;
    _exit(7);
}

/* Returns the status of a child that ends with zeroes in place of libc's thread-local storage. */
static int end_of_child(void)
{
    static _Alignas(64) char stack[1 << 16];
    static _Alignas(64) char storage[1 << 16];
    int status = -1;
    pid_t child =
        clone(leave, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_SETTLS | SIGCHLD, NULL,
              NULL, storage + sizeof storage / 2);
    waitpid(child, &status, 0);
    return status;
}

int main(void)
{
    char *block = malloc(10);
    strcpy(block, "kept");
    block = reallocarray(block, 100, 10);
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    for (int i = 0; i < 1000; i++)
        fprintf(stream, "%d ", i);
    fclose(stream);
    char *copy = strdup(text);
    printf("%s %zu %d %d\n", block, strlen(copy), block > arena && block < arena + BYTES,
           end_of_child());
    free(text), free(copy), free(block);
    return 0;
}
