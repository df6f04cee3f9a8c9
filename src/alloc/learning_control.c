#include "alloc/learning_control.h"

#include "base/text.h"
#include "os/os.h"

#include <stdatomic.h>

static _Atomic bool frozen;
static _Atomic bool traced;
static _Atomic uint64_t changes;

void learning_freeze(void)
{
    atomic_store_explicit(&frozen, true, memory_order_relaxed);
}

bool learning_is_frozen(void)
{
    return atomic_load_explicit(&frozen, memory_order_relaxed);
}

void learning_trace(void)
{
    atomic_store_explicit(&traced, true, memory_order_relaxed);
}

static void write_line(const char *what, uint64_t before, uint64_t now)
{
    char line[256];
    struct text text = text_over(line, sizeof line);
    text_add(&text, "cairn: ");
    text_add(&text, what);
    text_add(&text, ": ");
    text_add_unsigned(&text, before);
    text_add(&text, " -> ");
    text_add_unsigned(&text, now);
    text_add_char(&text, '\n');
    os_say(line, text.length);
}

void learning_changed(const char *what, uint64_t before, uint64_t now)
{
    if (before == now)
        return;
    atomic_fetch_add_explicit(&changes, 1, memory_order_relaxed);
    if (UNLIKELY(atomic_load_explicit(&traced, memory_order_relaxed)))
        write_line(what, before, now);
}

uint64_t learning_changes(void)
{
    return atomic_load_explicit(&changes, memory_order_relaxed);
}
