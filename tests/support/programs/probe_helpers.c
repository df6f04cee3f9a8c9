/* probe_helpers.c - calls libc's functions that make threads for libc itself. Each of these threads
 * blocks every signal. Prints "went on" at the end. The argument selects the functions:
 *
 *     aio       reads of several files at once, with a thread of libc for each
 *     few       the same, but libc can make only one thread at first. Its threads make the others
 *     list      lio_listio() for reading, and aio_fsync()
 *     names     getaddrinfo_a()
 *     queue     mq_notify() with a function
 *     timer     timer_create() with a function
 */
#define _GNU_SOURCE 1
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { READS = 8 };

static char places[READS][16];
static struct aiocb reads[READS];
static int pipes[READS][2];

static void limit_addresses(int is_limited)
{
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = is_limited ? 1 << 20 : limit.rlim_max;
    setrlimit(RLIMIT_AS, &limit);
}

/* Begins to read from READS empty pipes. */
static void begin_reads(const char *what)
{
    int use_list = what[0] == 'l';
    struct aiocb *list[READS];
    for (int i = 0; i < READS; i++) {
        if (pipe(pipes[i]) != 0)
            exit(2);
        reads[i] = (struct aiocb){.aio_fildes = pipes[i][0],
                                  .aio_buf = places[i],
                                  .aio_nbytes = 1,
                                  .aio_lio_opcode = LIO_READ};
        list[i] = &reads[i];
        if (!use_list && aio_read(&reads[i]) != 0)
            exit(2);
        limit_addresses(what[0] == 'f');
    }
    limit_addresses(0);
    if (use_list && lio_listio(LIO_NOWAIT, list, READS, NULL) != 0)
        exit(2);
}

/* Fills the pipes and waits for all reads. */
static void end_reads(void)
{
    for (int i = 0; i < READS; i++) {
        const struct aiocb *one = &reads[i];
        if (write(pipes[i][1], "x", 1) != 1)
            exit(2);
        while (aio_error(one) == EINPROGRESS)
            aio_suspend(&one, 1, NULL);
        if (aio_return(&reads[i]) != 1)
            puts("a read failed");
    }
}

static void sync_file(void)
{
    static struct aiocb sync;
    const struct aiocb *one = &sync;
    sync.aio_fildes = fileno(tmpfile());
    if (aio_fsync(O_SYNC, &sync) != 0)
        exit(2);
    while (aio_error(one) == EINPROGRESS)
        aio_suspend(&one, 1, NULL);
}

static void names(void)
{
    struct gaicb request = {.ar_name = "127.0.0.1"};
    struct gaicb *list[] = {&request};
    if (getaddrinfo_a(GAI_WAIT, list, 1, NULL) != 0)
        exit(2);
    freeaddrinfo(request.ar_result);
}

static volatile sig_atomic_t was_told;

static void told(union sigval nothing)
{
    (void)nothing;
    was_told = 1;
}

static void timer(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = told};
    const struct itimerspec soon = {.it_value = {.tv_nsec = 1000000}};
    timer_t made;
    if (timer_create(CLOCK_MONOTONIC, &event, &made) != 0)
        exit(2);
    timer_settime(made, 0, &soon, NULL);
    while (!was_told)
        usleep(1000);
    timer_delete(made);
}

static void queue(void)
{
    char name[32];
    snprintf(name, sizeof name, "/cairn-%d", getpid());
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 1};
    mqd_t made = mq_open(name, O_RDWR | O_CREAT, 0600, &attributes);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = told};
    if (made == (mqd_t)-1)
        return;
    mq_unlink(name);
    if (mq_notify(made, &event) == 0)
        mq_send(made, "x", 1, 0);
    usleep(10000);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    void *volatile block = malloc(100);
    free(block);
    if (strcmp(what, "aio") == 0 || strcmp(what, "few") == 0 || strcmp(what, "list") == 0) {
        begin_reads(what);
        if (what[0] == 'l')
            sync_file();
        end_reads();
    } else if (strcmp(what, "names") == 0) {
        names();
    } else if (strcmp(what, "queue") == 0) {
        queue();
    } else if (strcmp(what, "timer") == 0) {
        timer();
    }
    puts("went on");
    return 0;
}
