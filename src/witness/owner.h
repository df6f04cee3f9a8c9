/* owner.h - which loaded object owns a function, and which build of it that is.
 *
 * Everything pointed to belongs to the loader and lives as long as the object is loaded. Takes the loader's
 * lock: for the constructor, not for a fork's or a signal handler's context.
 */
#ifndef CAIRN_WITNESS_OWNER_H
#define CAIRN_WITNESS_OWNER_H

#include "base/base.h"

struct owner {
    const char *path;              /* as the loader found it; "": the program; NULL: nobody */
    const unsigned char *build_id; /* NULL when the object has none */
    size_t build_id_bytes;
};

/* The object that has `address` in its memory image. */
struct owner owner_of_address(const void *address);

/* The object whose definition of `name` the program uses. */
struct owner owner_of_function(const char *name);

#endif
