/* call_stacks.h - the file in which the probe records the call stacks that allocate in one process:
 * the interface between C and Python.
 *
 * The file lies beside the probe's file of the process (profile.h), and its name ends in .stacks
 * instead of .probe. It exists only if call stacks are wanted. The probe maps it and writes to it
 * while the process runs. cairn/profile/call_stacks.py reads it. Numbers are in the byte order of
 * the machine. The file is a head of CALL_STACKS_HEAD_BYTES bytes and then `chunk_count` chunks of
 * CALL_STACKS_CHUNK_BYTES. chunk_table[i] says to which table the chunk i belongs. A table is the
 * entries of all its chunks, in the order of the chunks. Always:
 *
 *     nodes[0] is the root, and nodes[i].parent < i for all others
 *     sites[0] has the samples for whose stacks there was no room
 *     number of used entries  ==  node_count, site_count, object_count
 *
 * A stack is a path of nodes. The last node of the path is its innermost frame. A site is a stack
 * that allocated.
 *
 * An allocation of b bytes is sampled with probability p = 1 - exp(-(b + CALL_STACKS_BLOCK_BYTES) /
 * every), or always. A sum over sampled blocks adds x / p for each block, and its variance is
 * estimated by the sum of x^2 (1 - p) / p^2 (Horvitz and Thompson). `every` can grow while the
 * process runs. The sums of live blocks at the peak are those of the moment with the most live
 * bytes:
 *
 *     site.changed <= peak_moment  =>  `peak` of this site is out of date; its true value is `live`
 *
 * A span is an OS page or a chunk of 2 MiB. It is sparse if live blocks take less than one part in
 * CALL_STACKS_SPARSE of its bytes and of its resident bytes. The resident bytes are those of pages
 * that belong neither to a file nor to the probe. The live blocks of a sparse span hold equal parts
 * of its resident bytes:
 *
 *     sum of the sites' pinned[k].held  ==  head.pinned_held[k]
 *
 * Every change of the layout needs a new CALL_STACKS_VERSION.
 */
#ifndef CAIRN_RECORD_CALL_STACKS_H
#define CAIRN_RECORD_CALL_STACKS_H

#include "record/profile.h"

#define CALL_STACKS_MAGIC "cairnstk"

enum {
    CALL_STACKS_VERSION = 2,
    CALL_STACKS_HEAD_BYTES = 4096,
    CALL_STACKS_CHUNK_BYTES = 32 << 10,
    CALL_STACKS_CHUNKS = 512,
    CALL_STACKS_FRAMES = 128, /* the most frames of a stack */
    /* Added to the size of a block, so that a block of 0 bytes is sampled, too: p > 0. */
    CALL_STACKS_BLOCK_BYTES = 16,
    /* A block is temporary if the thread that allocated it frees it after at most this many further
     * allocations. */
    CALL_STACKS_TEMPORARY = 8,
    CALL_STACKS_SPARSE = 10,
    CALL_STACKS_LIVES = 16,
    CALL_STACKS_LIFE_SHIFT = 4,
    CALL_STACKS_ID_BYTES = 32,
    CALL_STACKS_PATH_BYTES = 448,
};

enum call_stacks_way {
    CALL_STACKS_OFF,
    CALL_STACKS_SAMPLED,
    CALL_STACKS_EXACT, /* all allocations */
};

enum call_stacks_table {
    CALL_STACKS_NODES,
    CALL_STACKS_SITES,
    CALL_STACKS_OBJECTS,
    CALL_STACKS_TABLES,
};

/* The reason why no stacks are recorded, although they are wanted. */
enum call_stacks_problem {
    CALL_STACKS_WORK,
    CALL_STACKS_NO_READING, /* the kernel refuses process_vm_readv() */
    CALL_STACKS_NO_RULES,   /* the probe cannot unwind on this processor */
};

/* Kinds of spans. */
enum call_stacks_span { CALL_STACKS_PAGES, CALL_STACKS_BIG_CHUNKS, CALL_STACKS_SPANS };

/* Values of call_stacks_node.object. An object is a loaded file. */
enum {
    CALL_STACKS_NO_OBJECT = 0, /* generated code, which lies in no file */
    CALL_STACKS_DEEPER = 1,    /* stands for the callers beyond CALL_STACKS_FRAMES */
    CALL_STACKS_FIRST_OBJECT = 2,
};

/* One frame of a stack. */
struct call_stacks_node {
    uint32_t parent; /* index of the caller's node */
    /* CALL_STACKS_FIRST_OBJECT + index of the object, or CALL_STACKS_NO_OBJECT, or
     * CALL_STACKS_DEEPER. */
    uint32_t object;
    /* Address of the last byte of the call instruction, or of the instruction that a signal
     * interrupted. In an object, it is an address of the symbol table. In generated code, it is
     * the address in memory. */
    uint64_t place;
};

