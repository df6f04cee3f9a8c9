/* statistics.c - tests the functions of cairn.h: the statistics are exact, and purged memory is not
 * resident. */
#include "conformance.h"
#include "test.h"

#include <cairn/cairn.h>
#include <pthread.h>

static struct cairn_stats now(void)
{
    struct cairn_stats stats;
    cairn_statistics(&stats);
    return stats;
}

TEST(live_blocks_are_counted_exactly)
{
    static const size_t sizes[] = {1, 16, 17, 100, 1000, 5000, 20000, 32768, 40000, 1000000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        enum { MANY = 200 };
        static void *blocks[MANY];
        struct cairn_stats before = now();
        size_t bytes = 0;
        for (size_t k = 0; k < MANY; k++) {
            blocks[k] = cairn_malloc(sizes[i]);
            REQUIRE(blocks[k] != NULL);
            bytes += cairn_usable_size(blocks[k]);
        }
        struct cairn_stats full = now();
        CHECK(full.live_count == before.live_count + MANY);
        CHECK(full.live_bytes == before.live_bytes + bytes);
        CHECK(full.used_bytes >= full.live_bytes &&
              full.resident_bytes == full.used_bytes + full.idle_bytes);
        CHECK(full.mapped_bytes >= full.resident_bytes);
        CHECK(full.used_most_bytes >= full.used_bytes);
        CHECK((full.large_count == before.large_count + MANY) == (sizes[i] > 32768));
        for (size_t k = 0; k < MANY; k++)
            cairn_free(blocks[k]);
        struct cairn_stats after = now();
        CHECK(after.live_count == before.live_count && after.live_bytes == before.live_bytes);
        CHECK(after.large_count == before.large_count && after.large_bytes == before.large_bytes);
    }
}

TEST(the_classes_add_up_to_the_whole)
{
    void *blocks[64];
    for (size_t i = 0; i < COUNT(blocks); i++)
        blocks[i] = cairn_malloc(i * 300);
    struct cairn_stats stats = now();
    size_t count = stats.large_count;
    size_t bytes = stats.large_bytes;
    size_t slabs = 0;
    for (size_t i = 0; i < CAIRN_CLASS_COUNT; i++) {
        const struct cairn_class_stats *class = &stats.classes[i];
        CHECK(i == 0 || class->block_bytes > stats.classes[i - 1].block_bytes);
        CHECK(class->live_count <= class->block_count);
        CHECK(class->slab_count > 0 || class->block_count == 0);
        count += class->live_count;
        bytes += class->live_count * class->block_bytes;
        slabs += class->slab_count;
    }
    CHECK(count == stats.live_count && bytes == stats.live_bytes && slabs == stats.slab_count);
    for (size_t i = 0; i < COUNT(blocks); i++)
        cairn_free(blocks[i]);
}

static void *blocks_of_thread[100];

static void *allocate_and_end(void *argument)
{
    for (size_t i = 0; i < COUNT(blocks_of_thread); i++)
        blocks_of_thread[i] = cairn_malloc(700);
    return argument;
}

TEST(blocks_of_threads_that_ended_are_live_until_they_are_freed)
{
    pthread_t id;
    struct cairn_stats before = now();
    REQUIRE(pthread_create(&id, NULL, allocate_and_end, NULL) == 0);
    REQUIRE(pthread_join(id, NULL) == 0);
    struct cairn_stats full = now();
    CHECK(full.live_count >= before.live_count + COUNT(blocks_of_thread));
    CHECK(full.thread_count == before.thread_count);
    for (size_t i = 0; i < COUNT(blocks_of_thread); i++)
        cairn_free(blocks_of_thread[i]);
    CHECK(now().live_count == full.live_count - COUNT(blocks_of_thread));
}

