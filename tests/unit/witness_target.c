/* witness_target.c - tests how executable files are classified, with real files. Their headers are
 * the smallest valid ones. */
#define _GNU_SOURCE 1
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "test.h"
#include "witness/target.h"

static char folder[] = "/tmp/cairn-witness-XXXXXX";

struct program {
    ElfW(Ehdr) header;
    ElfW(Phdr) segments[20];
};

/* Returns a program for this machine with segments 0 to 19. Segment `interpreter_at` is PT_INTERP.
 * If `interpreter_at` is 20, no segment is. */
static struct program program_with(size_t interpreter_at)
{
    extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));
    struct program program = {.header = __ehdr_start};
    program.header.e_type = ET_DYN;
    program.header.e_phoff = offsetof(struct program, segments);
    program.header.e_phnum = COUNT_OF(program.segments);
    program.header.e_phentsize = sizeof program.segments[0];
    for (size_t i = 0; i < COUNT_OF(program.segments); i++)
        program.segments[i].p_type = i == interpreter_at ? PT_INTERP : PT_LOAD;
    return program;
}

static enum target_kind kind_of_bytes(const void *bytes, size_t count, const char *name)
{
    char interpreter[TARGET_INTERPRETER_BYTES];
    int fd = memfd_create("target", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, count) != (ssize_t)count)
        abort();
    enum target_kind kind = target_of(fd, name, interpreter);
    close(fd);
    return kind;
}

/* Writes a file with these permissions into the folder of the test. Returns its path, in one of
 * eight buffers that are used in turn. */
static const char *file_with(const char *name, const void *bytes, size_t count, mode_t mode)
{
    static char paths[8][PATH_MAX];
    static unsigned turn;
    char *path = paths[turn++ % COUNT_OF(paths)];
    snprintf(path, PATH_MAX, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, count) != (ssize_t)count || fchmod(fd, mode) != 0)
        abort();
    close(fd);
    return path;
}

static const char *script(const char *name, const char *text)
{
    return file_with(name, text, strlen(text), 0755);
}

static const char *program(const char *name, size_t interpreter_at)
{
    struct program bytes = program_with(interpreter_at);
    return file_with(name, &bytes, sizeof bytes, 0755);
}

TEST(the_running_test_is_dynamic_unless_it_was_linked_statically)
{
    bool is_dynamic = false;
    const ElfW(Phdr) *segments = (const void *)getauxval(AT_PHDR);
    for (size_t i = 0; i < getauxval(AT_PHNUM); i++)
        is_dynamic |= segments[i].p_type == PT_INTERP;
    CHECK(target_at(AT_FDCWD, "/proc/self/exe", 0) ==
          (is_dynamic ? TARGET_DYNAMIC : TARGET_STATIC));
}

TEST(an_interpreter_segment_is_found_wherever_it_stands)
{
    for (size_t at = 0; at < 20; at++) {
        struct program bytes = program_with(at);
        CHECK(kind_of_bytes(&bytes, sizeof bytes, "x") == TARGET_DYNAMIC);
    }
    struct program bytes = program_with(20);
    CHECK(kind_of_bytes(&bytes, sizeof bytes, "x") == TARGET_STATIC);
}

/* A truncated file is classified by the part that exists, and never crashes. */
TEST(a_truncated_program_is_never_dynamic_before_its_interpreter_segment_is_whole)
{
    struct program bytes = program_with(3);
    size_t whole = offsetof(struct program, segments[8]); /* segments are read eight at a time */
    for (size_t count = 0; count <= sizeof bytes; count++) {
        enum target_kind kind = kind_of_bytes(&bytes, count, "x");
        if (count < sizeof bytes.header)
            CHECK(kind == TARGET_UNKNOWN);
        else
            CHECK(kind == (count < whole ? TARGET_STATIC : TARGET_DYNAMIC));
    }
}

