/* lock.c - explores the lock of src/os with a simulated kernel: at most one thread holds the lock,
 * and no thread sleeps forever. */
#include "explore.h"

#include "../unit/test.h"

#include "base/cpu.h"
/* This macro makes lock_wait() check the lock only once before it waits in the kernel. More checks
 * would add executions, but no new outcome. */
#define cpu_relax() break
#include "os/lock.c"

/* The memory that the threads share, and the only memory that is tracked. */
static struct {
    _Alignas(64) struct lock lock;
    uint64_t count;
} shared;

/* 1 while a thread sleeps in the simulated kernel. */
static uint32_t sleeps[MODEL_CHECKER_THREADS_MAX];

static unsigned rounds;
static bool wakes_are_lost;

/* Returns the value of the word. The kernel's read is no step of a thread. */
__attribute__((no_sanitize("thread"), noinline)) static uint32_t look_at(_Atomic uint32_t *word)
{
    return *(volatile uint32_t *)word;
}

void os_wait(_Atomic uint32_t *word, uint32_t value)
{
    int self = model_checker_self();
    explore_step(EXPLORE_CHANGE, memory_object((const void *)word, sizeof *word, false));
    uint32_t now = look_at(word);
    explore_came_to(now);
    if (now != value)
        return;
    model_checker_note("falls asleep", NULL);
    sleeps[self] = 1;
    explore_step(EXPLORE_TAKE, memory_object(&sleeps[self], sizeof sleeps[self], true));
}

void os_wake(_Atomic uint32_t *word)
{
    explore_step(EXPLORE_CHANGE, memory_object((const void *)word, sizeof *word, false));
    explore_came_to(look_at(word));
    if (wakes_are_lost)
        return;
    for (unsigned i = 0; i < MODEL_CHECKER_THREADS_MAX; i++) {
        if (sleeps[i] != 0) {
            sleeps[i] = 0;
            explore_dropped(memory_object(&sleeps[i], sizeof sleeps[i], true));
            return;
        }
    }
}

/* --- functions for parts of the lock that are not explored ------------------------------------ */

void os_wait_ms(_Atomic uint32_t *word, uint32_t value, unsigned ms)
{
    (void)word, (void)value, (void)ms;
    model_checker_fail("os_wait_ms() is called");
}

void *os_map_for_one_process(void)
{
    return NULL;
}

bool os_unmap(void *start, size_t bytes)
{
    (void)start, (void)bytes;
    return false;
}

size_t os_page_bytes(void)
{
    return 4096;
}

static void nothing(void)
{
}

static void begin(void)
{
    memset(sleeps, 0, sizeof sleeps);
}

static void nothing_of(unsigned thread)
{
    (void)thread;
}

static void count(unsigned self)
{
    (void)self;
    for (unsigned i = 0; i < rounds; i++) {
        lock_take(&shared.lock);
        shared.count++;
        lock_drop(&shared.lock);
    }
}

static unsigned expected;

static void check(void)
{
    if (shared.count != expected)
        model_checker_fail("the lock was taken %llu times, not %u times",
                           (unsigned long long)shared.count, expected);
    if (shared.lock.state != 0)
        model_checker_fail("no thread holds the lock, but its state is %u", shared.lock.state);
}

static struct model_checker_result explore(unsigned threads, unsigned times, unsigned stale_most)
{
    rounds = times;
    expected = threads * times;
    struct model_checker_plan plan = {
        .name = "lock",
        .threads = threads,
        .setup = nothing,
        .begin = begin,
        .body = count,
        .enter = nothing_of,
        .leave = nothing_of,
        .check = check,
        .stale_most = stale_most,
        .executions_most = UINT64_MAX,
        .quiet = wakes_are_lost,
    };
    struct model_checker_result result = model_checker_explore(&plan);
    printf("  %u threads, %u times each, %u stale: %llu executions, %llu cut\n", threads, times,
           stale_most, (unsigned long long)result.executions, (unsigned long long)result.cut);
    return result;
}

TEST(the_lock_excludes_and_wakes_waiting_threads)
{
    CHECK(!explore(2, 2, 2).failed);
    CHECK(!explore(3, 1, 1).failed);
}

TEST(a_lost_wake_is_found)
{
    wakes_are_lost = true;
    CHECK(explore(2, 1, 0).failed);
    wakes_are_lost = false;
}

void model_checker_describe(const void *address, char *name, size_t bytes)
{
    bool lock = address == &shared.lock;
    snprintf(name, bytes, "%s",
             lock                       ? "the lock"
             : address == &shared.count ? "the count"
                                        : "the wait of a thread");
}

void model_checker_describe_value(const void *address, uint64_t value, char *text, size_t bytes)
{
    (void)address;
    snprintf(text, bytes, "%llu", (unsigned long long)value);
}

const char *model_checker_thread_name(unsigned thread)
{
    static const char *const names[] = {"A", "B", "C", "D"};
    return names[thread];
}

int main(int argc, char **argv)
{
    __libc_single_threaded = 0; /* glibc does not know the threads of the model */
    memory_track(&shared, sizeof shared);
    return test_main(argc, argv);
}
