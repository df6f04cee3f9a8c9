/* probe_held.c - lets an allocator map and unmap memory in ways that are hard to follow:
 *
 *     grows     lets a block grow to 32 MiB by steps, 20 times, while another block stays
 *     unseen    a thread whose system calls are not seen allocates 40 blocks of 4 MiB, and the main
 *               thread frees 20 of them
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { BLOCKS = 40, MIB = 1 << 20 };

static void *blocks[BLOCKS];

static void grow(void)
{
    for (int i = 0; i < 20; i++) {
        void *volatile large = malloc(MIB);
        void *volatile other = malloc(MIB);
        for (size_t bytes = 2 * MIB; bytes <= 32 * MIB; bytes *= 2)
            large = realloc(large, bytes);
        free(large);
        free(other);
    }
}

static void *allocate(void *nothing)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(4 * MIB);
    return nothing;
}

/* The filter permits everything. A thread that begins behind it makes no system calls to arm. */
static void allocate_unseen(void)
{
    struct sock_filter permit = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {1, &permit};
    pthread_t thread;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &filter) ||
        pthread_create(&thread, NULL, allocate, NULL) || pthread_join(thread, NULL))
        exit(2);
    for (int i = 0; i < BLOCKS / 2; i++)
        free(blocks[i]);
}

int main(int argc, char **argv)
{
    void *volatile first = malloc(10);
    if (argc > 1 && strcmp(argv[1], "grows") == 0)
        grow();
    else
        allocate_unseen();
    void *volatile last = malloc(100000);
    return first == NULL || last == NULL;
}