/* Estimated number and requested bytes of blocks, and the variances of these two estimates. */
struct call_stacks_sum {
    double blocks;
    double bytes;
    double blocks_variance;
    double bytes_variance;
};

/* The live blocks that lie in sparse spans. */
struct call_stacks_pinned {
    double blocks; /* number of these blocks */
    double bytes;  /* their requested bytes */
    double held;   /* their parts of the spans' resident bytes */
};

struct call_stacks_site {
    uint32_t node;                    /* index of the stack's innermost node */
    uint32_t live_samples;            /* number of sampled blocks in `live` */
    uint64_t samples;                 /* number of sampled blocks in `allocated` */
    uint64_t changed;                 /* call_stacks_head.moment at the last change of `live` */
    struct call_stacks_sum allocated; /* all blocks */
    struct call_stacks_sum live;      /* blocks that were not freed yet */
    struct call_stacks_sum peak;      /* live blocks at the peak, unless out of date */
    struct call_stacks_sum temporary; /* see CALL_STACKS_TEMPORARY */
    double freed;                     /* blocks whose free was seen */
    double freed_elsewhere;           /* blocks freed by another thread than their owner */
    /* Entry i counts the freed blocks that lived for less than
     * 2^(CALL_STACKS_LIFE_SHIFT (i + 1)) ticks and are not in an earlier entry. */
    float lives[CALL_STACKS_LIVES];
    struct call_stacks_pinned pinned[CALL_STACKS_SPANS]; /* at the end of the process */
};

/* A loaded file, at one address. A file that was loaded at several addresses has an entry for
 * each. */
struct call_stacks_object {
    uint64_t start; /* first address of its code and data */
    uint64_t base;  /* address in memory - address in the file's symbol table */
    uint32_t unused;
    uint32_t id_bytes;                 /* length of `id`; 0: it has none, or a longer one */
    uint8_t id[CALL_STACKS_ID_BYTES];  /* build id */
    char path[CALL_STACKS_PATH_BYTES]; /* "" is the program itself */
    uint64_t unused_at_end;
};

struct call_stacks_head {
    char magic[8];
    uint32_t order; /* PROFILE_ORDER */
    uint32_t version;
    /* Sizes of the structs head, node, site and object, for a reader to check. */
    uint32_t head_bytes;
    uint32_t node_bytes;
    uint32_t site_bytes;
    uint32_t object_bytes;
    uint32_t way; /* enum call_stacks_way */
    uint32_t process;
    uint64_t ns_begin;     /* profile_head.ns_begin */
    uint64_t every_first;  /* value of `every` at the beginning */
    uint64_t every;        /* mean distance of samples in bytes; 1: all allocations */
    uint64_t samples;      /* number of sampled allocations */
    uint64_t without_room; /* samples in sites[0]: no room for their stacks */
    uint64_t unread;       /* samples without any readable frame of the program */
    /* Sampled blocks that are missing in `live` of their site, because the probe's table of live
     * blocks had no room. */
    uint64_t unwatched;
    uint64_t moment;      /* number of changes of live blocks so far */
    uint64_t peak_moment; /* value of `moment` at the peak */
    uint64_t peak_ticks;  /* time of the peak; 0: there is none */
    double peak_bytes;    /* value of `live_bytes` at the peak */
    double live_bytes;    /* sum of the live bytes of all sites */
    /* The peak is the moment at which this number was highest. If is_counted is 1, it is the number
     * of live usable bytes, which the probe counts (live.h). Otherwise it is `peak_bytes`. */
    double peak_seen;
    uint32_t is_counted;
    uint32_t node_count;
    uint32_t site_count;
    uint32_t object_count;
    uint32_t chunk_count;
    uint32_t problem; /* enum call_stacks_problem */
    /* 1: the sparse spans at the end of the process are known, as are the next two fields. */
    uint32_t pinned_known;
    uint32_t unused;
    uint64_t pinned_spans[CALL_STACKS_SPANS]; /* number of sparse spans */
    uint64_t pinned_held[CALL_STACKS_SPANS];  /* resident bytes of sparse spans */
    uint8_t chunk_table[CALL_STACKS_CHUNKS];  /* table of each chunk: enum call_stacks_table */
};

static_assert(sizeof(struct call_stacks_node) == 16 && sizeof(struct call_stacks_site) == 280 &&
                  sizeof(struct call_stacks_object) == 512,
              "no padding");
static_assert(sizeof(struct call_stacks_head) <= CALL_STACKS_HEAD_BYTES, "the head fits");

#endif
