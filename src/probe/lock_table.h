/* lock_table.h - the table of the locks that the allocator takes, by their addresses. It lies in
 * the probe's file (record/lock_record.h).
 *
 * Entries are never removed, so a lock at the address of a former one continues its entry. Any
 * thread may call any function but the first two. Nothing here takes a lock or allocates.
 */
#ifndef CAIRN_PROBE_LOCK_TABLE_H
#define CAIRN_PROBE_LOCK_TABLE_H

#include "record/lock_record.h"

/* Finds the programs and libraries that are loaded. It takes the loader's lock, so it is called
 * once for each program image, before the process has a file. */
void lock_table_find_objects(void);

/* From now on, locks are counted in `table`, which is filled with zeroes and lies in a new file of
 * the probe. NULL ends the counting. */
void lock_table_begin(struct lock_records *table);

/* Returns the entry of the lock at the address `lock`, and makes an entry if there is none. `kind`
 * is the kind of the lock (record/lock_record.h). Returns NULL if there is no file. Returns NULL,
 * too, if the table has no room for the lock, and counts this event in lock_records.beyond. */
struct lock_record *lock_table_at(uintptr_t lock, uint64_t kind);

/* Counts a futex call of the allocator on the word at `address`, which took `ticks`. */
void lock_table_futex(uintptr_t address, bool is_wait, uint64_t ticks);

#endif
