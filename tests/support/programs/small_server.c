/* A server for the tests of loads. It answers each byte with a byte, after it has allocated and
 * freed some blocks.
 *
 *     small_server PORT [MODE]
 *
 * MODE changes its behaviour:
 *
 *     deaf        never listens
 *     late        listens after three seconds
 *     refuse      ends with exit code 3 and a sentence
 *     background  leaves a child that serves, and ends
 *     crash       is killed by SIGSEGV at its hundredth request
 *     stubborn    ignores SIGTERM
 *     torn        is killed by SIGSEGV when it is asked to end
 *     polite      ends with exit code 0 when it is asked to end
 *     forks       serves each connection in a child
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 64

static const char *mode = "";
static int requests;

static int is(const char *name)
{
    return strcmp(mode, name) == 0;
}

static void torn(int number)
{
    (void)number;
    raise(SIGSEGV);
}

static void polite(int number)
{
    (void)number;
    _exit(0);
}

static void work(void)
{
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc((size_t)(16 + i * 80));
        *(volatile char *)blocks[i] = 1;
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    if (is("crash") && ++requests == 100)
        raise(SIGSEGV);
}

static void serve(int client)
{
    char byte;
    while (read(client, &byte, 1) == 1) {
        work();
        if (write(client, &byte, 1) != 1)
            break;
    }
    close(client);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    if (argc > 2)
        mode = argv[2];
    if (is("refuse")) {
        fprintf(stderr, "small_server: the port is of no use\n");
        return 3;
    }
    if (is("deaf"))
        for (;;)
            pause();
    if (is("late"))
        sleep(3);
    if (is("stubborn"))
        signal(SIGTERM, SIG_IGN);
    if (is("torn"))
        signal(SIGTERM, torn);
    if (is("polite"))
        signal(SIGTERM, polite);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((unsigned short)atoi(argv[1])),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 16) != 0) {
        perror("small_server");
        return 1;
    }
    if (is("background") && fork() != 0)
        _exit(0);
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0)
            continue;
        if (is("forks")) {
            if (fork() == 0) {
                serve(client);
                _exit(0);
            }
            close(client);
            while (waitpid(-1, NULL, WNOHANG) > 0) {
            }
        } else {
            serve(client);
        }
    }
}
