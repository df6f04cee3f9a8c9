#include "alloc/stats_text.h"

#include "alloc/site.h"
#include "base/clock.h"
#include "base/loaded.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <sys/auxv.h>

/* --- what there is to write ------------------------------------------------------------------- */

struct member {
    const char *name;
    const char *help;
    size_t offset; /* of the member in its structure */
    bool counts;   /* a counter: it only grows */
};

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "all members are read alike");

#define OF_ALL(name, counts, help) {#name, help, offsetof(struct cairn_stats, name), counts}
#define OF_CLASS(name, help)       {#name, help, offsetof(struct cairn_class_stats, name), false}

static const struct member of_all[] = {
    OF_ALL(live_bytes, false, "Bytes in blocks that are handed out and not freed."),
    OF_ALL(live_count, false, "Blocks that are handed out and not freed."),
    OF_ALL(large_bytes, false, "Live bytes that are in large blocks."),
    OF_ALL(large_count, false, "Live blocks that are large."),
    OF_ALL(mapped_bytes, false, "Address space taken from the kernel."),
    OF_ALL(used_bytes, false, "Bytes in slabs, large blocks and heaps."),
    OF_ALL(used_most_bytes, false, "The highest value of used_bytes so far."),
    OF_ALL(idle_bytes, false, "Free bytes that are still resident."),
    OF_ALL(resident_bytes, false, "Used and idle bytes: an upper bound of the resident set."),
    OF_ALL(cached_bytes, false, "Free bytes that a thread keeps ready."),
    OF_ALL(free_bytes, false, "Free bytes in slabs: fragmentation."),
    OF_ALL(fresh_bytes, false, "Bytes in slabs that were never handed out."),
    OF_ALL(slack_bytes, false, "Bytes at the ends of slabs, where no block fits."),
    OF_ALL(own_bytes, false,
           "Bytes of the allocator itself: heaps, tables of call sites and kept runs, guards, and "
           "addresses that the kernel left unmapped."),
    OF_ALL(record_bytes, false, "Address space for the records of slices."),
    OF_ALL(limit_bytes, false, "The limit of used_bytes; 0: no limit."),
    OF_ALL(purged_bytes, true, "Bytes given back to the kernel."),
    OF_ALL(map_calls, true, "System calls for more memory."),
    OF_ALL(purge_calls, true, "System calls that gave memory back."),
    OF_ALL(held_bytes, false, "Idle bytes that may be kept in excess of used_bytes."),
    OF_ALL(learnt, true, "Changes of learnt values."),
    OF_ALL(slab_count, false, "Slabs that exist now."),
    OF_ALL(thread_count, false, "Living threads that have a heap of their own."),
    OF_ALL(heap_count, false, "Heaps that belong to no thread."),
    OF_ALL(refills, true, "Times that a thread had to fetch more blocks of a class."),
    OF_ALL(slabs_made, true, "Slabs made from unused runs."),
    OF_ALL(slabs_adopted, true, "Slabs taken over from threads that have ended."),
    OF_ALL(remote_frees, true, "Small blocks freed by another thread than their owner."),
    OF_ALL(wakes, true, "Full slabs that frees by other threads made usable again."),
    OF_ALL(claims, true, "Whole slabs that frees by other threads gave back."),
};

static const struct member of_class[] = {
    OF_CLASS(block_bytes, "Size of each block."),
    OF_CLASS(slab_count, "Slabs of the class."),
    OF_CLASS(block_count, "Blocks carved in slabs of the class, used or not."),
    OF_CLASS(live_count, "Carved blocks that are handed out."),
    OF_CLASS(cached_count, "Free blocks that a thread keeps ready."),
    OF_CLASS(fresh_count, "Blocks that can still be carved."),
    OF_CLASS(slack_bytes, "Bytes at the ends of slabs of the class, where no block fits."),
};

