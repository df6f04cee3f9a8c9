#define _GNU_SOURCE 1

#include "launch/cpu_samples.h"

#include "test.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    RING_BYTES = 1 << 20,
    SAMPLE_BYTES = 4096,
    MAPPED_BYTES = 128,
    DATA_AT = 4096,
    LAST_BYTE = 77, /* of each record */
};
#define STAGE_BYTES (UINT64_C(32) << 20) /* THINNING_BYTES of cpu_samples.c */

/* A ring without a kernel: the test writes the records. */
struct fake_ring {
    struct cpu_samples samples;
    char *area;
    uint64_t written; /* samples written into the ring */
};

static struct fake_ring fake_ring_make(bool adaptive)
{
    struct fake_ring ring = {.area = calloc(1, DATA_AT + RING_BYTES)};
    CHECK(ring.area != NULL);
    struct perf_event_mmap_page *page = (struct perf_event_mmap_page *)ring.area;
    page->data_offset = DATA_AT;
    char path[] = "/tmp/cpu_samples.XXXXXX";
    ring.samples = (struct cpu_samples){
        .file = mkstemp(path),
        .adaptive = adaptive,
        .used = -1,
        .count = 1,
        .rings = {{.fd = -1, .page = page, .bytes = RING_BYTES}},
    };
    CHECK(ring.samples.file >= 0 && unlink(path) == 0);
    return ring;
}

static void fake_ring_destroy(struct fake_ring *ring)
{
    close(ring->samples.file);
    free(ring->area);
}

static void put(struct fake_ring *ring, uint32_t type, uint16_t bytes)
{
    struct perf_event_mmap_page *page = ring->samples.rings[0].page;
    struct perf_event_header head = {.type = type, .misc = 2, .size = bytes};
    char *data = ring->area + DATA_AT;
    for (size_t i = 0; i < sizeof head; i++)
        data[(page->data_head + i) % RING_BYTES] = ((const char *)&head)[i];
    data[(page->data_head + bytes - 1) % RING_BYTES] = LAST_BYTE;
    page->data_head += bytes;
}

/* Writes a record of a mapping and about `bytes` of samples, and drains the ring. */
static void take(struct fake_ring *ring, uint64_t bytes)
{
    put(ring, PERF_RECORD_MMAP2, MAPPED_BYTES);
    for (uint64_t i = 0; i < bytes / SAMPLE_BYTES; i++, ring->written++)
        put(ring, PERF_RECORD_SAMPLE, SAMPLE_BYTES);
    cpu_samples_drain(&ring->samples);
}

/* The numbers of records in the file from `at` on. */
struct found {
    uint64_t mapped, samples[CPU_SAMPLES_THINNING_MOST + 1];
};

static struct found read_file(const struct fake_ring *ring)
{
    struct found found = {0};
    off_t at = 0, end = lseek(ring->samples.file, 0, SEEK_CUR);
    while (at < end) {
        char record[SAMPLE_BYTES];
        struct perf_event_header head;
        CHECK(pread(ring->samples.file, &head, sizeof head, at) == (ssize_t)sizeof head);
        CHECK(head.size >= sizeof head && head.size <= sizeof record);
        CHECK(pread(ring->samples.file, record, head.size, at) == head.size);
        if (head.type == PERF_RECORD_SAMPLE) {
            CHECK((head.misc & 7) == 2 && record[head.size - 1] == LAST_BYTE);
            found.samples[head.misc >> CPU_SAMPLES_THINNING_SHIFT & CPU_SAMPLES_THINNING_MOST]++;
        }
        found.mapped += head.type == PERF_RECORD_MMAP2;
        at += head.size;
    }
    return found;
}

/* A long run, or one on many processors, once lost all samples at a GiB. The samples of each factor
 * take 32 MiB of the file, and stand for all samples of their time. */
TEST(long_runs_keep_a_part_of_their_later_samples)
{
    struct fake_ring ring = fake_ring_make(true);
    uint64_t each = RING_BYTES / 2, times = 6 * STAGE_BYTES / each;
    for (uint64_t i = 0; i < times; i++)
        take(&ring, each);
    struct found found = read_file(&ring);
    uint64_t stage = STAGE_BYTES / SAMPLE_BYTES, stands_for = 0;
    CHECK(found.mapped == times);
    for (size_t i = 0; i < 2; i++)
        CHECK(found.samples[i] > stage * 9 / 10 && found.samples[i] < stage * 11 / 10);
    CHECK(found.samples[2] > stage / 2 && found.samples[3] == 0);
    for (size_t i = 0; i <= CPU_SAMPLES_THINNING_MOST; i++)
        stands_for += found.samples[i] << i;
    CHECK(stands_for > ring.written * 9 / 10 && stands_for < ring.written * 11 / 10);
    fake_ring_destroy(&ring);
}

TEST(a_steady_clock_keeps_all_samples)
{
    struct fake_ring ring = fake_ring_make(false);
    uint64_t each = RING_BYTES / 2;
    for (uint64_t i = 0; i < 2 * STAGE_BYTES / each; i++)
        take(&ring, each);
    CHECK(read_file(&ring).samples[0] == ring.written);
    fake_ring_destroy(&ring);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
