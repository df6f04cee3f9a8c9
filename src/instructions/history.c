#include "instructions/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    NAME_BYTES = 160,
    PATH_BYTES = 4096,
    WINDOW_LEAST = 64 << 10, /* a multiple of every page size */
    WINDOW_MOST = 1 << 20,
    STARTS_MOST = 1000000,
};

static const char *folder;
static bool learns;
static char process[NAME_BYTES];
static bool has_forked;             /* this process is the child of a fork */
static uint32_t children;           /* forks that this process has made */
static _Atomic uint32_t threads;    /* threads of this process that have a number */
static struct history_account none; /* used if there is no file */
static struct history_account *account = &none;

/* --- valgrind --------------------------------------------------------------------------------- */

enum {
    RUNNING_ON_VALGRIND = 0x1001,
    CALLGRIND_ZERO_STATS = ('C' << 24 | 'T' << 16) + 1,
};

/* Sends valgrind a request, as <valgrind/valgrind.h> does. Returns 0 outside of valgrind, where the
 * instructions do nothing. */
static uint64_t ask_valgrind(uint64_t request)
{
    volatile uint64_t words[6] = {request, 0, 0, 0, 0, 0};
    uint64_t result = 0;
#if defined(__x86_64__)
    __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi\n\t"
                     "xchgq %%rbx, %%rbx"
                     : "+d"(result)
                     : "a"(words)
                     : "cc", "memory");
#elif defined(__aarch64__)
    register uint64_t answer __asm__("x3") = 0;
    register volatile uint64_t *question __asm__("x4") = words;
    __asm__ volatile("ror x12, x12, #3; ror x12, x12, #13; ror x12, x12, #51; ror x12, x12, #61\n\t"
                     "orr x10, x10, x10"
                     : "+r"(answer)
                     : "r"(question)
                     : "cc", "memory");
    result = answer;
#else
    (void)words;
#endif
    return result;
}

/* --- files ------------------------------------------------------------------------------------ */

/* Makes the file longer: it gets the bytes [from, to), with blocks on the disk. Without blocks, a
 * write to the mapped file would raise SIGBUS on a full disk. A file beyond the limit of file sizes
 * would raise SIGXFSZ. Returns false if there is no room. */
static bool lengthen(int file, uint64_t from, uint64_t to)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || to > limit.rlim_cur)
        return false;
    int error;
    do
        error = posix_fallocate(file, (off_t)from, (off_t)(to - from));
    while (error == EINTR); /* by a signal of the program */
    return error == 0;
}

/* --- the process ------------------------------------------------------------------------------ */

/* Makes the file of the account, and maps it. Returns false if it exists already. */
static bool claim(void)
{
    char path[PATH_BYTES];
    int length =
        snprintf(path, sizeof path, "%s/%s/%s", folder, learns ? "starts" : "told", process);
    int file =
        length < (int)sizeof path ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (file < 0)
        return errno != EEXIST;
    void *memory = MAP_FAILED;
    if (lengthen(file, 0, sizeof *account))
        memory = mmap(NULL, sizeof *account, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory != MAP_FAILED)
        account = memory;
    return true;
}

void history_begin(const char *owner)
{
    char program[sizeof account->program] = "";
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    if (!has_forked) {
        const char *run = getenv("CAIRN_INSTRUCTIONS_RUN");
        const char *slash = strrchr(program, '/');
        /* The process that becomes valgrind loads this library, too, but outside of valgrind. This
         * process must not write files. */
        folder = ask_valgrind(RUNNING_ON_VALGRIND) != 0 ? getenv("CAIRN_INSTRUCTIONS") : NULL;
        learns = run != NULL && strcmp(run, "learn") == 0;
        for (unsigned start = 0; folder != NULL && start < STARTS_MOST; start++) {
            snprintf(process, sizeof process, "%.100s-%u", slash != NULL ? slash + 1 : "", start);
            if (claim())
                break;
        }
    } else if (folder != NULL) {
        (void)claim();
    }
    snprintf(account->program, sizeof account->program, "%s", program);
    snprintf(account->owner, sizeof account->owner, "%s", owner);
}

void history_before_fork(void)
{
    children++;
}

static void unmap_window(struct history_thread *me)
{
    if (me->window != NULL)
        munmap(me->window, me->end - me->begin);
    me->window = NULL;
}

void history_forked(struct history_thread *me)
{
    size_t length = strlen(process);
    snprintf(process + length, sizeof process - length, ".%u", children);
    has_forked = true;
    children = 0;
    atomic_store(&threads, 0);
    unmap_window(me);
    *me = (struct history_thread){0};
    account = &none;
    (void)ask_valgrind(CALLGRIND_ZERO_STATS);
}

/* --- a thread --------------------------------------------------------------------------------- */

static int open_file(const struct history_thread *me)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/learnt/%s.%u", folder, process, me->number);
    if (length >= (int)sizeof path)
        return -1;
    return open(path, (learns ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC, 0600);
}

/* Returns the size of the window at `begin`. The first windows are small, because most threads
 * allocate little, and each window takes room on the disk. Up to WINDOW_MOST, a window is as large
 * as all windows before it together. So `begin` is always a multiple of the size. */
static uint64_t window_bytes(uint64_t begin)
{
    if (begin < WINDOW_LEAST)
        return WINDOW_LEAST;
    return begin < WINDOW_MOST ? begin : WINDOW_MOST;
}

/* Maps the part of the file that begins with the thread's next allocation. No descriptor stays
 * open, because a program may close descriptors that it does not know. */
static void map_window(struct history_thread *me)
{
    unmap_window(me);
    me->begin = me->place;
    me->end = me->begin + window_bytes(me->begin);
    if (me->place == 0)
        me->number = atomic_fetch_add(&threads, 1);
    int file = folder != NULL ? open_file(me) : -1;
    void *memory = MAP_FAILED;
    if (file >= 0 &&
        (learns ? lengthen(file, me->begin, me->end) : lseek(file, 0, SEEK_END) >= (off_t)me->end))
        memory = mmap(NULL, me->end - me->begin, learns ? PROT_READ | PROT_WRITE : PROT_READ,
                      MAP_SHARED, file, (off_t)me->begin);
    if (file >= 0)
        close(file);
    if (memory != MAP_FAILED)
        me->window = memory;
    else
        me->failed = true;
}

enum path history_next(struct history_thread *me)
{
    if (me->place == me->end && !me->failed)
        map_window(me);
    if (learns || me->window == NULL)
        return PATH_UNTOLD;
    uint8_t path = me->window[me->place - me->begin];
    return path == PATH_NEW || path == PATH_REUSED ? (enum path)path : PATH_UNTOLD;
}

void history_tell(struct history_thread *me, enum path said, enum path path)
{
    if (learns && me->window != NULL)
        me->window[me->place - me->begin] = (uint8_t)path;
    me->place++;
    account->allocations++;
    if (said != path && said != PATH_UNTOLD)
        account->wrong++;
}

void history_count_nested(void)
{
    account->nested++;
}
