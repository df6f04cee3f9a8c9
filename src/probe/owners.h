/* owners.h - which thread got each block that lives, and in which group of sizes: for who asked that every free be told
 * apart (CAIRN_PROBE_PATHS=exact), not one in so many. One word for 16 bytes of memory handed out, at its beginning.
 *
 * Any thread may call anything, for blocks of its own: that nobody uses a block that was freed is the program's affair.
 * What cannot be noted, for want of memory, is of nobody.
 */
#ifndef CAIRN_PROBE_OWNERS_H
#define CAIRN_PROBE_OWNERS_H

#include "record/profile.h"

struct owner {
    uint32_t thread; /* self.number; 0: not known */
    enum profile_group group;
};

void owners_note(const void *block, struct owner owner);

/* Who has it; from now on nobody does. */
struct owner owners_take(const void *block);

#endif
