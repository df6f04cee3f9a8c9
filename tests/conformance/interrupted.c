/* interrupted.c - interrupted WAY CALLS THREADS: interrupts calls of the allocator at every
 * instruction, forks in the signal handler, and prints how many children failed. WAY and CALLS are
 * in the tables at the end of this file. If THREADS is 2, a second thread sleeps meanwhile.
 *
 * The processor's trap flag makes the kernel send SIGTRAP after each instruction. For each kind of
 * call, the handler acts once at each instruction. So this test finds for certain what forks.c
 * finds with luck. A process that hangs ends by its alarm. */
#include "conformance.h"

#ifndef __x86_64__
#error "only x86-64 has this trap flag"
#endif

#include <cairn/cairn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

enum {
    HANGS_AFTER_S = 550,
    CHILD_HANGS_AFTER_S = 20,
    TRAP_FLAG = 0x100,
    LIVE = 200,      /* blocks that exist throughout */
    PLACES = 1 << 16 /* size of the hash table `places`, a power of two */
};

static pid_t root; /* the process that is interrupted */
static int acts, failed;
static const char *kind; /* name of the calls that are interrupted now */
static bool is_child;

/* --- blocks whose content is known ------------------------------------------------------------ */

static struct known {
    unsigned char *block;
    size_t size;
    unsigned char fill;
} live[LIVE];

static size_t size_of(unsigned i)
{
    static const size_t sizes[] = {8,    24,    100,   500,    2000,   5000,
                                   9000, 20000, 40000, 100000, 150000, 1100000};
    return i % 31 == 30 ? sizes[i % COUNT(sizes)] : sizes[i % 6];
}

/* Writes a block full, so that its content shows if it is handed out twice. */
static struct known known(void *block, size_t size)
{
    static unsigned char fill;
    if (block == NULL)
        _exit(3);
    fill++;
    memset(block, fill, size);
    return (struct known){block, size, fill};
}

static void check(const struct known *known, int code)
{
    for (size_t i = 0; i < known->size; i += i < 64 ? 1 : 509)
        if (known->block[i] != known->fill)
            _exit(code);
    if (malloc_usable_size(known->block) < known->size)
        _exit(code + 1);
}

static void check_all_live(int code)
{
    for (size_t i = 0; i < LIVE; i++)
        if (live[i].block != NULL)
            check(&live[i], code);
}

/* Allocates in every way, and checks the content of all blocks. */
static void allocate_a_little(void)
{
    static const size_t sizes[] = {1, 24, 100, 500, 2000, 20000, 40000, 70000};
    struct known all[3 * COUNT(sizes)];
    size_t count = 0;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        all[count++] = known(malloc(sizes[i]), sizes[i]);
        char *zero = calloc(1, sizes[i]);
        if (zero == NULL || zero[0] != 0 || zero[sizes[i] - 1] != 0)
            _exit(4);
        all[count++] = known(realloc(zero, sizes[i] * 2), sizes[i] * 2);
        void *aligned = NULL;
        if (posix_memalign(&aligned, 256, sizes[i]) != 0 || (uintptr_t)aligned % 256 != 0)
            _exit(5);
        all[count++] = known(aligned, sizes[i]);
    }
    for (size_t i = 0; i < count; i++) {
        check(&all[i], 10);
        free(all[i].block);
    }
}

/* --- what the handler does -------------------------------------------------------------------- */

static void wait_for(pid_t child)
{
    int status = 1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    acts++;
    if (child > 0 && status == 0)
        return;
    if (failed++ < 20)
        dprintf(STDERR_FILENO, "status %x within %s\n", (unsigned)status, kind);
}

static void work_as_child(void)
{
    alarm(CHILD_HANGS_AFTER_S);
    allocate_a_little();
    check_all_live(20);
    for (size_t i = 0; i < LIVE; i += 3)
        free(live[i].block);
    free(known(malloc(500), 500).block);
}

static void fork_and_allocate(void)
{
    pid_t child = fork();
    if (child == 0) {
        work_as_child();
        _exit(0);
    }
    wait_for(child);
}

