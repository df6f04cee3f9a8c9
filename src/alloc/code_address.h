/* code_address.h - writes an address of code as the name of a library and an offset in it.
 *
 * This is for reports of a misuse. Any thread may call the function. It allocates nothing, but takes
 * the loader's lock.
 */
#ifndef CAIRN_ALLOC_CODE_ADDRESS_H
#define CAIRN_ALLOC_CODE_ADDRESS_H

#include "base/text.h"

/* Adds "libfoo.so+0x1234", "the program+0x1234", or the address alone if it lies in no object. */
void code_address_add(struct text *text, const void *address);

#endif
