/* witness_record.c - tests that every record is one whole line of JSON, and that the record goes to
 * the file that CAIRN_WITNESS names. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "test.h"
#include "witness/environment.h"
#include "witness/record.h"

static char path[] = "/tmp/cairn-witness-XXXXXX";

static struct text add(char *buffer, size_t capacity, const char *value, size_t limit)
{
    struct text line = text_over(buffer, capacity);
    text_add_char(&line, '{');
    record_add(&line, "k", value, limit);
    return line;
}

TEST(a_value_that_fits_is_whole_and_a_longer_one_says_that_it_was_cut)
{
    char buffer[200];
    CHECK(strcmp(add(buffer, sizeof buffer, "", 4).data, "{\"k\":\"\"") == 0);
    CHECK(strcmp(add(buffer, sizeof buffer, "abcd", 4).data, "{\"k\":\"abcd\"") == 0);
    CHECK(strcmp(add(buffer, sizeof buffer, "abcde", 4).data, "{\"k\":\"abcd[cut]\"") == 0);
}

TEST(a_cut_never_falls_inside_an_escape)
{
    char buffer[200];
    CHECK(strcmp(add(buffer, sizeof buffer, "abc\"", 4).data, "{\"k\":\"abc[cut]\"") == 0);
    CHECK(strcmp(add(buffer, sizeof buffer, "ab\"", 4).data, "{\"k\":\"ab\\\"\"") == 0);
    CHECK(strcmp(add(buffer, sizeof buffer, "\xff\xff", 11).data, "{\"k\":\"\\u00ff[cut]\"") == 0);
    CHECK(strcmp(add(buffer, sizeof buffer, "\x7f\n", 12).data, "{\"k\":\"\\u007f\\u000a\"") == 0);
}

/* A path takes no more room than record.h promises. The test tries every byte value and many
 * lengths. */
TEST(no_value_takes_more_room_than_its_limit)
{
    static char value[5000];
    static char buffer[8192];
    for (int byte = 1; byte < 256; byte++)
        for (size_t length = 0; length < sizeof value - 1; length += 83) {
            memset(value, byte, length);
            value[length] = '\0';
            struct text line = add(buffer, sizeof buffer, value, RECORD_PATH_BYTES);
            CHECK(!line.truncated);
            CHECK(line.length <= strlen("{\"k\":\"\"") + RECORD_PATH_BYTES + RECORD_CUT_BYTES);
        }
}

TEST(a_line_is_appended_whole_and_a_truncated_one_not_at_all)
{
    char buffer[100];
    char read_back[200] = "";
    struct text line = text_over(buffer, sizeof buffer);
    record_begin(&line, "start", 7);
    record_end(&line);
    line = text_over(buffer, 30);
    record_begin(&line, "start", 7);
    record_end(&line);
    line = text_over(buffer, sizeof buffer);
    record_begin(&line, "exec", 8);
    record_end(&line);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(read(fd, read_back, sizeof read_back - 1) > 0);
    CHECK(strcmp(read_back, "{\"v\":1,\"event\":\"start\",\"pid\":7}\n"
                            "{\"v\":1,\"event\":\"exec\",\"pid\":8}\n") == 0);
    close(fd);
}

TEST(a_variable_is_found_by_its_whole_name)
{
    char *const environment[] = {"PATHS=1", "PAT=2", "PATH=3", "PATH=4", "EMPTY=", NULL};
    CHECK(strcmp(environment_value(environment, "PATH"), "3") == 0);
    CHECK(strcmp(environment_value(environment, "EMPTY"), "") == 0);
    CHECK(environment_value(environment, "ATH") == NULL);
    CHECK(environment_value(NULL, "PATH") == NULL);
}

TEST(a_word_is_found_between_any_of_the_separators)
{
    CHECK(environment_list_has("/a/us.so:/b/other.so", "/: ", "us.so", 5));
    CHECK(environment_list_has("/b/other.so us.so", "/: ", "us.so", 5));
    CHECK(environment_list_has("us.so", "/: ", "us.so", 5));
    CHECK(!environment_list_has("/b/other-us.so:us.so.1", "/: ", "us.so", 5));
    CHECK(!environment_list_has("", ":", "us.so", 5));
}

int main(int argc, char **argv)
{
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0 || setenv("CAIRN_WITNESS", path, 1) != 0)
        return 1;
    close(fd);
    int result = test_main(argc, argv);
    unlink(path);
    return result;
}
