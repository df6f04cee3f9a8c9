/* probe_session.c - tests how the session counts threads. */
#include "probe/session.h"

#include "test.h"

/* Its number once counted among the most threads at once. */
TEST(a_thread_that_pthread_create_could_not_make_was_never_alive)
{
    static struct profile_head head = {.threads_live = 1, .threads_started = 1, .threads_most = 1};
    session.head = &head;
    CHECK(session_thread_comes() == 2);
    CHECK(atomic_load(&session.parallel));
    session_thread_stays_away();
    CHECK(head.threads_live == 1 && head.threads_started == 1 && head.threads_most == 1);
    CHECK(!atomic_load(&session.parallel));
    session_thread_came(session_thread_comes());
    CHECK(head.threads_live == 2 && head.threads_started == 2 && head.threads_most == 2);
    session.head = NULL;
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
