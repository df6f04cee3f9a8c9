/* test.h - a test framework in one header.
 *
 *     TEST(a_sentence_about_behaviour) { CHECK(condition); }
 *     int main(int argc, char **argv) { return test_main(argc, argv); }
 *
 * Each TEST registers itself. CHECK prints a failure and goes on. REQUIRE also leaves the test.
 * SKIP leaves a test that is impossible on this machine, and prints the reason. The program takes
 * an optional text, and runs only the tests whose names contain that text. It prints one line per
 * failure and a last line "N passed, N failed". If tests were skipped, the line also has their
 * number. The program exits with 1 if a test failed or none ran.
 *
 * TEST_WITHOUT_RACES is a TEST that the thread sanitizer's build leaves out, because the test takes
 * long and has one thread, or only threads that other tests have, too.
 */
#ifndef CAIRN_TEST_H
#define CAIRN_TEST_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct test {
    const char *name;
    void (*run)(void);
    struct test *next;
};

static struct test *test_first;
static struct test **test_end = &test_first;
static bool test_failed, test_skipped;

#define TEST(title)                                                                                \
    static void title(void);                                                                       \
    static struct test test_of_##title = {#title, title, NULL};                                    \
    __attribute__((constructor)) static void register_##title(void)                                \
    {                                                                                              \
        *test_end = &test_of_##title;                                                              \
        test_end = &test_of_##title.next;                                                          \
    }                                                                                              \
    static void title(void)

#ifdef __SANITIZE_THREAD__
#define TEST_WITHOUT_RACES(title) __attribute__((unused)) static void title(void)
#else
#define TEST_WITHOUT_RACES TEST
#endif

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: not true: %s\n", __FILE__, __LINE__, __func__,             \
                    #condition);                                                                   \
            test_failed = true;                                                                    \
        }                                                                                          \
    } while (0)

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        CHECK(condition);                                                                          \
        if (test_failed)                                                                           \
            return;                                                                                \
    } while (0)

#define SKIP(reason)                                                                               \
    do {                                                                                           \
        fprintf(stderr, "%s: skipped: %s\n", __func__, reason);                                    \
        test_skipped = true;                                                                       \
        return;                                                                                    \
    } while (0)

static int test_main(int argc, char **argv)
{
    unsigned passed = 0, failed = 0, skipped = 0;
    for (struct test *test = test_first; test != NULL; test = test->next) {
        if (argc > 1 && strstr(test->name, argv[1]) == NULL)
            continue;
        test_failed = test_skipped = false;
        test->run();
        if (test_failed)
            failed++;
        else if (test_skipped)
            skipped++;
        else
            passed++;
    }
    printf("%u passed, %u failed", passed, failed);
    if (skipped > 0)
        printf(", %u skipped", skipped);
    printf("\n");
    return failed > 0 || passed + skipped == 0 ? 1 : 0;
}

#endif
