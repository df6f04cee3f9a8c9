/* A load for small_server: sends bytes over one connection and prints the rate of the answers in
 * the form of redis-benchmark -q.
 *
 *     small_load PORT REQUESTS
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int requests = atoi(argv[2]);
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((unsigned short)atoi(argv[1])),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int server = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(server, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("small_load: connect");
        return 1;
    }
    double began = now();
    double longest = 0;
    for (int i = 0; i < requests; i++) {
        char byte = 'x';
        double sent = now();
        if (write(server, &byte, 1) != 1 || read(server, &byte, 1) != 1) {
            fprintf(stderr, "small_load: the server is gone after %d requests\n", i);
            return 1;
        }
        if (now() - sent > longest)
            longest = now() - sent;
    }
    double seconds = now() - began;
    if (getenv("LD_PRELOAD") != NULL && *getenv("LD_PRELOAD"))
        fprintf(stderr, "small_load: preloaded with %s\n", getenv("LD_PRELOAD"));
    printf("BYTE: %.2f requests per second, p50=%.6f msec\n", requests / seconds,
           1e3 * seconds / requests);
    printf("longest %.6f ms\n", 1e3 * longest);
    return 0;
}
