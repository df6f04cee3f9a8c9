/* Executes a program from a signal handler. The handler's stack has only 6 KiB more than the kernel
 * needs to call it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static char *target;

static void handler(int number)
{
    execlp(target, target, (char *)NULL);
    _exit(9);
}

int main(int argc, char **argv)
{
    size_t page = 4096, size = (sysconf(_SC_MINSIGSTKSZ) + 6144 + page - 1) / page * page;
    char *area =
        mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(area, page, PROT_NONE);
    stack_t stack = {.ss_sp = area + page, .ss_size = size};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    target = argv[1];
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
}