TEST(another_word_size_byte_order_or_machine_is_another_class)
{
    struct program bytes = program_with(0);
    bytes.header.e_ident[EI_CLASS] = ELFCLASS32;
    CHECK(kind_of_bytes(&bytes, sizeof bytes, "x") == TARGET_OTHER_CLASS);
    /* 52 bytes are the header of a 32-bit program. */
    CHECK(kind_of_bytes(&bytes, 52, "x") == TARGET_OTHER_CLASS);
    bytes = program_with(0);
    bytes.header.e_ident[EI_DATA] ^= ELFDATA2LSB ^ ELFDATA2MSB;
    CHECK(kind_of_bytes(&bytes, sizeof bytes, "x") == TARGET_OTHER_CLASS);
    bytes = program_with(0);
    bytes.header.e_machine = EM_S390;
    CHECK(kind_of_bytes(&bytes, sizeof bytes, "x") == TARGET_OTHER_CLASS);
}

TEST(an_object_file_or_an_odd_segment_table_is_no_dynamic_program)
{
    struct program bytes = program_with(0);
    bytes.header.e_type = ET_REL;
    CHECK(kind_of_bytes(&bytes, sizeof bytes, "x") == TARGET_UNKNOWN);
    bytes = program_with(0);
    bytes.header.e_phentsize = 1;
    CHECK(kind_of_bytes(&bytes, sizeof bytes, "x") == TARGET_STATIC);
    bytes = program_with(0);
    bytes.header.e_phoff = UINT64_MAX - 8;
    CHECK(kind_of_bytes(&bytes, sizeof bytes, "x") == TARGET_STATIC);
    bytes = program_with(20);
    bytes.header.e_phnum = UINT16_MAX;
    CHECK(kind_of_bytes(&bytes, sizeof bytes, "x") == TARGET_STATIC);
}

/* A loader that is run as a command loads another program. The preload applies to that program. */
TEST(a_loader_is_known_by_its_name)
{
    struct program bytes = program_with(20);
    CHECK(kind_of_bytes(&bytes, sizeof bytes, "/lib64/ld-linux-x86-64.so.2") == TARGET_DYNAMIC);
    CHECK(target_is_loader("/lib/ld-linux-aarch64.so.1"));
    CHECK(target_is_loader("/lib/x86_64-linux-gnu/ld-2.31.so"));
    CHECK(target_is_loader("ld.so"));
    CHECK(!target_is_loader("/usr/bin/ld"));
    CHECK(!target_is_loader("/usr/bin/ld.bfd"));
    CHECK(!target_is_loader("/lib/ld-linux.so.2/true"));
    CHECK(!target_is_loader("/sbin/ldconfig"));
}

TEST(a_file_that_is_neither_elf_nor_script_is_unknown)
{
    CHECK(kind_of_bytes("", 0, "x") == TARGET_UNKNOWN);
    CHECK(kind_of_bytes("#", 1, "x") == TARGET_UNKNOWN);
    CHECK(kind_of_bytes("echo hello\n", 11, "x") == TARGET_UNKNOWN);
    CHECK(kind_of_bytes("MZ", 2, "x") == TARGET_UNKNOWN);
}