static void fork_twice(void)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_HANGS_AFTER_S);
        root = getpid();
        allocate_a_little();
        fork_and_allocate();
        _exit(failed != 0);
    }
    wait_for(child);
}

/* _Fork() runs no fork handlers. A libc without that function gets the system call. */
pid_t _Fork(void) __attribute__((weak));

static void fork_bare(void)
{
    pid_t child = _Fork != NULL ? _Fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        work_as_child();
        _exit(0);
    }
    wait_for(child);
}

/* The child has its parent's memory. The calls that were interrupted go on afterwards. */
static void vfork_and_allocate(void)
{
    pid_t child = vfork();
    if (child == 0) {
        allocate_a_little();
        _exit(0);
    }
    wait_for(child);
}

/* The child is a full program: it returns from the handler, and the interrupted call ends in it. */
static void fork_to_return(void)
{
    pid_t child = fork();
    is_child = child == 0;
    if (is_child)
        alarm(CHILD_HANGS_AFTER_S);
    else
        wait_for(child);
}

static bool visit(void *block, size_t bytes, void *context)
{
    (void)block, (void)bytes, (void)context;
    return true;
}

/* Calls every function that takes locks of the allocator. */
static void call_everything(void)
{
    struct cairn_stats stats;
    void (*gather)(struct cairn_stats *) =
        (void (*)(struct cairn_stats *))named("cairn_statistics");
    size_t (*json)(char *, size_t) = (size_t (*)(char *, size_t))named("cairn_statistics_json");
    size_t (*prometheus)(char *, size_t) =
        (size_t (*)(char *, size_t))named("cairn_statistics_prometheus");
    bool (*walk)(cairn_visitor, void *) = (bool (*)(cairn_visitor, void *))named("cairn_walk");
    void (*collect)(void) = (void (*)(void))named("cairn_collect");
    size_t (*purge)(size_t) = (size_t (*)(size_t))named("cairn_purge");
    size_t (*limit)(size_t) = (size_t (*)(size_t))named("cairn_limit");
    struct cairn_heap *(*create)(void) = (struct cairn_heap * (*)(void)) named("cairn_heap_create");
    void *(*allocate)(struct cairn_heap *, size_t) =
        (void *(*)(struct cairn_heap *, size_t))named("cairn_heap_malloc");
    void (*destroy)(struct cairn_heap *) =
        (void (*)(struct cairn_heap *))named("cairn_heap_destroy");
    static char text[CAIRN_PROMETHEUS_BYTES];
    gather(&stats);
    json(text, sizeof text);
    prometheus(text, sizeof text);
    walk(visit, NULL);
    collect();
    purge(0);
    limit(0);
    struct cairn_heap *heap = create();
    if (heap != NULL) {
        struct known in_heap = known(allocate(heap, 1000), 1000);
        check(&in_heap, 30);
        destroy(heap);
    }
    malloc_trim(0);
    mallinfo2();
    if (malloc_info(0, stdout) != 0)
        _exit(32);
}

static void fork_and_call_everything(void)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_HANGS_AFTER_S);
        call_everything();
        allocate_a_little();
        exit(0); /* with CAIRN_STATS set, statistics are written here */
    }
    wait_for(child);
}

/* --- stepping --------------------------------------------------------------------------------- */

static void (*act)(void);
static uintptr_t places[PLACES]; /* hash table of the instructions interrupted so far */
static size_t place_count;

/* Returns whether no call was interrupted at this instruction before, and remembers it. */
static bool is_new(uintptr_t place)
{
    size_t i = (size_t)(place * UINT64_C(0x9e3779b97f4a7c15) >> 48) % PLACES;
    for (; places[i] != 0; i = (i + 1) % PLACES)
        if (places[i] == place)
            return false;
    places[i] = place;
    if (++place_count == PLACES)
        _exit(9);
    return true;
}

