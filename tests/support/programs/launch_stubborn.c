/* launch_stubborn.c - ends only by SIGKILL, and so do its two descendants. One of these is in a
 * session of its own. The program prints the process numbers of all three. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    int told[2];
    if (pipe(told) != 0)
        return 9;
    for (int signal = 1; signal < 32; signal++)
        sigaction(signal, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    for (int i = 0; i < 2; i++) {
        if (fork() == 0) {
            if (i == 0)
                setsid();
            else if (fork() != 0)
                _exit(0); /* its child becomes an orphan */
            dprintf(told[1], "%d\n", (int)getpid());
            for (;;)
                pause();
        }
    }
    char text[64];
    for (int lines = 0; lines < 2;) {
        ssize_t got = read(told[0], text, sizeof text);
        for (ssize_t at = 0; at < got; at++)
            lines += text[at] == '\n';
        if (write(1, text, (size_t)got) != got)
            return 9;
    }
    printf("%d\n", (int)getpid());
    fflush(stdout);
    for (;;)
        pause();
}
