/* misuse.c - misuses malloc's memory in one way and shows the damage, if there is any.
 *
 *     cairn-misuse                            prints each scenario: name, number of attacks, title
 *     cairn-misuse SCENARIO BYTES ATTACK      one misuse of blocks of this size
 *
 * The program first behaves like one in the middle of its life. Then it prints "ready", does the
 * misuse, and goes on. It ends in one of these ways:
 *
 *     a signal after "ready"     the allocator stopped the program, or a page was protected
 *     "refused"                  the call with the wrong pointer failed
 *     "exploitable HOW"          two live blocks overlap, malloc returned memory of the attacker, a
 *                                live block changed, or data of another block could be read
 *     "neutral"                  the program went on, and no damage could be shown
 *     SIGALRM after "ready"      the program made no progress
 *     "impossible WHY"           the misuse could not be set up
 */
#include "misuse/scenarios.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

enum { SECONDS_MOST = 20, LIVE = 48, OTHERS = 24 };

static const struct scenario *const tables[] = {frees, overruns, accesses};
enum { TABLES = sizeof tables / sizeof *tables };

/* --- the second thread ------------------------------------------------------------------------ */

static sem_t begun, ended;
static void (*job)(void *);
static void *job_argument;

static void *second_thread(void *size)
{
    free(opaque(malloc((size_t)(uintptr_t)size)));
    for (;;) {
        sem_post(&ended);
        while (sem_wait(&begun) != 0) {
        }
        job(job_argument);
    }
    return NULL;
}

static void wait_for_thread(void)
{
    while (sem_wait(&ended) != 0) {
    }
}

/* The thread begins before the misuse, because a libc may allocate for a new thread. */
static void start_thread(size_t size)
{
    pthread_t id;
    sem_init(&begun, 0, 0);
    sem_init(&ended, 0, 0);
    if (pthread_create(&id, NULL, second_thread, (void *)(uintptr_t)size) != 0)
        impossible("no second thread can be started");
    wait_for_thread();
}

void in_thread(void (*run)(void *), void *argument)
{
    job = run;
    job_argument = argument;
    sem_post(&begun);
    wait_for_thread();
}

/* --- the attacker's memory -------------------------------------------------------------------- */

static _Alignas(4096) unsigned char in_data[AREA_BYTES];
static unsigned char *area[3];

unsigned char *area_of(enum area_kind kind)
{
    return area[kind];
}

static void put(unsigned char *p, uint64_t value, const unsigned char *start, size_t size)
{
    if (p >= start && p + sizeof value <= start + size)
        memcpy(p, &value, sizeof value);
}

void pretend_block(unsigned char *p, size_t block_size, unsigned char *start, size_t size)
{
    uint64_t chunk = chunk_bytes(block_size);
    put(p - 16, 0, start, size);
    put(p - 8, chunk | 1, start, size);
    put(p - 8 + chunk, chunk | 1, start, size);
    put(p - 8 + 2 * chunk, chunk | 1, start, size);
}

/* --- one case --------------------------------------------------------------------------------- */

/* Allocates blocks of several sizes and frees half of them. Then allocates LIVE blocks of `size`
 * bytes, which stay live. */
static void begin(size_t size)
{
    static const size_t sizes[] = {16, 24, 100, 256, 1000, 2000, 5000, 40000, 300000};
    static unsigned char *others[sizeof sizes / sizeof *sizes][OTHERS];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t i = 0; i < OTHERS; i++)
            others[s][i] = live_take(sizes[s]);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t i = 0; i < OTHERS; i += 2)
            live_free(others[s][i]);
    for (size_t i = 0; i < LIVE; i++)
        live_take(size);
    live_check();
}

static void say(const char *line)
{
    if (write(STDOUT_FILENO, line, strlen(line)) < 0)
        _exit(1);
}

static void one_case(const struct scenario *scenario, size_t size, int attack)
{
    unsigned char on_stack[AREA_BYTES + 4096];
    area[AREA_STACK] = (unsigned char *)(((uintptr_t)on_stack + 4095) & ~(uintptr_t)4095);
    area[AREA_STATIC] = in_data;
    area[AREA_MAPPED] =
        mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area[AREA_MAPPED] == MAP_FAILED)
        impossible("no memory can be mapped");
    for (int i = 0; i < 3; i++)
        memset(opaque(area[i]), 0, AREA_BYTES);
    start_thread(size);
    begin(size);
    for (int i = 0; i < 3; i++)
        live_foreign(area[i], AREA_BYTES);
    say("ready\n");
    scenario->run(size, attack);
    live_check();
    live_go_on(size);
    say("neutral\n");
    _exit(0);
}

/* Ends the program at the last of SECONDS_MOST ticks. Ticks that come while the program has no
 * processor become one tick. So a program that could not run, for example on a busy machine, is not
 * taken for one that stands still.
 */
static void tick(int signal_number)
{
    static volatile sig_atomic_t ticks;
    ticks = ticks + 1;
    if (ticks == SECONDS_MOST) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
}

static void begin_ticks(void)
{
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    struct itimerval each = {{1, 0}, {1, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &each, NULL);
}

static int usage(void)
{
    fprintf(stderr, "usage: cairn-misuse [SCENARIO BYTES ATTACK]\n");
    return 2;
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        for (int t = 0; t < TABLES; t++)
            for (const struct scenario *s = tables[t]; s->name != NULL; s++)
                printf("%s\t%d\t%s\n", s->name, s->attacks, s->title);
        return 0;
    }
    if (argc != 4)
        return usage();
    size_t size = strtoul(argv[2], NULL, 10);
    int attack = atoi(argv[3]);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    begin_ticks();
    for (int t = 0; t < TABLES; t++)
        for (const struct scenario *s = tables[t]; s->name != NULL; s++)
            if (strcmp(s->name, argv[1]) == 0 && attack >= 0 && attack < s->attacks && size >= 24 &&
                size <= AREA_BYTES / 2 + 65536)
                one_case(s, size, attack);
    return usage();
}
