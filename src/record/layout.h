/* layout.h - the file in which the probe records where the blocks of one process lie: the interface
 * between C and Python.
 *
 * The file lies beside the probe's file of the process (profile.h), and its name ends in .layout
 * instead of .probe. It exists only if the layout is wanted. The probe maps it and writes to it
 * while the process runs. cairn/profile/layout.py reads it. Numbers are in the byte order of the
 * machine. Always:
 *
 *     the file is one struct layout_file
 *     writing is odd  =>  `totals`, `pages` and the fields of the snapshot are being written
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
    LAYOUT_REGION_SHIFT = 15, /* 32 KiB; the probe sees every larger block */
    LAYOUT_REGION_BYTES = 1 << LAYOUT_REGION_SHIFT,
    LAYOUT_PAGE_SHIFT = 12, /* independent of the kernel's page size */
    LAYOUT_LINE_SHIFT = 6,
    LAYOUT_REGION_PAGES = LAYOUT_REGION_BYTES >> LAYOUT_PAGE_SHIFT,
    LAYOUT_PAGES = 2048,
    LAYOUT_BLOCKS = 2048, /* entries for each size group */
    LAYOUT_WARMTH = 4096,
    LAYOUT_WATCHES = 16, /* maximum number of watches, with or without a result */
};

enum layout_way {
    LAYOUT_OFF,
    LAYOUT_SAMPLED, /* some regions are tracked */
    LAYOUT_EXACT,   /* all regions are tracked */
};

/* Totals of the tracked regions at the snapshot. Regions without a live block do not count. A line
 * is shared if it holds live blocks of several threads. */
struct layout_totals {
    uint64_t regions; /* tracked regions with a live block */
    uint64_t pages;   /* OS pages that a live block touches */
    uint64_t lines;   /* cache lines that a live block touches */
    uint64_t blocks;  /* live blocks that begin in these regions */
    uint64_t bytes;   /* requested bytes of live blocks on these pages */
    uint64_t active;  /* shared lines that are not counted in `passive` */
    /* Shared lines with a block that got its address from a remote free: another thread than the
     * owner had freed the former block at this address. */
    uint64_t passive;
};

/* A page of 4 KiB of a tracked region at the snapshot. Pages without a live block have no entry. */
struct layout_page {
    uint32_t region; /* number of the page's region, counted from 0 */
    /* The following fields mean the same as in struct layout_totals, but for this page alone. */
    uint16_t bytes;
    uint16_t lines;
    uint16_t blocks;
    uint16_t active;
    uint16_t passive;
    uint16_t unused;
};

/* A sampled allocation, and the next allocation by the same thread. */
struct layout_block {
    uint32_t address;    /* lowest 32 bits of the block's address */
    uint32_t bytes;      /* requested bytes, at most UINT32_MAX; 0: unused entry */
    uint32_t usable;     /* usable bytes (malloc_usable_size()); 0: not known */
    uint32_t next_bytes; /* requested bytes of the next block; 0: not known */
    int64_t distance;    /* address of the next block - address of this block */
};

/* An allocation that got the address of a freed block. */
struct layout_warmth {
    /* If `other` is 0: number of operations of the thread after the free. This allocation counts,
     * too. */
    uint32_t operations;
    uint32_t unused;
    uint32_t other; /* who freed the block; 0: this thread; 1: another one */
    uint32_t used;  /* 1: the entry is used */
};

/* The watched cache lines, which held live blocks of several threads. While a line was watched,
 * hardware breakpoints counted the writes of each thread to each word of the line. */
struct layout_watches {
    uint64_t lines;     /* lines that were watched with a result */
    uint64_t confirmed; /* lines to which two or more threads wrote */
    uint64_t written;   /* lines to which exactly one thread wrote */
    /* Lines without a result: a window of the watch (line_watch.h) was not ended in time. */
    uint64_t late;
    uint64_t longest_ns; /* longest time for which one of `lines` was watched */
    /* Smallest and largest requested size of a block on a confirmed line. */
    uint32_t least_bytes;
    uint32_t most_bytes;
    /* errno with which the kernel refused breakpoints; 0: none was refused */
    uint32_t refused_errno;
    uint32_t unused;
};

struct layout_file {
    char magic[8];
    uint32_t order; /* PROFILE_ORDER */
    uint32_t version;
    uint32_t bytes; /* size of this struct, for a reader to check */
    uint32_t way;   /* enum layout_way */
    uint32_t process;
    uint32_t stopped;  /* 1: tracking ended: the program allocates too often */
    uint64_t ns_begin; /* profile_head.ns_begin */
    /* Of the small and medium allocations, `seen` counts one in `gap`. It counts all large ones. */
    uint64_t gap;
    uint64_t threshold; /* see the top of this file */
    uint64_t events;    /* allocations and frees in tracked regions */
    struct layout_watches watches;

    uint64_t writing;            /* see the top of this file */
    uint64_t snapshot_ns;        /* time since ns_begin; 0: there is no snapshot */
    uint64_t snapshot_threshold; /* value of `threshold` at the snapshot */
    /* Requested bytes of all live blocks at the snapshot, counted or estimated (live.h). */
    uint64_t snapshot_bytes;
    uint64_t page_count; /* used entries of `pages`; 0: too many pages */
    struct layout_totals totals;

    uint64_t seen[PROFILE_GROUPS]; /* allocations of which blocks[g] is a sample */
    uint64_t warm_seen;            /* allocations of which `warmth` is a sample */
    struct layout_page pages[LAYOUT_PAGES];
    struct layout_block blocks[PROFILE_GROUPS][LAYOUT_BLOCKS];
    struct layout_warmth warmth[LAYOUT_WARMTH];
};

static_assert(sizeof(struct layout_page) == 16 && sizeof(struct layout_block) == 24, "no padding");

#endif
