/* call_site.h - writes an address of code as the object that it lies in and its place there.
 *
 * For the reports of a misuse. Any thread may call the function. It allocates nothing, but takes
 * the loader's lock.
 */
#ifndef CAIRN_ALLOC_CALL_SITE_H
#define CAIRN_ALLOC_CALL_SITE_H

#include "base/text.h"

/* Adds "libfoo.so+0x1234", "the program+0x1234", or the address alone if it lies in no object. */
void call_site_add(struct text *text, const void *address);

#endif
