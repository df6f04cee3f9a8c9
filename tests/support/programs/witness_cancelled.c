/* Tries to execute a program that cannot be executed, in a thread that will be cancelled at its
 * next cancellation point. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *body(void *path)
{
    char *args[] = {path, NULL};
    pthread_cancel(pthread_self());
    execv(path, args);
    return path;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, body, argv[1]);
    pthread_join(thread, &result);
    puts(result == argv[1] ? "returned" : "cancelled");
}
