/* freed.c - frees memory in a known place of glibc's heap, for tests of 'cairn inspect'.
 *
 *     freed between    frees large blocks, each of which lies between two small live blocks
 *     freed end        frees all blocks at the end of the heap
 *     freed thread     the same in a thread, whose blocks lie in an arena of its own
 *     freed fork       as "between", but a child shares all pages since a fork
 *
 * It also maps and touches OWN_BYTES of its own, which malloc does not know. Then it prints the
 * freed bytes, and calls malloc_trim(0) for each line that it reads. Each call is answered with a
 * line that has the result of malloc_trim().
 */
#define _GNU_SOURCE 1
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { BLOCKS = 200, BLOCK_BYTES = 200000, OWN_BYTES = 64 << 20 };

static void *leave_free(void *is_between)
{
    static char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BLOCK_BYTES);
        memset(blocks[i], 1, BLOCK_BYTES);
        if (is_between != NULL && malloc(64) == NULL)
            abort();
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return NULL;
}

static void *leave_free_and_wait(void *ready)
{
    leave_free(NULL);
    pthread_barrier_wait(ready);
    pause();
    return NULL;
}

int main(int count, char **words)
{
    const char *how = count > 1 ? words[1] : "";
    char line[16];
    pthread_barrier_t ready;
    pthread_t thread;
    /* No block has a mapping of its own, and free() does not return the end of the heap. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    char *own = mmap(NULL, OWN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(own, 1, OWN_BYTES);
    setvbuf(stdin, NULL, _IONBF, 0);
    setvbuf(stdout, NULL, _IONBF, 0);
    if (strcmp(how, "thread") == 0) {
        pthread_barrier_init(&ready, NULL, 2);
        pthread_create(&thread, NULL, leave_free_and_wait, &ready);
        pthread_barrier_wait(&ready);
    } else {
        leave_free(strcmp(how, "end") != 0 ? line : NULL);
    }
    if (strcmp(how, "fork") == 0 && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
    }
    printf("%d\n", BLOCKS * BLOCK_BYTES);
    while (fgets(line, sizeof line, stdin) != NULL)
        printf("%d\n", malloc_trim(0));
    return 0;
}