static void on_step(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    int saved = errno;
    if (getpid() != root) {
        registers[REG_EFL] &= ~(greg_t)TRAP_FLAG;
    } else if (is_new((uintptr_t)registers[REG_RIP])) {
        act();
        if (is_child)
            registers[REG_EFL] &= ~(greg_t)TRAP_FLAG;
    }
    errno = saved;
}

static inline void step(void)
{
    __asm__ volatile("subq $128, %%rsp\n\t"
                     "pushfq\n\t"
                     "orq $0x100, (%%rsp)\n\t"
                     "popfq\n\t"
                     "addq $128, %%rsp" ::
                         : "memory", "cc");
}

static inline void step_no_more(void)
{
    __asm__ volatile("subq $128, %%rsp\n\t"
                     "pushfq\n\t"
                     "andq $~0x100, (%%rsp)\n\t"
                     "popfq\n\t"
                     "addq $128, %%rsp" ::
                         : "memory", "cc");
}

/* A child that returned from the handler goes on for a while, and ends. */
static void end_child(void)
{
    if (!is_child)
        return;
    allocate_a_little();
    check_all_live(40);
    for (size_t i = 0; i < LIVE; i++)
        free(live[i].block);
    allocate_a_little();
    malloc_trim(0);
    fflush(NULL);
    _exit(0);
}

/* Begins another kind of calls. Each instruction is interrupted again. */
static void begin(const char *name)
{
    kind = name;
    memset(places, 0, sizeof places);
    place_count = 0;
}

static void *stepped_malloc(size_t size)
{
    step();
    void *p = malloc(size);
    step_no_more();
    struct known block = known(p, size);
    check(&block, 50);
    end_child();
    return p;
}

static void stepped_free(void *p)
{
    step();
    free(p);
    step_no_more();
    end_child();
}

static void *stepped_realloc(void *p, size_t size, size_t least)
{
    struct known block = known(p, least);
    step();
    p = realloc(p, size);
    step_no_more();
    if (p == NULL)
        _exit(52);
    for (size_t i = 0; i < least && i < size; i++)
        if (((unsigned char *)p)[i] != block.fill)
            _exit(53);
    end_child();
    return p;
}

/* --- kinds of calls --------------------------------------------------------------------------- */

static void *freed_by_a_thread(void *argument)
{
    void **blocks = argument;
    for (size_t i = 0; blocks[i] != NULL; i++)
        free(blocks[i]);
    return NULL;
}

static void small(size_t size, const char *mallocs, const char *frees)
{
    enum { COUNT_MOST = 300 };
    static void *blocks[COUNT_MOST];
    size_t count = size < 1000 ? COUNT_MOST : 40;
    begin(mallocs);
    for (size_t i = 0; i < count; i++)
        blocks[i] = stepped_malloc(size);
    begin(frees);
    for (size_t i = 0; i < count; i++)
        stepped_free(blocks[i * 7 % count]);
    begin(mallocs);
    for (size_t i = 0; i < count; i++)
        blocks[i] = stepped_malloc(size);
    begin(frees);
    for (size_t i = 0; i < count; i++)
        stepped_free(blocks[i]);
}

static void large(size_t size)
{
    void *blocks[6];
    begin("malloc of a large block");
    for (size_t i = 0; i < COUNT(blocks); i++)
        blocks[i] = stepped_malloc(size + i * 17000);
    begin("free of a large block");
    for (size_t i = 0; i < COUNT(blocks); i++)
        stepped_free(blocks[i]);
    begin("malloc of a large block again");
    for (size_t i = 0; i < COUNT(blocks); i++)
        blocks[i] = stepped_malloc(size + i * 17000);
    begin("free of a large block again");
    for (size_t i = 0; i < COUNT(blocks); i++)
        stepped_free(blocks[i]);
}

