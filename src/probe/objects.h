/* objects.h - the files that are loaded in the process, found by an address in their code.
 *
 * An entry never changes. If a library is unloaded and another one takes its addresses, the other
 * one gets an entry of its own: an entry is used only while the loader still knows the addresses
 * and the build id in memory is still the same. With glibc 2.35 and newer the loader is asked
 * without any lock (_dl_find_object); before, by dl_iterate_phdr(), which takes the loader's lock.
 * So the caller holds no lock of the probe. Any thread may call any function.
 */
#ifndef CAIRN_PROBE_OBJECTS_H
#define CAIRN_PROBE_OBJECTS_H

#include "probe/peek.h"
#include "record/call_stacks.h"

enum { OBJECTS = 1024 };

struct object {
    uintptr_t start, end;
    uintptr_t table;       /* its .eh_frame_hdr; 0: it has none */
    const void *id_at;     /* where the identity lies in memory; NULL: nowhere */
    uint64_t id_beginning; /* the first bytes of the identity */
    struct call_stacks_object about;
};

/* Prepares the search. Called once for each program, before the first thread counts. */
void objects_begin(void);

/* Returns the number of the object that has this address; 0 if no object has it, or if there are
 * too many. */
uint32_t objects_find(struct peek *peek, uintptr_t address);

/* Returns an object by its number, which is 1 or more. */
const struct object *objects_get(uint32_t number);

/* Returns the number of objects that were found so far. */
uint32_t objects_count(void);

/* Called in the child of a fork. */
void objects_forked(void);

#endif
