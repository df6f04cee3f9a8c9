/* os_lock.c - tests of waiting for a lock for a limited time. */
#include "os/lock.h"

#include "base/clock.h"
#include "test.h"

#include <pthread.h>

enum { WAIT_MS = 100, LATE_MS = 5000 };

static struct lock lock;
static _Atomic bool ends;

/* Wakes a thread that waits for the lock, again and again, as if the lock had been released. */
static void *wakes(void *unused)
{
    while (!atomic_load(&ends))
        os_wake(&lock.state);
    return unused;
}

static unsigned waited_ms(bool *got)
{
    uint64_t begin = clock_now_ns();
    *got = lock_acquire_within(&lock, WAIT_MS);
    return (unsigned)((clock_now_ns() - begin) / 1000000);
}

/* A wait once counted as a millisecond, however long it was. */
TEST(a_lock_is_waited_for_until_the_time_is_over)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, wakes, NULL) == 0);
    lock_acquire(&lock);
    bool got = true;
    unsigned waited = waited_ms(&got);
    CHECK(!got && waited >= WAIT_MS && waited < LATE_MS);
    lock_release(&lock);
    waited_ms(&got);
    CHECK(got);
    lock_release(&lock);
    atomic_store(&ends, true);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
