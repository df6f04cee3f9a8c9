#include "alloc/call_site.h"

#include "base/loaded.h"

#include <link.h>
#include <string.h>

/* An address of code, and the text to which its place is added. */
struct site_text {
    struct text *text;
    uintptr_t address;
};

/* Called by dl_iterate_phdr() for each object. Adds the object's name and the offset of the address
 * if the address lies in the object. Returns 1 then, which ends the iteration. */
static int add_if_inside(struct dl_phdr_info *object, size_t bytes, void *context)
{
    (void)bytes;
    const struct site_text *site = context;
    if (!loaded_contains(object, site->address))
        return 0;
    const char *slash = strrchr(object->dlpi_name, '/');
    const char *name = slash != NULL ? slash + 1 : object->dlpi_name;
    text_add(site->text, *name != '\0' ? name : "the program");
    text_add_char(site->text, '+');
    text_add_hex(site->text, site->address - object->dlpi_addr);
    return 1;
}

void call_site_add(struct text *text, const void *address)
{
    struct site_text site = {text, (uintptr_t)address};
    if (dl_iterate_phdr(add_if_inside, &site) == 0)
        text_add_hex(text, site.address);
}
