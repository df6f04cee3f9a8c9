/* probe_futex_lock.c - tests of the lock that the probe itself takes. */
#include "probe/futex_lock.h"

#include "test.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 20000 };

static struct futex_lock lock;
static unsigned long changed; /* not atomic: the lock protects it */

TEST(a_taken_lock_is_taken_until_it_is_dropped)
{
    futex_lock_take(&lock);
    CHECK(atomic_load(&lock.state) == 1);
    CHECK(!futex_lock_take_soon(&lock));
    futex_lock_drop(&lock);
    CHECK(atomic_load(&lock.state) == 0);
    REQUIRE(futex_lock_take_soon(&lock));
    CHECK(atomic_load(&lock.state) == 1);
    CHECK(!futex_lock_take_soon(&lock));
    futex_lock_drop(&lock);
    CHECK(atomic_load(&lock.state) == 0);
}

TEST(a_reset_frees_a_lock_and_says_whether_it_was_taken)
{
    CHECK(!futex_lock_reset(&lock));
    futex_lock_take(&lock);
    CHECK(futex_lock_reset(&lock));
    CHECK(atomic_load(&lock.state) == 0 && !futex_lock_reset(&lock));
}

static void *change(void *soon)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (soon == NULL)
            futex_lock_take(&lock);
        else
            while (!futex_lock_take_soon(&lock))
                continue;
        unsigned long before = changed;
        if (i % 64 == 0)
            cpu_relax();
        changed = before + 1;
        futex_lock_drop(&lock);
    }
    return NULL;
}

TEST(one_thread_at_a_time_has_the_lock)
{
    pthread_t threads[THREADS];
    changed = 0;
    for (size_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, change, i % 2 ? &lock : NULL) == 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(changed == THREADS * ROUNDS);
    CHECK(atomic_load(&lock.state) == 0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
