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

/* Counts in `table` from now on, which lies in a new file and is filled with zeroes. NULL ends the
 * counting. */
void lock_table_begin(struct lock_records *table);

/* Returns the entry of the lock at `lock`, and makes one for a lock that is not known. `kind` is
 * that of record/lock_record.h. Returns NULL if there is no file, or no room for the lock. Then the
 * lock is counted as beyond the table. */
struct lock_record *lock_table_at(uintptr_t lock, uint64_t kind);

/* Counts a futex call of the allocator on the word at `address`, which took `ticks`. */
void lock_table_futex(uintptr_t address, bool is_wait, uint64_t ticks);

#endif
