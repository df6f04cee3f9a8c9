#include "alloc/broken.h"

#include "alloc/code_address.h"
#include "alloc/hardening.h"
#include "base/text.h"
#include "os/lock.h"
#include "os/os.h"

static void add_what(struct text *text, const char *what, const void *pointer)
{
    text_add(text, "cairn: ");
    text_add(text, what);
    if (pointer != NULL) {
        text_add(text, ": ");
        text_add_hex(text, (uintptr_t)pointer);
    }
}

void broken(const char *what, const void *pointer)
{
    char line[256];
    struct text text = text_over(line, sizeof line);
    add_what(&text, what, pointer);
    text_add(&text, "\n");
    os_die(line, text.length);
}

void broken_by_misuse(const char *what, const void *pointer, const char *where, size_t bytes)
{
    char line[512];
    struct text text = text_over(line, sizeof line);
    add_what(&text, what, pointer);
    if (where != NULL) {
        text_add(&text, ", ");
        text_add(&text, where);
        text_add(&text, " ");
        text_add_unsigned(&text, bytes);
    }
    if (!CAIRN_HARDENED) {
        text_add(&text, "; cairn run --hardened finds where");
    } else if (hardening_caller != NULL) {
        text_add(&text, ", called from ");
        /* Naming the function takes the loader's lock. Another thread may hold that lock and wait
         * for a lock of this thread. So a thread that holds a lock prints only the address. */
        if (lock_is_held() || lock_is_forking())
            text_add_hex(&text, (uintptr_t)hardening_caller);
        else
            code_address_add(&text, hardening_caller);
    }
    text_add(&text, "\n");
    os_die(line, text.length);
}
