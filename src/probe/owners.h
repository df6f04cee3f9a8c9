/* owners.h - records which thread got each live block, and the size group of the block.
 *
 * By default account.c knows the owners of sampled blocks only (watched.h). With
 * CAIRN_PROBE_PATHS=exact, account.c looks up the owner at every free. The record is a table with
 * one word for each 16 bytes of address space. A block uses the word of its first 16 bytes.
 *
 * Any thread may call owners_note() for a block that it has just got, and owners_take() for a block
 * that it is about to free. If the program frees a block twice, the owner may be wrong. If there is
 * no memory for the table, the owner stays unknown.
 */
#ifndef CAIRN_PROBE_OWNERS_H
#define CAIRN_PROBE_OWNERS_H

#include "record/profile.h"

struct owner {
    uint32_t thread; /* thread_state.number of the owner; 0: unknown */
    enum profile_group group;
};

/* Tells own_memory.h that this process does not record owners, so the table stays unused. */
void owners_unused(void);

/* Records the owner of a block. */
void owners_note(const void *block, struct owner owner);

/* Returns the owner of a block and removes it from the record. */
struct owner owners_take(const void *block);

#endif
