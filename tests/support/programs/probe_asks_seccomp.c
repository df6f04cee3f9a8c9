/* probe_asks_seccomp.c - asks whether the kernel has seccomp(2), as libseccomp does. It asks for
 * strict mode with an argument that strict mode does not permit. Then the program allocates 1,000
 * blocks and prints "went on". */
#define _GNU_SOURCE 1
#include <errno.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    void *volatile block = malloc(100);
    free(block);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) != -1 || errno != EINVAL)
        return 2;
    for (int i = 0; i < 1000; i++) {
        block = malloc(100);
        free(block);
    }
    return puts("went on") < 0;
}
