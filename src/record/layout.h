/* layout.h - the file in which the probe records where the blocks of one process lie: the interface
 * between C and Python.
 *
 * The file lies beside the probe's file of the process (profile.h), and its name ends in .layout
 * instead of .probe. It exists only if the layout is wanted. The probe maps it and writes to it
 * while the process runs. cairn/profile/layout.py reads it. Numbers are in the byte order of the
 * machine. Always:
 *
 *     the file is one struct layout_file
 *     writing is odd  =>  `totals`, `pages` and what belongs to them are being written
 *     seen[g] >= number of entries of blocks[g] with bytes != 0
 *
 * A region is LAYOUT_REGION_BYTES of addresses that begin at a multiple of this size. The probe
 * tracks a region, which means that it sees every block that touches it, if a hash of the region's
 * address is below `threshold` out of 2^32. The threshold only falls. So the tracked regions are a
 * fair sample of all regions. The table of pages is written at a snapshot, and the snapshot that is
 * kept is the one with the most live bytes.
 *
 * `blocks` is a fair sample of the allocations of each size group. `warmth` is a fair sample of the
 * small and medium blocks that were freed and whose address was handed out again. Every change of
 * the layout needs a new LAYOUT_VERSION.
 */
#ifndef CAIRN_RECORD_LAYOUT_H
#define CAIRN_RECORD_LAYOUT_H

#include "record/profile.h"

#define LAYOUT_MAGIC "cairnlay"

enum {
    LAYOUT_VERSION = 2,
    LAYOUT_REGION_SHIFT = 15, /* 32 KiB: blocks above this size are all seen */
    LAYOUT_REGION_BYTES = 1 << LAYOUT_REGION_SHIFT,
    LAYOUT_PAGE_SHIFT = 12, /* independent of the kernel's page size */
    LAYOUT_LINE_SHIFT = 6,
    LAYOUT_REGION_PAGES = LAYOUT_REGION_BYTES >> LAYOUT_PAGE_SHIFT,
    LAYOUT_PAGES = 2048,
    LAYOUT_BLOCKS = 2048, /* entries for each size group */
    LAYOUT_WARMTH = 4096,
    LAYOUT_WATCHES = 16, /* lines that are watched at most */
};

enum layout_way {
    LAYOUT_OFF,
    LAYOUT_SAMPLED, /* some regions are tracked */
    LAYOUT_EXACT,   /* all regions are tracked */
};

/* What the live blocks touched at the snapshot. */
struct layout_totals {
    uint64_t regions;
    uint64_t pages;  /* that a live block touches */
    uint64_t lines;  /* the same of cache lines */
    uint64_t blocks; /* live blocks that begin in tracked regions */
    uint64_t bytes;  /* requested bytes of live blocks on these pages */
    uint64_t active; /* lines with blocks of several threads, not `passive` */
    /* the same, if one of the blocks was freed by another thread before */
    uint64_t passive;
};

/* A page of 4 KiB of a tracked region at the snapshot. Pages without a live block have no entry. */
struct layout_page {
    uint32_t region; /* index of its region among the tracked ones */
    uint16_t bytes;  /* the fields of struct layout_totals, of this page alone */
    uint16_t lines;
    uint16_t blocks;
    uint16_t active;
    uint16_t passive;
    uint16_t unused;
};

/* A sampled allocation, and the next allocation by the same thread. */
struct layout_block {
    uint32_t address; /* its lowest 32 bits */
    /* requested, at most UINT32_MAX; 0: the entry is not used */
    uint32_t bytes;
    uint32_t usable;     /* by malloc_usable_size(); 0: not known */
    uint32_t next_bytes; /* requested by the next allocation; 0: not known */
    int64_t distance;    /* address of the next block less that of this one */
};

/* An allocation that got the address of a freed block. */
struct layout_warmth {
    /* if other is 0: operations of the thread since the free, this allocation included */
    uint32_t operations;
    uint32_t unused;
    /* 1: another thread had freed the block. 0: the same thread */
    uint32_t other;
    uint32_t used; /* 1: the entry is used */
};

/* Watched cache lines that held live blocks of several threads. Hardware breakpoints counted the
 * writes of each thread to each word of the line. */
struct layout_watches {
    uint64_t lines;     /* watched lines */
    uint64_t confirmed; /* of these, lines that two threads or more wrote to */
    uint64_t written;   /* of these, lines that one thread wrote to */
    /* lines without a result, because nothing ended a window in time */
    uint64_t late;
    /* the longest time for which a line with a result was watched */
    uint64_t longest_ns;
    /* requested bytes of blocks on confirmed lines: the least and the most */
    uint32_t least_bytes;
    uint32_t most_bytes;
    /* the kernel's reason for refusing breakpoints; 0: it has not refused any */
    uint32_t refused_errno;
    uint32_t unused;
};

struct layout_file {
    char magic[8];
    uint32_t order; /* PROFILE_ORDER */
    uint32_t version;
    uint32_t bytes; /* of this struct */
    uint32_t way;   /* enum layout_way */
    uint32_t process;
    /* 1: tracking ended, because the program allocates too often */
    uint32_t stopped;
    uint64_t ns_begin; /* this and the next one are those of struct profile_head */
    /* one allocation of a small or medium block in `gap` is in `seen` */
    uint64_t gap;
    uint64_t threshold;
    uint64_t events; /* allocations and frees in tracked regions */
    struct layout_watches watches;

    uint64_t writing;
    uint64_t snapshot_ns;        /* since the process began; 0: there is no snapshot */
    uint64_t snapshot_threshold; /* at the snapshot */
    /* requested bytes of all live blocks then, as live.h has them */
    uint64_t snapshot_bytes;
    /* used entries of `pages`; 0 if there were too many pages */
    uint64_t page_count;
    struct layout_totals totals;

    uint64_t seen[PROFILE_GROUPS]; /* allocations of which blocks[g] is a sample */
    uint64_t warm_seen;
    struct layout_page pages[LAYOUT_PAGES];
    struct layout_block blocks[PROFILE_GROUPS][LAYOUT_BLOCKS];
    struct layout_warmth warmth[LAYOUT_WARMTH];
};

static_assert(sizeof(struct layout_page) == 16 && sizeof(struct layout_block) == 24, "no padding");

#endif