static uint64_t value_of(const struct member *member, const void *structure)
{
    return *(const uint64_t *)((const char *)structure + member->offset);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void add_members(struct text *text, const struct member *members, size_t count,
                        const void *structure)
{
    for (size_t i = 0; i < count; i++)
        text_add_json_unsigned(text, members[i].name, value_of(&members[i], structure));
}

/* --- JSON with sites -------------------------------------------------------------------------- */

enum {
    SITE_TEXT_BYTES = 510, /* the JSON of one site with the longest numbers */
    END_BYTES = 32,        /* the closing brackets, and a newline */
};
_Static_assert(CAIRN_SITES_BYTES > CAIRN_JSON_BYTES + SITE_MOST * SITE_TEXT_BYTES,
               "there is room for all sites");

static void add_address(struct text *text, const char *key, uintptr_t address)
{
    text_add_json_key(text, key);
    text_add_char(text, '"');
    text_add_hex(text, address);
    text_add_char(text, '"');
}

struct objects {
    struct text *text;
    const char *open;
};

/* Returns the path of an object. The first object is the program, and has no name. Its path is the
 * one that was passed to execve(). If a script was executed, this is the path of the script. */
static const char *path_of(const struct dl_phdr_info *object)
{
    if (object->dlpi_name != NULL && object->dlpi_name[0] != '\0')
        return object->dlpi_name;
    const char *program = (const char *)getauxval(AT_EXECFN);
    return program != NULL ? program : "";
}

/* Adds the build ID of an object in hexadecimal, or null. Readers know the file by its build ID. */
static void add_build_id(struct text *text, const struct dl_phdr_info *object)
{
    struct loaded_build_id id = loaded_build_id_of(object);
    if (id.bytes == NULL) {
        text_add_json_null(text, "build_id");
        return;
    }
    text_add_json_key(text, "build_id");
    text_add_char(text, '"');
    for (size_t i = 0; i < id.length; i++) {
        text_add_char(text, "0123456789abcdef"[id.bytes[i] >> 4]);
        text_add_char(text, "0123456789abcdef"[id.bytes[i] & 15]);
    }
    text_add_char(text, '"');
}

/* Returns true if the text added since `before` fits and leaves `behind` bytes free. Otherwise
 * removes it and returns false. */
static bool fits(struct text *text, size_t before, size_t behind)
{
    if (!text->truncated && text->capacity - text->length > behind)
        return true;
    text->truncated = false;
    text->length = before;
    text->data[before] = '\0';
    return false;
}

/* Adds an object that the loader has mapped, if a site lies in it. If there is no room for the
 * object, it is not added, and a reader cannot tell in which file its sites lie. */
static int add_object(struct dl_phdr_info *object, size_t bytes, void *context)
{
    struct objects *objects = context;
    uintptr_t begin = UINTPTR_MAX;
    uintptr_t end = 0;
    (void)bytes;
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        uintptr_t start = object->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD)
            continue;
        if (start < begin)
            begin = start;
        if (start + part->p_memsz > end)
            end = start + part->p_memsz;
    }
    if (objects->text->truncated || !site_is_within(begin, end))
        return 0;
    size_t before = objects->text->length;
    text_add(objects->text, objects->open);
    text_add_json_text(objects->text, "path", path_of(object));
    add_build_id(objects->text, object);
    add_address(objects->text, "base", object->dlpi_addr);
    add_address(objects->text, "begin", begin);
    add_address(objects->text, "end", end);
    text_add_char(objects->text, '}');
    if (fits(objects->text, before, SITE_TEXT_BYTES + END_BYTES))
        objects->open = ",{";
    return 0;
}

static void add_counts(struct text *text, const struct site *site)
{
    text_add_json_unsigned(text, "counted", site->counted);
    text_add_json_unsigned(text, "blocks", site->blocks);
    text_add_json_unsigned(text, "blocks_variance", site->variance);
    text_add_json_unsigned(text, "bytes", site->bytes);
    text_add_json_unsigned(text, "live_count", site->blocks - site->freed);
    text_add_json_unsigned(text, "live_bytes", site->live_bytes);
    text_add_json_unsigned(text, "hits", site->hits);
    text_add_json_unsigned(text, "misses", site->blocks - site->hits);
    text_add_json_key(text, "lives");
    for (unsigned i = 0; i < SITE_LIVES; i++) {
        text_add_char(text, i == 0 ? '[' : ',');
        text_add_unsigned(text, site->lives[i]);
    }
    text_add_char(text, ']');
}

/* Adds a site. Returns false if there is no room for it; nothing is added then. */
static bool add_site(struct text *text, const char *open, const struct site *site)
{
    size_t before = text->length;
    if (text->truncated)
        return false;
    text_add(text, open);
    add_address(text, "address", site->address);
    text_add_json_unsigned(text, "slices", site->slices);
    text_add_json_unsigned(text, "depth", site->depth);
    add_counts(text, site);
    text_add_char(text, '}');
    return fits(text, before, END_BYTES);
}

/* Adds objects and sites. The objects come first, so that the loader's lock is never taken under
 * the lock of the sites. */
static void add_sites(struct text *text)
{
    struct objects objects = {text, "{"};
    text_add_json_unsigned(text, "unix_ns", clock_read_ns(CLOCK_REALTIME));
    text_add_json_key(text, "objects");
    text_add_char(text, '[');
    dl_iterate_phdr(add_object, &objects);
    text_add_char(text, ']');

    site_lock();
    text_add_json_unsigned(text, "site_count", site_count());
    text_add_json_key(text, "other_sites");
    text_add_char(text, '{');
    add_counts(text, site_others());
    text_add_char(text, '}');
    text_add_json_key(text, "sites");
    text_add_char(text, '[');
    const char *open = "{";
    const struct site *site = text->truncated ? NULL : site_next(NULL);
    while (site != NULL && add_site(text, open, site)) {
        open = ",{";
        site = site_next(site);
    }
    text_add_char(text, ']');
    site_unlock();
}

void stats_write_json(struct text *text, const struct cairn_stats *stats)
{
    text_add_char(text, '{');
    add_members(text, of_all, COUNT_OF(of_all), stats);
    text_add_json_key(text, "classes");
    text_add_char(text, '[');
    const char *open = "{";
    for (unsigned i = 0; i < CAIRN_CLASS_COUNT; i++) {
        if (stats->classes[i].slab_count == 0)
            continue;
        text_add(text, open);
        open = ",{";
        add_members(text, of_class, COUNT_OF(of_class), &stats->classes[i]);
        text_add_char(text, '}');
    }
    text_add_char(text, ']');
    if (site_is_counted())
        add_sites(text);
    text_add_char(text, '}');
}