static void *free_blocks_of_another_thread(void *argument)
{
    size_t half = COUNT(blocks_of_thread) / 2;
    uint64_t before = now().remote_frees;
    for (size_t i = 0; i < half; i++) /* a thread without a heap: it has allocated nothing */
        cairn_free(blocks_of_thread[i]);
    CHECK(now().remote_frees == before + half);
    void *own = cairn_malloc(700);
    for (size_t i = half; i < COUNT(blocks_of_thread); i++)
        cairn_free(blocks_of_thread[i]);
    cairn_free(own);
    cairn_free(NULL);
    cairn_free(cairn_malloc(1000000));
    CHECK(now().remote_frees == before + COUNT(blocks_of_thread));
    return argument;
}

TEST(frees_by_other_threads_are_counted)
{
    pthread_t id;
    for (size_t i = 0; i < COUNT(blocks_of_thread); i++)
        blocks_of_thread[i] = cairn_malloc(700);
    uint64_t before = now().remote_frees;
    cairn_free(cairn_malloc(700));
    CHECK(now().remote_frees == before);
    REQUIRE(pthread_create(&id, NULL, free_blocks_of_another_thread, NULL) == 0);
    REQUIRE(pthread_join(id, NULL) == 0);
    uint64_t all = now().remote_frees; /* still counted after the thread has ended */
    CHECK(all >= before + COUNT(blocks_of_thread));
    REQUIRE(pthread_create(&id, NULL, allocate_and_end, NULL) == 0);
    REQUIRE(pthread_join(id, NULL) == 0);
    all = now().remote_frees;
    for (size_t i = 0; i < COUNT(blocks_of_thread); i++) /* their thread has ended */
        cairn_free(blocks_of_thread[i]);
    CHECK(now().remote_frees == all + COUNT(blocks_of_thread));
}

TEST(purged_memory_is_not_resident)
{
    size_t size = (size_t)20 << 20;
    size_t kept = (size_t)4 << 20;
    cairn_purge(0);
    struct cairn_stats before = now();
    char *p = cairn_malloc(size);
    REQUIRE(p != NULL);
    memset(p, 1, size);
    long full = status_kb("VmRSS");
    cairn_free(p);
    /* The allocator may have purged some of this memory already without the call. */
    CHECK(now().idle_bytes + now().purged_bytes >= before.purged_bytes + size);
    cairn_purge(kept);
    CHECK(now().idle_bytes <= kept && now().purged_bytes >= before.purged_bytes + size - kept);
    cairn_purge(0);
    CHECK(now().idle_bytes == 0 && now().purged_bytes >= before.purged_bytes + size);
    CHECK(now().purge_calls > before.purge_calls);
    CHECK(status_kb("VmRSS") < full - 19000);
    CHECK(cairn_purge(0) == 0);
    malloc_trim(0); /* this call also frees slabs without a live block */
    CHECK(malloc_trim(0) == 0 && cairn_purge(0) == 0);
}

TEST(malloc_trim_returns_whether_it_gave_memory_back)
{
    size_t size = (size_t)8 << 20;
    malloc_trim(0);
    char *p = malloc(size);
    REQUIRE(p != NULL);
    memset(p, 1, size);
    free(p);
    CHECK(malloc_trim(0) == 1);
    CHECK(malloc_trim(0) == 0);
}

TEST(the_json_agrees_with_the_structure)
{
    static char text[CAIRN_JSON_BYTES];
    size_t length = cairn_statistics_json(text, sizeof text);
    REQUIRE(length > 0 && strlen(text) == length);
    char expected[64];
    snprintf(expected, sizeof expected, "\"live_count\":%zu,", now().live_count);
    CHECK(strstr(text, expected) != NULL);
    puts(text);
    CHECK(cairn_statistics_json(text, 100) == 0);
    CHECK(cairn_statistics_json(text, 0) == 0);
    length = cairn_statistics_json(text, sizeof text); /* puts() may have allocated */
    CHECK(cairn_statistics_json(text, length) == 0);
    CHECK(cairn_statistics_json(text, length + 1) == length);
}

