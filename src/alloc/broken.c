#include "alloc/broken.h"

#include "base/text.h"
#include "os/os.h"

void broken(const char *what, const void *pointer)
{
    char line[256];
    struct text text = text_over(line, sizeof line);
    text_add(&text, "cairn: ");
    text_add(&text, what);
    if (pointer != NULL) {
        text_add(&text, ": ");
        text_add_hex(&text, (uintptr_t)pointer);
    }
    text_add(&text, "\n");
    os_die(line, text.length);
}
