#define _GNU_SOURCE 1

#include "launch/series.h"

#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KIB UINT64_C(1024)

TEST(series_integrates_memory_that_changes_evenly)
{
    struct series series = {0};
    series_add(&series, 0, 0, false);
    series_add(&series, 10 * NS_PER_US, 100 * KIB, false);
    series_add(&series, 30 * NS_PER_US, 100 * KIB, false);
    series_check(&series);
    CHECK(series.count == 3);
    CHECK(series.points[1].kib_us == 10 * 50);
    CHECK(series.points[2].kib_us == 10 * 50 + 20 * 100);
}

/* The second reading is taken after the end of the program, and so finds no memory. Until its end,
 * the program counts with the memory of the reading before. Between two readings of a living
 * program, memory changes evenly. */
TEST(series_holds_memory_until_the_end)
{
    struct series series = {0};
    series_add(&series, 0, 100 * KIB, false);
    series_add(&series, 10 * NS_PER_US, 0, true);
    CHECK(series.last.kib_us == 10 * 100);
    CHECK(series.last.bytes == 100 * KIB);
}

TEST(series_keeps_moments_at_equal_distances_however_long_it_gets)
{
    for (uint64_t readings = 1; readings < 5000; readings += 37) {
        struct series series = {0};
        for (uint64_t i = 0; i < readings; i++)
            series_add(&series, i * NS_PER_MS, i * KIB, false);
        series_check(&series);
        CHECK(series.points[0].at_us == 0);
        CHECK(series.count > SERIES_POINTS / 2 || series.stride == 1);
        for (size_t i = 0; i < series.count; i++) {
            uint64_t at = i * series.stride;
            CHECK(series.points[i].at_us == at * 1000 && series.points[i].bytes == at * KIB);
        }
        CHECK(series.last.at_us == (readings - 1) * 1000);
    }
}

/* The integral once had 64 bits. It wrapped around after 4.8 hours, and the launcher aborted
 * without a report. */
TEST(series_of_a_terabyte_for_thirty_days_does_not_overflow)
{
    struct series series = {0};
    const uint64_t terabyte = UINT64_C(1) << 40, hour_us = UINT64_C(3600) * 1000 * 1000;
    const uint64_t hours = 30 * 24;
    for (uint64_t i = 0; i <= hours; i++)
        series_add(&series, i * hour_us * NS_PER_US, terabyte, false);
    series_check(&series);
    CHECK(series.last.kib_us / (hours * hour_us) == terabyte / KIB);
    char path[] = "/tmp/cairn-series-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK(series_write(&series, path));
    static char text[SERIES_POINTS * 64];
    CHECK(read(fd, text, sizeof text - 1) > 0);
    CHECK(strstr(text, "\n2592000000000 1099511627776 2783138807808000000000\n") != NULL);
    close(fd);
    unlink(path);
}

TEST(series_is_written_with_its_last_reading)
{
    struct series series = {0};
    series_add(&series, 5 * NS_PER_US, 2 * KIB, false);
    series_add(&series, 7 * NS_PER_US, 2 * KIB, false);
    series.stride = 4;
    series_add(&series, 8 * NS_PER_US, 0, true);
    char path[] = "/tmp/cairn-series-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK(series_write(&series, path));
    char text[256] = {0};
    CHECK(read(fd, text, sizeof text - 1) > 0);
    CHECK(strcmp(text, "5 2048 0\n7 2048 4\n8 2048 6\n") == 0);
    close(fd);
    unlink(path);
    CHECK(!series_write(&series, "/nowhere/series"));
}

/* The memory at the end of the idle time of a server was once interpolated between two points that
 * were seconds apart, and the later point lay after the end of the server. */
TEST(series_keeps_the_marked_reading_however_long_it_gets)
{
    for (uint64_t marked = 0; marked < 3000; marked += 97) {
        struct series series = {0};
        for (uint64_t i = 0; i < 3000; i++) {
            series_add(&series, i * NS_PER_MS, i == marked ? 8 * KIB : 0, false);
            if (i == marked)
                series_mark(&series);
        }
        series_check(&series);
        char path[] = "/tmp/cairn-series-XXXXXX";
        int fd = mkstemp(path);
        CHECK(fd >= 0);
        CHECK(series_write(&series, path));
        FILE *file = fdopen(fd, "r");
        CHECK(file != NULL);
        /* Memory rises to 8 KiB within 1 ms before the marked reading, and falls as fast. */
        const unsigned long long rise = marked == 0 ? 0 : 4 * 1000, fall = 4 * 1000;
        unsigned long long at_us, bytes, kib_us, before_us = 0;
        size_t lines = 0, found = 0;
        while (fscanf(file, "%llu %llu %llu", &at_us, &bytes, &kib_us) == 3) {
            CHECK(lines == 0 || at_us > before_us);
            before_us = at_us;
            lines++;
            bool is_marked = at_us == marked * 1000;
            found += is_marked && bytes == 8 * KIB;
            CHECK(kib_us == (at_us < marked * 1000 ? 0 : rise + (is_marked ? 0 : fall)));
        }
        CHECK(found == 1);
        CHECK(lines >= series.count && lines <= series.count + 2);
        fclose(file);
        unlink(path);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