TEST(the_first_line_of_a_script_is_read_as_linux_reads_it)
{
    static const struct {
        const char *text;
        const char *interpreter; /* NULL: Linux refuses the script */
    } cases[] = {
        {"#!/bin/sh\n", "/bin/sh"},
        {"#! \t /bin/sh \t -e -x\n", "/bin/sh"},
        {"#!/usr/bin/env python3\n", "/usr/bin/env"},
        {"#!/bin/sh", "/bin/sh"},
        {"#!relative\n", "relative"},
        {"#!/bin/sh\r\n", "/bin/sh\r"},
        {"#!", NULL},
        {"#!\n/bin/sh\n", NULL},
        {"#!   \t\n", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char interpreter[TARGET_INTERPRETER_BYTES] = "";
        int fd = memfd_create("script", MFD_CLOEXEC);
        REQUIRE(write(fd, cases[i].text, strlen(cases[i].text)) >= 0);
        enum target_kind kind = target_of(fd, "x", interpreter);
        CHECK(kind == (cases[i].interpreter != NULL ? TARGET_SCRIPT : TARGET_UNKNOWN));
        CHECK(cases[i].interpreter == NULL || strcmp(interpreter, cases[i].interpreter) == 0);
        close(fd);
    }
}

/* Linux reads the first 256 bytes of a script, and refuses an interpreter whose path does not end
 * within them. */
TEST(an_interpreter_that_may_be_cut_is_refused)
{
    char text[400];
    for (size_t length = 240; length <= 270; length++) {
        memset(text, 'x', sizeof text);
        memcpy(text, "#!/", 3);
        text[length] = '\n';
        CHECK(kind_of_bytes(text, sizeof text, "x") ==
              (length < 256 ? TARGET_SCRIPT : TARGET_UNKNOWN));
    }
}

TEST(a_script_has_the_kind_of_its_interpreter)
{
    char text[PATH_MAX + 8];
    snprintf(text, sizeof text, "#!%s\n", program("dynamic", 1));
    CHECK(target_at(AT_FDCWD, script("one", text), 0) == TARGET_DYNAMIC);
    snprintf(text, sizeof text, "#!%s -x\n", program("static", 20));
    CHECK(target_at(AT_FDCWD, script("two", text), 0) == TARGET_STATIC);
    snprintf(text, sizeof text, "#!%s\n", script("text", "no header\n"));
    CHECK(target_at(AT_FDCWD, script("three", text), 0) == TARGET_UNKNOWN);
    CHECK(target_at(AT_FDCWD, script("four", "#!/nowhere/at/all\n"), 0) == TARGET_NONE);
}

/* Linux runs up to 5 scripts in a chain; 6 fail with ELOOP. */
TEST(a_chain_of_scripts_ends_where_linux_ends_it)
{
    char text[PATH_MAX + 8];
    char name[20];
    const char *path = "/bin/true";
    for (int scripts = 1; scripts <= 6; scripts++) {
        snprintf(text, sizeof text, "#!%s\n", path);
        snprintf(name, sizeof name, "chain%d", scripts);
        path = script(name, text);
        char *const argv[] = {name, NULL};
        enum target_kind kind = target_at(AT_FDCWD, path, 0);
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            execv(path, argv);
            _exit(errno == ELOOP ? 40 : 1);
        }
        waitpid(child, &status, 0);
        CHECK(WIFEXITED(status));
        CHECK((kind == TARGET_NONE) == (WEXITSTATUS(status) == 40));
        CHECK((kind != TARGET_NONE) == (WEXITSTATUS(status) == 0));
    }
}

TEST(a_script_that_is_its_own_interpreter_runs_nothing)
{
    char text[PATH_MAX + 8];
    snprintf(text, sizeof text, "#!%s/circle\n", folder);
    CHECK(target_at(AT_FDCWD, script("circle", text), 0) == TARGET_NONE);
}

TEST(a_file_that_cannot_be_executed_is_none)
{
    struct program bytes = program_with(0);
    const char *plain = file_with("plain", &bytes, sizeof bytes, 0644);
    CHECK(target_at(AT_FDCWD, plain, 0) == TARGET_NONE);
    CHECK(target_at(AT_FDCWD, folder, 0) == TARGET_NONE);
    CHECK(target_at(AT_FDCWD, "/dev/null", 0) == TARGET_NONE);
    CHECK(target_at(AT_FDCWD, "/nowhere/at/all", 0) == TARGET_NONE);
    CHECK(target_at(AT_FDCWD, "", 0) == TARGET_NONE);
    CHECK(target_at(AT_FDCWD, NULL, 0) == TARGET_NONE);
}

/* Opening a pipe would wait for a writer. */
TEST(a_named_pipe_is_not_opened)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/pipe", folder);
    REQUIRE(mkfifo(path, 0777) == 0);
    alarm(5);
    CHECK(target_at(AT_FDCWD, path, 0) == TARGET_NONE);
    alarm(0);
}

