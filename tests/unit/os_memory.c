#define _GNU_SOURCE 1

#include "os/os.h"

#include "test.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern void __asan_init(void) __attribute__((weak));
extern void __tsan_init(void) __attribute__((weak));

static bool is_sanitized(void)
{
    return __asan_init != NULL || __tsan_init != NULL;
}

static bool is_mapped(void *start)
{
    unsigned char in_core;
    return mincore(start, os_page_bytes(), &in_core) == 0;
}

TEST(an_os_page_is_what_the_kernel_says)
{
    CHECK(os_page_bytes() == (size_t)sysconf(_SC_PAGESIZE));
    CHECK((os_page_bytes() & (os_page_bytes() - 1)) == 0);
}

TEST(mapped_memory_is_zero_and_writable_and_can_be_unmapped_in_parts)
{
    size_t page = os_page_bytes();
    char *start = os_map(8 * page, page, 0);
    REQUIRE(start != NULL);
    for (size_t i = 0; i < 8 * page; i++)
        CHECK(start[i] == 0);
    memset(start, 1, 8 * page);
    CHECK(os_unmap(start + 2 * page, 2 * page));
    CHECK(is_mapped(start + page) && !is_mapped(start + 2 * page) && is_mapped(start + 4 * page));
    CHECK(os_unmap(start, 8 * page));
    CHECK(!is_mapped(start));
}

TEST(the_address_at_the_offset_is_aligned_and_nothing_more_stays_mapped)
{
    size_t page = os_page_bytes();
    for (size_t alignment = 1; alignment <= (size_t)1 << 30; alignment *= 4) {
        for (size_t pages = 0; pages < 3; pages++) {
            char *start = os_map(5 * page, alignment, pages * page);
            REQUIRE(start != NULL);
            CHECK(((uintptr_t)start + pages * page) % alignment == 0);
            memset(start, 1, 5 * page);
            CHECK(os_unmap(start, 5 * page));
        }
    }
}

TEST(memory_that_was_given_back_reads_as_zero)
{
    size_t page = os_page_bytes();
    char *start = os_map(4 * page, 1, 0);
    memset(start, 1, 4 * page);
    CHECK(os_give_back(start + page, 2 * page));
    CHECK(start[page - 1] == 1 && start[page] == 0 && start[3 * page - 1] == 0 &&
          start[3 * page] == 1);
    os_unmap(start, 4 * page);
}

TEST(locked_memory_is_not_given_back_and_keeps_its_contents)
{
    size_t page = os_page_bytes();
    char *start = os_map(page, 1, 0);
    memset(start, 1, page);
    if (mlock(start, page) == 0 && !is_sanitized()) /* mlock does nothing under a sanitizer */
        CHECK(!os_give_back(start, page) && start[0] == 1);
    os_unmap(start, page);
}

TEST(a_refusal_changes_nothing_and_leaves_errno)
{
    errno = 4711;
    CHECK(os_map((size_t)1 << 62, 1, 0) == NULL);
    CHECK(os_map(os_page_bytes(), (size_t)1 << 63, 0) == NULL);
    CHECK(os_map(SIZE_MAX / os_page_bytes() * os_page_bytes(), OS_HUGE_PAGE_BYTES, 0) == NULL);
    CHECK(!os_unmap((void *)1, os_page_bytes()));
    CHECK(!os_give_back((void *)1, os_page_bytes()));
    CHECK(errno == 4711);
}

TEST(at_an_address_space_limit_mapping_fails_until_there_is_room)
{
    if (is_sanitized()) /* the shadow memory exceeds any limit */
        return;
    pid_t child = fork();
    if (child == 0) {
        size_t mib = (size_t)1 << 20;
        setrlimit(RLIMIT_AS, &(struct rlimit){64 * mib, 64 * mib});
        void *first = os_map(mib, 1, 0);
        bool refused = os_map(64 * mib, 1, 0) == NULL && os_map(mib, 64 * mib, 0) == NULL;
        bool resumes = os_unmap(first, mib) && os_map(mib, 1, 0) != NULL;
        _exit(refused && resumes ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
}

TEST(huge_pages_can_be_asked_for)
{
    char *start = os_map(2 * OS_HUGE_PAGE_BYTES, OS_HUGE_PAGE_BYTES, 0);
    REQUIRE(start != NULL);
    os_want_huge_pages(start, 2 * OS_HUGE_PAGE_BYTES); /* a kernel without huge pages refuses */
    memset(start, 1, 2 * OS_HUGE_PAGE_BYTES);
    os_unmap(start, 2 * OS_HUGE_PAGE_BYTES);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