/* --- Prometheus ------------------------------------------------------------------------------- */

static void begin_metric(struct text *text, const char *prefix, const struct member *member)
{
    const char *total = member->counts ? "_total" : "";
    const char *parts[] = {"# HELP ",
                           prefix,
                           member->name,
                           total,
                           " ",
                           member->help,
                           "\n# TYPE ",
                           prefix,
                           member->name,
                           total,
                           member->counts ? " counter\n" : " gauge\n"};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        text_add(text, parts[i]);
}

static void add_sample(struct text *text, const char *prefix, const struct member *member,
                       uint64_t block_bytes, uint64_t value)
{
    text_add(text, prefix);
    text_add(text, member->name);
    if (member->counts)
        text_add(text, "_total");
    if (block_bytes > 0) {
        text_add(text, "{block_bytes=\"");
        text_add_unsigned(text, block_bytes);
        text_add(text, "\"}");
    }
    text_add_char(text, ' ');
    text_add_unsigned(text, value);
    text_add_char(text, '\n');
}

void stats_write_prometheus(struct text *text, const struct cairn_stats *stats)
{
    for (size_t i = 0; i < COUNT_OF(of_all); i++) {
        begin_metric(text, "cairn_", &of_all[i]);
        add_sample(text, "cairn_", &of_all[i], 0, value_of(&of_all[i], stats));
    }
    for (size_t i = 1; i < COUNT_OF(of_class); i++) { /* member 0 is the label of the others */
        begin_metric(text, "cairn_class_", &of_class[i]);
        for (unsigned class = 0; class < CAIRN_CLASS_COUNT; class++) {
            const struct cairn_class_stats *of = &stats->classes[class];
            if (of->slab_count > 0)
                add_sample(text, "cairn_class_", &of_class[i], of->block_bytes,
                           value_of(&of_class[i], of));
        }
    }
}

/* --- lines ------------------------------------------------------------------------------------ */

static void line(struct text *text, const char *says, uint64_t value, const char *unit)
{
    text_add(text, "cairn: ");
    text_add(text, says);
    text_add_char(text, ' ');
    text_add_unsigned(text, value);
    text_add(text, unit);
}

/* Adds a number and its noun, in the plural unless the number is 1. */
static void add_count(struct text *text, uint64_t count, const char *noun)
{
    text_add_unsigned(text, count);
    text_add_char(text, ' ');
    text_add(text, noun);
    if (count != 1)
        text_add_char(text, 's');
}

void stats_write_lines(struct text *text, const struct cairn_stats *stats)
{
    line(text, "live", stats->live_bytes, " bytes in ");
    add_count(text, stats->live_count, "block");
    text_add(text, ", ");
    text_add_unsigned(text, stats->large_bytes);
    text_add(text, " of these bytes in ");
    add_count(text, stats->large_count, "large block");
    text_add_char(text, '\n');
    line(text, "used", stats->used_bytes, " bytes, at most ");
    text_add_unsigned(text, stats->used_most_bytes);
    text_add(text, "; ");
    text_add_unsigned(text, stats->idle_bytes);
    text_add(text, " more bytes are idle, ");
    text_add_unsigned(text, stats->mapped_bytes);
    text_add(text, " bytes are mapped\n");
    line(text, "used, but not live:", stats->cached_bytes, " bytes kept ready by threads, ");
    text_add_unsigned(text, stats->free_bytes);
    text_add(text, " free in slabs, ");
    text_add_unsigned(text, stats->fresh_bytes);
    text_add(text, " never handed out, ");
    text_add_unsigned(text, stats->slack_bytes);
    text_add(text, " at the ends of slabs, ");
    text_add_unsigned(text, stats->own_bytes);
    text_add(text, " for the allocator itself\n");
    line(text, "given back", stats->purged_bytes, " bytes in ");
    add_count(text, stats->purge_calls, "system call");
    text_add(text, "; ");
    add_count(text, stats->map_calls, "system call");
    text_add(text, " took more\n");
    line(text, "threads", stats->thread_count, ", slabs ");
    text_add_unsigned(text, stats->slab_count);
    text_add(text, ", refills ");
    text_add_unsigned(text, stats->refills);
    text_add(text, ", frees by other threads ");
    text_add_unsigned(text, stats->remote_frees);
    text_add(text, "\n");
    for (unsigned i = 0; i < CAIRN_CLASS_COUNT; i++) {
        const struct cairn_class_stats *class = &stats->classes[i];
        if (class->slab_count == 0)
            continue;
        line(text, "blocks of", class->block_bytes, " bytes: ");
        text_add_unsigned(text, class->live_count);
        text_add(text, " live of ");
        text_add_unsigned(text, class->block_count);
        text_add(text, " in ");
        add_count(text, class->slab_count, "slab");
        text_add_char(text, '\n');
    }
}
