#include "alloc/code_address.h"

#include "base/loaded.h"

#include <link.h>
#include <string.h>

/* An address of code, and the text to which its library and offset are added. */
struct address_text {
    struct text *text;
    uintptr_t address;
};

/* Called by dl_iterate_phdr() for each object. Adds the object's name and the offset of the address
 * if the address lies in the object. Returns 1 then, which ends the iteration. */
static int add_if_inside(struct dl_phdr_info *object, size_t bytes, void *context)
{
    (void)bytes;
    const struct address_text *wanted = context;
    if (!loaded_contains(object, wanted->address))
        return 0;
    const char *slash = strrchr(object->dlpi_name, '/');
    const char *name = slash != NULL ? slash + 1 : object->dlpi_name;
    text_add(wanted->text, *name != '\0' ? name : "the program");
    text_add_char(wanted->text, '+');
    text_add_hex(wanted->text, wanted->address - object->dlpi_addr);
    return 1;
}

void code_address_add(struct text *text, const void *address)
{
    struct address_text wanted = {text, (uintptr_t)address};
    if (dl_iterate_phdr(add_if_inside, &wanted) == 0)
        text_add_hex(text, wanted.address);
}