TEST(a_path_is_relative_to_the_given_folder_and_links_are_followed_by_default)
{
    char link[PATH_MAX];
    program("behind", 0);
    snprintf(link, sizeof link, "%s/link", folder);
    REQUIRE(symlink("behind", link) == 0);
    int fd = open(folder, O_PATH | O_CLOEXEC);
    CHECK(target_at(fd, "behind", 0) == TARGET_DYNAMIC);
    CHECK(target_at(fd, "link", 0) == TARGET_DYNAMIC);
    CHECK(target_at(fd, "link", AT_SYMLINK_NOFOLLOW) == TARGET_NONE);
    close(fd);
}

TEST(a_search_skips_files_that_cannot_run_and_returns_the_path)
{
    char found[PATH_MAX];
    char path[PATH_MAX * 2];
    char expected[PATH_MAX];
    struct program bytes = program_with(0);
    char below[PATH_MAX];
    snprintf(below, sizeof below, "%s/below", folder);
    REQUIRE(mkdir(below, 0755) == 0);
    file_with("below/tool", &bytes, sizeof bytes, 0644);
    program("tool", 0);
    snprintf(path, sizeof path, "/nowhere:%s:%s", below, folder);
    snprintf(expected, sizeof expected, "%s/tool", folder);
    CHECK(target_search("tool", path, found, sizeof found) == TARGET_DYNAMIC);
    CHECK(strcmp(found, expected) == 0);
    CHECK(target_search(expected, path, found, sizeof found) == TARGET_DYNAMIC);
    CHECK(strcmp(found, expected) == 0);
    CHECK(target_search("no-such-tool", path, found, sizeof found) == TARGET_NONE);
    CHECK(target_search("", path, found, sizeof found) == TARGET_NONE);
    CHECK(target_search("sh", NULL, found, sizeof found) != TARGET_NONE);
    CHECK(strcmp(found, "/bin/sh") == 0);
}

TEST(an_empty_part_of_the_search_path_is_the_current_folder)
{
    static const char *const paths[] = {"", ":/nowhere", "/nowhere:", "/nowhere::/nowhere"};
    char found[PATH_MAX];
    char before[PATH_MAX];
    program("here", 0);
    REQUIRE(getcwd(before, sizeof before) != NULL && chdir(folder) == 0);
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        CHECK(target_search("here", paths[i], found, sizeof found) == TARGET_DYNAMIC);
        CHECK(strcmp(found, "here") == 0);
    }
    REQUIRE(chdir(before) == 0);
}

TEST(a_search_writes_no_more_than_the_capacity)
{
    char found[64];
    memset(found, 'z', sizeof found);
    CHECK(target_search("true", "/a/folder/whose/name/is/long:/bin", found, 10) != TARGET_NONE);
    CHECK(strcmp(found, "/bin/true") == 0);
    CHECK(found[10] == 'z');
    CHECK(target_search("/bin/true", "", found, 9) == TARGET_NONE);
}

TEST(every_kind_has_the_name_in_the_contract)
{
    CHECK(strcmp(target_kind_name(TARGET_DYNAMIC), "dynamic") == 0);
    CHECK(strcmp(target_kind_name(TARGET_STATIC), "static") == 0);
    CHECK(strcmp(target_kind_name(TARGET_SETUID), "setuid") == 0);
    CHECK(strcmp(target_kind_name(TARGET_OTHER_CLASS), "other class") == 0);
    CHECK(strcmp(target_kind_name(TARGET_ENVIRONMENT), "environment") == 0);
    CHECK(strcmp(target_kind_name(TARGET_UNKNOWN), "unknown") == 0);
}

int main(int argc, char **argv)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    int result = test_main(argc, argv);
    char *const remove[] = {"rm", "-rf", folder, NULL};
    pid_t child = fork();
    if (child == 0) {
        execvp("rm", remove);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    return result;
}