TEST(used_bytes_are_accounted_for_exactly)
{
    static void *blocks[3000];
    for (size_t i = 0; i < COUNT(blocks); i++)
        blocks[i] = malloc(i * i % 70000);
    for (size_t i = 0; i < COUNT(blocks); i += 2)
        free(blocks[i]);
    struct cairn_stats stats = now();
    CHECK(stats.live_bytes > 0 && stats.cached_bytes > 0 && stats.free_bytes > 0);
    CHECK(stats.fresh_bytes > 0 && stats.slack_bytes > 0 && stats.own_bytes > 0);
    CHECK(stats.live_bytes + stats.cached_bytes + stats.free_bytes + stats.fresh_bytes +
              stats.slack_bytes + stats.own_bytes ==
          stats.used_bytes);
    CHECK(stats.record_bytes >= stats.mapped_bytes / 256 &&
          stats.record_bytes <= stats.mapped_bytes / 16);
    for (size_t i = 1; i < COUNT(blocks); i += 2)
        free(blocks[i]);
    cairn_collect();
    CHECK(now().cached_bytes == 0); /* cached_bytes: free blocks that a thread keeps */
}

TEST(the_prometheus_text_agrees_with_the_structure)
{
    static char text[CAIRN_PROMETHEUS_BYTES];
    size_t length = cairn_statistics_prometheus(text, sizeof text);
    REQUIRE(length > 0 && strlen(text) == length);
    char expected[64];
    snprintf(expected, sizeof expected, "\ncairn_live_count %zu\n", now().live_count);
    CHECK(strstr(text, expected) != NULL);
    CHECK(strstr(text, "\n# TYPE cairn_purge_calls_total counter\ncairn_purge_calls_total ") !=
          NULL);
    CHECK(cairn_statistics_prometheus(text, 1000) == 0);
    CHECK(cairn_statistics_prometheus(text, 0) == 0);
}

/* The longest possible documents must fit into the buffers: every size class is in use, and every
 * number has as many digits as it can have. */
TEST(the_largest_documents_fit)
{
    static char text[CAIRN_PROMETHEUS_BYTES];
    for (size_t size = 16; size < 40000; size += 16)
        free(malloc(size));
    size_t classes = 0;
    struct cairn_stats stats = now();
    for (size_t i = 0; i < CAIRN_CLASS_COUNT; i++)
        classes += stats.classes[i].slab_count > 0;
    CHECK(classes == CAIRN_CLASS_COUNT);
    size_t length = cairn_statistics_prometheus(text, sizeof text);
    CHECK(length > 0 && length + 30 * 18 + CAIRN_CLASS_COUNT * 6 * 7 < sizeof text);
    length = cairn_statistics_json(text, CAIRN_JSON_BYTES);
    CHECK(length > 0 && length + 30 * 18 + CAIRN_CLASS_COUNT * 6 * 7 < CAIRN_JSON_BYTES);
}

TEST(mallinfo_agrees_with_the_statistics)
{
    void *small = malloc(1000);
    void *large = malloc(1000000);
    struct cairn_stats stats = now();
    struct mallinfo2 info = mallinfo2();
    CHECK(info.uordblks == stats.live_bytes - stats.large_bytes);
    CHECK(info.hblks == stats.large_count && info.hblkhd == stats.large_bytes);
    CHECK(info.arena == info.uordblks + info.fordblks);
    CHECK(info.arena + info.hblkhd == stats.resident_bytes);
    CHECK(info.keepcost == stats.idle_bytes);
    free(small);
    free(large);
}

TEST(the_check_finds_nothing_wrong)
{
    void *blocks[100];
    for (size_t i = 0; i < COUNT(blocks); i++)
        blocks[i] = cairn_calloc(i, 501);
    cairn_check();
    for (size_t i = 0; i < COUNT(blocks); i += 2)
        cairn_free(blocks[i]);
    cairn_check();
    for (size_t i = 1; i < COUNT(blocks); i += 2)
        cairn_free(cairn_realloc(blocks[i], i * 900 + 1));
    cairn_check();
    CHECK(cairn_aligned_alloc(24, 1) == NULL && errno == EINVAL);
}

int main(int argc, char **argv)
{
    require_cairn();
    return test_main(argc, argv);
}
