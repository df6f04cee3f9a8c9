/* pool_fuzz.c - reads its input as calls to a pool, which has an arena of its own or uses one that
 * can run out of memory. A model (the shadow) knows every object in use and its contents. */
#define _GNU_SOURCE 1

#include "../unit/arena_os.h"
#include "fuzz.h"

#include <cairn/arena.h>

#include <string.h>

enum { OBJECTS = 3000, ERRNO = 4711 };

struct object {
    unsigned char *start;
    unsigned char fill;
};

struct shadow {
    struct cairn_pool *pool;
    struct cairn_pool_options options;
    bool may_run_out;
    struct object objects[OBJECTS];
    unsigned count;
    unsigned most;
    unsigned char fill;
};

static bool is_whole(const struct shadow *shadow, const struct object *object)
{
    for (size_t i = 0; i < shadow->options.object_bytes; i++)
        if (object->start[i] != object->fill)
            return false;
    return true;
}

static void take(struct shadow *shadow)
{
    if (shadow->count == OBJECTS)
        return;
    unsigned refused = fake_os.refused_count;
    struct object *object = &shadow->objects[shadow->count];
    object->start = cairn_pool_alloc(shadow->pool);
    if (object->start == NULL) {
        EXPECT(shadow->may_run_out || fake_os.refused_count > refused);
        return;
    }
    object->fill = ++shadow->fill;
    size_t size = shadow->options.object_bytes;
    size_t alignment = shadow->options.alignment > 0 ? shadow->options.alignment : 1;
    EXPECT((uintptr_t)object->start % alignment == 0);
    for (unsigned i = 0; i < shadow->count; i++) {
        const unsigned char *other = shadow->objects[i].start;
        EXPECT(object->start + size <= other || other + size <= object->start);
    }
    memset(object->start, object->fill, size);
    if (++shadow->count > shadow->most)
        shadow->most = shadow->count;
}

static void put(struct shadow *shadow, unsigned index)
{
    if (shadow->count == 0)
        return;
    struct object *object = &shadow->objects[index % shadow->count];
    EXPECT(is_whole(shadow, object));
    cairn_pool_free(shadow->pool, object->start);
    *object = shadow->objects[--shadow->count];
}

static void reset(struct shadow *shadow)
{
    cairn_pool_reset(shadow->pool);
    shadow->count = 0;
}

static void check(struct shadow *shadow)
{
    struct cairn_pool_stats stats = cairn_pool_statistics(shadow->pool);
    EXPECT(stats.used_count == shadow->count);
    EXPECT(stats.object_bytes >= shadow->options.object_bytes);
    EXPECT(stats.high_water_count >= shadow->most);
    EXPECT(stats.high_water_count <= shadow->most + 4096 / stats.object_bytes);
    EXPECT(stats.reserved_bytes >= stats.high_water_count * stats.object_bytes);
    EXPECT(errno == ERRNO);
}

static void step(struct shadow *shadow, struct input *input)
{
    unsigned choice = input_byte(input);
    if (choice < 110)
        take(shadow);
    else if (choice < 200)
        put(shadow, input_byte(input) * 251);
    else if (choice < 215)
        for (unsigned times = input_byte(input); times > 0; times--)
            take(shadow);
    else if (choice < 230)
        for (unsigned times = input_byte(input); times > 0; times--)
            put(shadow, input_byte(input));
    else if (choice < 232)
        reset(shadow);
    else if (choice < 240)
        fake_os.refuse_call = fake_os.call_count + 1;
    else
        cairn_pool_check(shadow->pool);
    check(shadow);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, data + size};
    static struct shadow shadow;
    memset(&shadow, 0, sizeof shadow);
    unsigned kind = input_byte(&input);
    struct cairn_arena_options options = {0};
    shadow.options.object_bytes = 1 + input_size(&input, 12);
    shadow.options.alignment = kind % 4 == 0 ? (size_t)1 << input_byte(&input) % 11 : 0;
    shadow.options.shared = kind / 4 % 2 == 0;
    shadow.options.checked = options.checked =
        kind / 8 % 2 == 0 ? CAIRN_ARENA_CHECKED_OFF : CAIRN_ARENA_CHECKED_ON;
    errno = ERRNO;
    fake_os.refuse_call = 0;
    if (kind / 16 % 2 == 0) {
        options.limit_bytes = kind / 32 % 2 == 0 ? (8 << 10) + input_size(&input, 20) : 0;
        shadow.may_run_out = options.limit_bytes > 0;
        shadow.options.arena = cairn_arena_create_with(&options);
    }
    shadow.pool = cairn_pool_create_with(&shadow.options);
    EXPECT(shadow.pool != NULL);
    while (input.next < input.end)
        step(&shadow, &input);
    cairn_pool_check(shadow.pool);
    for (unsigned i = 0; i < shadow.count; i++)
        EXPECT(is_whole(&shadow, &shadow.objects[i]));
    fake_os.refuse_call = 0;
    cairn_pool_destroy(shadow.pool);
    cairn_arena_destroy(shadow.options.arena);
    EXPECT(fake_os.mapped_bytes == 0);
    return 0;
}
