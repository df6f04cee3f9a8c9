/* fork_patterns.c - fork_patterns NAME COUNT: forks COUNT times in one of two ways in which
 * programs hung with other allocators. NAME is "streams" or "handler". A process that hangs ends by
 * its alarm.
 *
 *     streams   beside a thread in fflush(NULL), and four threads that allocate while they hold the
 *               lock of a stream (glibc's bug 19431)
 *     handler   in the handler of a periodic timer, which interrupts malloc and free. glibc allows
 *               that in a program with one thread */
#include "conformance.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { HANGS_AFTER_S = 100, READERS = 4, LINE = 60000, LIVE = 500, PERIOD_US = 500 };

static volatile sig_atomic_t forks;
static volatile sig_atomic_t failed;

static void fork_once(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    int status = 1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    failed += child < 0 || status != 0;
    forks++;
}

static void *flush(void *argument)
{
    for (;;) {
        fflush(NULL);
        usleep(300);
    }
    return argument;
}

static void *read_lines(void *argument)
{
    FILE *file = tmpfile();
    if (file == NULL)
        abort();
    for (int i = 0; i < LINE; i++)
        fputc('x', file);
    fputc('\n', file);
    for (;;) {
        char *line = NULL;
        size_t room = 0;
        rewind(file);
        if (getline(&line, &room, file) < 0)
            abort();
        free(line);
        usleep(100);
    }
    return argument;
}

static void fork_beside_streams(int count)
{
    pthread_t thread;
    for (int i = 0; i <= READERS; i++)
        if (pthread_create(&thread, NULL, i == 0 ? flush : read_lines, NULL) != 0)
            _exit(2);
    while (forks < count)
        fork_once();
}

static void on_timer(int number)
{
    (void)number;
    int saved = errno;
    fork_once();
    errno = saved;
}

static void fork_in_handler(int count)
{
    static char *live[LIVE];
    struct sigaction action = {.sa_handler = on_timer};
    struct timeval period = {.tv_usec = PERIOD_US};
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &(struct itimerval){period, period}, NULL);
    uint64_t state = 1;
    while (forks < count) {
        size_t slot = draw_below(&state, LIVE);
        free(live[slot]);
        live[slot] = malloc(draw_below(&state, 70000));
    }
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {0}}, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    alarm(HANGS_AFTER_S);
    if (strcmp(argv[1], "streams") == 0)
        fork_beside_streams(atoi(argv[2]));
    else
        fork_in_handler(atoi(argv[2]));
    /* dprintf() is not used, because it makes a stream. The thread that flushes all streams could
     * flush this stream, too, and the line would be written twice. */
    char line[64];
    int length = snprintf(line, sizeof line, "%d of %d failed\n", (int)failed, (int)forks);
    bool written = write(STDOUT_FILENO, line, (size_t)length) == length;
    _exit(failed != 0 || !written); /* not exit(): threads still use streams */
}
