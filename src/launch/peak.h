/* peak.h - the highest memory of a tree of processes, from readings taken now and then. Pure arithmetic.
 *
 *     resident = anonymous + shared pages: what counts
 *     lazy     = the part of it that was given back with MADV_FREE and that the kernel has not yet taken
 *     other    = page cache and kernel memory: charged by the kernel as well, but no memory of the program
 *
 * Between two readings resident may have been higher than at both. Where the kernel keeps the highest charge
 * since the reading before, it closes the gap: at that instant resident was at least
 *
 *     charged_max - the greater `other` of the two readings
 *
 * unless `other` itself was higher in between. A file written and deleted within one interval is thus taken
 * for memory; intervals are short so that this stays small. Where the kernel took page cache meanwhile, from
 * anyone, nothing is closed: it counts what it took only afterwards, so a gap is closed at the reading after
 * the one that showed it, or at the end. (`other` is read as such. What is charged less
 * what is resident would be simpler, and wrong while a process gives much back: its pages are no longer
 * resident, but still charged.)
 *
 * The closing is used only where it exceeds what was read by more than `slack`, because the kernel's numbers
 * do not move together: the charge runs ahead by up to a batch per CPU, and statistics lag. For small
 * programs this would be a large part of the result; their readings are exact in another way (see memory.h).
 * Where `other` changed between the readings, as when a file is read, it must exceed by this change as well:
 * pages on their way into the cache are charged and not yet counted there.
 *
 * Always:
 *
 *     less_lazy_bytes <= peak_bytes
 *     lazy_peak_bytes <= peak_bytes
 */
#ifndef CAIRN_LAUNCH_PEAK_H
#define CAIRN_LAUNCH_PEAK_H

#include "base/base.h"

enum peak_charged {
    PEAK_CHARGED_UNKNOWN,  /* `other` and `charged_max` mean nothing */
    PEAK_CHARGED_INTERVAL, /* charged_max is since the reading before */
    PEAK_CHARGED_LIFETIME, /* charged_max is since the beginning */
};

struct peak_reading {
    uint64_t anon_bytes;
    uint64_t shmem_bytes;
    uint64_t lazy_bytes;
    uint64_t at_least_bytes; /* resident was once that high, says another source; 0: none does */
    uint64_t other_bytes;
    uint64_t charged_max_bytes;
    uint64_t
        cache_taken; /* a counter of the whole machine: stands still while no page cache is taken */
    enum peak_charged charged;
};

/* What resident was at least, between two readings, if no page cache was taken since the first of them. */
struct peak_gap {
    uint64_t bytes;
    uint64_t less_lazy_bytes;
    uint64_t slack_bytes; /* by so much it must exceed what is known */
    uint64_t cache_taken; /* at the first */
};

struct peak {
    uint64_t slack_bytes;
    uint64_t peak_bytes;
    uint64_t less_lazy_bytes;
    uint64_t lazy_peak_bytes;
    uint64_t charged_peak_bytes;
    uint64_t other_max_bytes; /* over all readings, as lazy_peak_bytes is */
    uint64_t count;
    uint64_t cache_taken_first;
    struct peak_reading last;
    struct peak_gap gap; /* that the last reading showed */
};

struct peak peak_begin(uint64_t slack_bytes);
void peak_add(struct peak *peak, const struct peak_reading *reading);

/* After the last reading: closes the last gap, or what a charged_max over the whole lifetime still tells. */
void peak_end(struct peak *peak);

/* Whether it means anything. The last reading is taken when the program has ended, and so, alone, tells only
 * what the closing of the gap does: a program that ended before a second reading was not measured. */
bool peak_is_known(const struct peak *peak);

void peak_check(const struct peak *peak);

#endif