static void resized(void)
{
    /* Few bytes are copied, because the processor traps after each of them. Blocks above 1 MiB
     * move without a copy. */
    begin("realloc");
    void *p = malloc(30);
    size_t size = 30;
    for (; size < 100000; size *= 4)
        p = stepped_realloc(p, size * 4, size);
    for (; size > 30; size /= 4)
        p = stepped_realloc(p, size / 4, size);
    free(p);
    p = malloc(1200000);
    void *behind = malloc(1200000);
    p = stepped_realloc(p, 2400000, 1200000);
    p = stepped_realloc(p, 3600000, 2400000);
    p = stepped_realloc(p, 1200000, 3600000);
    free(behind);
    free(p);
}

/* A thread that allocates blocks from its own heap and then ends. */
static void *allocate_many(void *argument)
{
    void **blocks = argument;
    for (size_t i = 0; i < 200; i++)
        blocks[i] = malloc(120);
    return NULL;
}

static void of_threads(void)
{
    static void *blocks[201];
    pthread_t thread;
    if (pthread_create(&thread, NULL, allocate_many, blocks) != 0)
        _exit(2);
    pthread_join(thread, NULL);
    begin("free of a block of an ended thread");
    for (size_t i = 0; i < 200; i++)
        stepped_free(blocks[i]);
    for (size_t i = 0; i < 200; i++)
        blocks[i] = malloc(120);
    if (pthread_create(&thread, NULL, freed_by_a_thread, blocks) != 0)
        _exit(2);
    pthread_join(thread, NULL);
    begin("malloc after a thread's frees");
    for (size_t i = 0; i < 200; i++)
        blocks[i] = stepped_malloc(120);
    begin("free after that");
    for (size_t i = 0; i < 200; i++)
        stepped_free(blocks[i]);
}

static void trimmed(void)
{
    begin("malloc_trim");
    step();
    malloc_trim(0);
    step_no_more();
    end_child();
}

static void forked(void)
{
    begin("fork");
    step();
    pid_t child = fork();
    step_no_more();
    if (child == 0 && !is_child)
        _exit(0);
    if (!is_child)
        waitpid(child, NULL, 0);
    end_child();
}

/* --- the ways --------------------------------------------------------------------------------- */

static const struct way {
    const char *name;
    void (*act)(void);
} ways[] = {
    {"fork", fork_and_allocate}, {"twice", fork_twice},
    {"_Fork", fork_bare},        {"vfork", vfork_and_allocate},
    {"returns", fork_to_return}, {"everything", fork_and_call_everything},
};

static void all_small(void)
{
    small(32, "malloc of 32", "free of 32");
    small(3000, "malloc of 3000", "free of 3000");
    small(30000, "malloc of 30000", "free of 30000");
}

static void all_large(void)
{
    large(60000);
    large(1500000);
}

static const struct calls {
    const char *name;
    void (*make)(void);
} calls[] = {
    {"small", all_small}, {"large", all_large}, {"realloc", resized},
    {"trim", trimmed},    {"fork", forked},     {"of threads", of_threads},
};

static void *sleep_on(void *argument)
{
    for (;;)
        pause();
    return argument;
}

static void run(const struct calls *what, bool with_thread)
{
    root = getpid();
    for (unsigned i = 0; i < LIVE; i++) {
        size_t size = size_of(i);
        live[i] = known(malloc(size), size);
    }
    for (size_t i = 0; i < LIVE; i += 4) {
        free(live[i].block);
        live[i].block = NULL;
    }
    pthread_t thread;
    if (with_thread && pthread_create(&thread, NULL, sleep_on, NULL) != 0)
        _exit(2);
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    what->make();
    check_all_live(60);
}

int main(int argc, char **argv)
{
    const struct calls *what = NULL;
    for (size_t i = 0; i < COUNT(calls) && argc == 4; i++)
        if (strcmp(calls[i].name, argv[2]) == 0)
            what = &calls[i];
    for (size_t i = 0; i < COUNT(ways) && what != NULL; i++)
        if (strcmp(ways[i].name, argv[1]) == 0)
            act = ways[i].act;
    if (act == NULL)
        return 2;
    alarm(HANGS_AFTER_S);
    run(what, strcmp(argv[3], "2") == 0);
    dprintf(STDOUT_FILENO, "%d of %d failed\n", failed, acts);
    return failed != 0;
}
