/* owner.h - finds the loaded object that owns a function, and the build id of the object.
 *
 * The pointers in struct owner point to memory of the loader. They are valid as long as the object
 * is loaded. The functions take the loader's lock, so they may be called from the constructor, but
 * not in a forked child or a signal handler.
 */
#ifndef CAIRN_WITNESS_OWNER_H
#define CAIRN_WITNESS_OWNER_H

#include "base/base.h"

struct owner {
    /* Path by which the loader opened the object. "" is the program itself. NULL if no object owns
     * the function. */
    const char *path;
    const unsigned char *build_id; /* NULL if the object has none */
    size_t build_id_bytes;
};

/* Returns the object whose memory image contains `address`. */
struct owner owner_of_address(const void *address);

/* Returns the object whose definition of `name` the program uses. */
struct owner owner_of_function(const char *name);

#endif
