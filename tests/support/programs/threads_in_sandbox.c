/* Installs a filter of system calls that permits everything, and then starts threads, all of which
 * run at once. Each allocates and frees blocks.
 *
 * The argument is the number of threads.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>

static pthread_barrier_t all;

static void *work(void *nothing)
{
    for (int i = 0; i < 1000; i++)
        free(malloc(100));
    pthread_barrier_wait(&all);
    return nothing;
}

int main(int count, char **arguments)
{
    struct sock_filter permit = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {1, &permit};
    unsigned number = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    pthread_t *threads = calloc(number, sizeof *threads);
    if (threads == NULL || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return 3;
    pthread_barrier_init(&all, NULL, number);
    for (unsigned i = 0; i < number; i++)
        if (pthread_create(&threads[i], NULL, work, NULL))
            return 4;
    for (unsigned i = 0; i < number; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
