/* code_address.h - writes an address of code as the name of a library and an offset in it.
 *
 * It serves the reports of misuse. Any thread may call the function, which allocates nothing but
 * takes the lock of the loader.
 */
#ifndef CAIRN_ALLOC_CODE_ADDRESS_H
#define CAIRN_ALLOC_CODE_ADDRESS_H

#include "base/text.h"

/* Adds "libfoo.so+0x1234", "the program+0x1234", or the address alone if it lies in no object. */
void code_address_add(struct text *text, const void *address);

#endif
