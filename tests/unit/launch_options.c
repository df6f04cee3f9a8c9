#define _GNU_SOURCE 1

#include "launch/options.h"

#include "test.h"

static char *arg(const char *text)
{
    return (char *)(uintptr_t)text;
}

TEST(options_default_to_the_measured_program_alone)
{
    struct options options;
    char *argv[] = {arg("cairn-launch"), arg("--report-fd"), arg("7"), arg("--"),
                    arg("true"),         arg("--x"),         NULL};
    REQUIRE(options_parse(&options, argv) == OPTIONS_RUN);
    CHECK(options.report_fd == 7);
    CHECK(options.memory == OPTIONS_MEMORY_AUTO);
    CHECK(options.timeout_ns == 0);
    CHECK(options.grace_ns == 2 * NS_PER_S);
    CHECK(!options.terminal && !options.counters && !options.no_core && !options.has_cpus &&
          options.cpu_samples_path == NULL && options.reaped_path == NULL);
    CHECK(options.edit_count == 0);
    CHECK(strcmp(options.command[0], "true") == 0);
    CHECK(strcmp(options.command[1], "--x") == 0);
    CHECK(options.command[2] == NULL);
}

TEST(options_keep_edits_of_the_environment_in_order)
{
    struct options options;
    char *argv[] = {
        arg("cairn-launch"),
        arg("--setenv"),
        arg("A=1"),
        arg("--report-fd"),
        arg("3"),
        arg("--unsetenv"),
        arg("B"),
        arg("--setenv"),
        arg("C=two=three"),
        arg("--setenv"),
        arg("D="),
        arg("--"),
        arg("env"),
        NULL,
    };
    REQUIRE(options_parse(&options, argv) == OPTIONS_RUN);
    REQUIRE(options.edit_count == 4);
    static const char *const expected[] = {"A=1", "B", "C=two=three", "D="};
    for (size_t i = 0; i < 4; i++)
        CHECK(strcmp(options.edits[i], expected[i]) == 0);
    CHECK(strcmp(options.command[0], "env") == 0);
}

TEST(options_of_the_end_of_processes_are_kept)
{
    struct options options;
    char *argv[] = {arg("cairn-launch"), arg("--endings"),   arg("file"),
                    arg("--no-core"),    arg("--report-fd"), arg("3"),
                    arg("--"),           arg("true"),        NULL};
    REQUIRE(options_parse(&options, argv) == OPTIONS_RUN);
    CHECK(options.no_core);
    CHECK(strcmp(options.reaped_path, "file") == 0);
}

TEST(wrong_options_are_reported)
{
    static const char *const wrong[][6] = {
        {"--report-fd"},
        {"--report-fd", "x", "--", "true"},
        {"--report-fd", "-1", "--", "true"},
        {"--report-fd", "99999999999", "--", "true"},
        {"--report-fd", "3"},
        {"--report-fd", "3", "--"},
        {"--report-fd", "3", "true"},
        {"--", "true"},
        {"--nonsense", "--", "true"},
        {"--timeout", "0", "--", "true"},
        {"--timeout", "1s", "--", "true"},
        {"--memory", "all", "--", "true"},
        {"--setenv", "A", "--", "true"},
        {"--setenv", "=1", "--", "true"},
        {"--unsetenv", "A=1", "--", "true"},
        {"--unsetenv", "", "--", "true"},
        {"--cpus", "", "--", "true"},
        {"--cpu-samples"},
        {"--endings"},
        {"--touch", "1k"},
        {"--touch", "0"},
        {"--touch", "5", "--", "true"},
    };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        char *argv[8] = {arg("cairn-launch")};
        for (size_t j = 0; j < 6 && wrong[i][j] != NULL; j++)
            argv[j + 1] = arg(wrong[i][j]);
        struct options options;
        CHECK(options_parse(&options, argv) == OPTIONS_WRONG);
        CHECK(options.complaint != NULL);
    }
    char *nothing[] = {NULL};
    struct options options;
    CHECK(options_parse(&options, nothing) == OPTIONS_WRONG);
}

TEST(options_ask_for_other_tasks)
{
    struct options options;
    CHECK(options_parse(&options, (char *[]){arg("x"), arg("--help"), NULL}) == OPTIONS_HELP);
    CHECK(options_parse(&options, (char *[]){arg("x"), arg("--version"), NULL}) == OPTIONS_VERSION);
    CHECK(options_parse(&options, (char *[]){arg("x"), arg("--touch"), arg("4096"), NULL}) ==
          OPTIONS_TOUCH);
    CHECK(options.touch_bytes == 4096);
}

TEST(options_seconds_are_read_to_the_nanosecond)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } right[] = {
        {"0", 0},
        {"1", NS_PER_S},
        {"0.5", NS_PER_S / 2},
        {"1.25", 1250 * NS_PER_MS},
        {"0.000000001", 1},
        {"12.345678901", UINT64_C(12345678901)},
        {"1000000000", UINT64_C(1000000000) * NS_PER_S},
    };
    static const char *const wrong[] = {
        "",    ".",   "1.",  ".5",           "-1",         "1e3",
        "1 ",  " 1",  "0x1", "1.0000000001", "1000000001", "99999999999999999999",
        "inf", "nan", "1,5"};
    for (size_t i = 0; i < COUNT_OF(right); i++) {
        uint64_t ns = 0;
        CHECK(options_parse_seconds(right[i].text, &ns));
        CHECK(ns == right[i].ns);
    }
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        uint64_t ns;
        if (options_parse_seconds(wrong[i], &ns))
            fprintf(stderr, "accepted '%s'\n", wrong[i]);
        CHECK(!options_parse_seconds(wrong[i], &ns));
    }
}

TEST(options_cpus_are_a_list_of_ranges)
{
    cpu_set_t cpus;
    REQUIRE(options_parse_cpus("0,2-4,7", &cpus));
    CHECK(CPU_COUNT(&cpus) == 5);
    CHECK(CPU_ISSET(0, &cpus) && CPU_ISSET(2, &cpus) && CPU_ISSET(3, &cpus) && CPU_ISSET(4, &cpus));
    CHECK(CPU_ISSET(7, &cpus) && !CPU_ISSET(1, &cpus));
    static const char *const wrong[] = {
        "", ",", "0,", ",0", "3-2", "1-", "-1", "a", "0 1", "1024", "0-99999999999999999999"};
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        CHECK(!options_parse_cpus(wrong[i], &cpus));
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
