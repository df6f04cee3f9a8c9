/* objects.h - the files that are loaded in the process, found by an address in their code.
 *
 * An entry never changes. If a library is unloaded and another one takes its addresses, the other
 * one gets an entry of its own: an entry is used only while the loader still knows the addresses
 * and the identity in memory is still the same. The identity is the build id, or the beginning of
 * .eh_frame_hdr if the file has no build id. With glibc 2.35 and newer, _dl_find_object() asks the
 * loader without any lock. With older versions, dl_iterate_phdr() takes the loader's lock. So the
 * caller must hold no lock of the probe. Any thread may call any function.
 */
#ifndef CAIRN_PROBE_OBJECTS_H
#define CAIRN_PROBE_OBJECTS_H

#include "probe/peek.h"
#include "record/call_stacks.h"

enum { OBJECTS = 1024 };

struct object {
    uintptr_t start, end;
    uintptr_t table;       /* address of .eh_frame_hdr; 0: the file has none */
    const void *id_at;     /* address of the identity; NULL: the file has none */
    uint64_t id_beginning; /* first bytes of the identity */
    struct call_stacks_object about;
};

/* Prepares the search. Called before the first search, while there is one thread. A second call
 * does nothing. */
void objects_begin(void);

/* Returns the number of the object that has this address; 0 if no object has it, or if there are
 * too many. */
uint32_t objects_find(struct peek *peek, uintptr_t address);

/* Returns an object by its number, which is 1 or more. */
const struct object *objects_get(uint32_t number);

/* Returns the number of objects that were found so far. */
uint32_t objects_count(void);

/* Called in the child of a fork: frees the lock, which another thread may have held. */
void objects_forked(void);

#endif
