#include "arena/guard.h"
#include "base/text.h"
#include "os/os.h"

#include <stdlib.h>
#include <string.h>

enum { PATTERN = 0xC5 };

extern void __asan_poison_memory_region(const volatile void *start, size_t bytes)
    __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *start, size_t bytes)
    __attribute__((weak));
extern void __lsan_register_root_region(const void *start, size_t bytes) __attribute__((weak));
extern void __lsan_unregister_root_region(const void *start, size_t bytes) __attribute__((weak));

enum guard guard_choose(bool pattern, bool ask_environment)
{
    if (__asan_poison_memory_region != NULL && __asan_unpoison_memory_region != NULL)
        return GUARD_ASAN;
    if (ask_environment) {
        const char *value = getenv("CAIRN_ARENA_CHECKED");
        pattern = value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
    }
    return pattern ? GUARD_PATTERN : GUARD_NONE;
}

void guard_cover(enum guard guard, void *start, size_t bytes)
{
    switch (guard) {
    case GUARD_NONE:
        break;
    case GUARD_PATTERN:
        memset(start, PATTERN, bytes);
        break;
    case GUARD_ASAN:
        __asan_poison_memory_region(start, bytes);
        break;
    }
}

void guard_uncover(enum guard guard, void *start, size_t bytes)
{
    if (guard == GUARD_ASAN)
        __asan_unpoison_memory_region(start, bytes);
}

void guard_adopt(enum guard guard, void *start, size_t bytes)
{
    if (guard == GUARD_ASAN && __lsan_register_root_region != NULL)
        __lsan_register_root_region(start, bytes);
}

void guard_abandon(enum guard guard, void *start, size_t bytes)
{
    if (guard == GUARD_ASAN && __lsan_unregister_root_region != NULL)
        __lsan_unregister_root_region(start, bytes);
}

const void *guard_disturbed(enum guard guard, const void *start, size_t bytes)
{
    if (guard != GUARD_PATTERN)
        return NULL;
    const unsigned char *byte = start;
    const unsigned char *end = byte + bytes;
    while (byte < end && *byte == PATTERN)
        byte++;
    return byte < end ? byte : NULL;
}

static void add_address(struct text *line, const void *address)
{
    uintptr_t value = (uintptr_t)address;
    unsigned shift = sizeof value * 8;
    while (shift > 4 && value >> (shift - 4) == 0)
        shift -= 4;
    text_add(line, "0x");
    while (shift > 0) {
        shift -= 4;
        text_add_char(line, "0123456789abcdef"[value >> shift & 15]);
    }
}

_Noreturn void guard_complain(const char *noun, const void *owner, const char *what,
                              const void *where)
{
    char data[256];
    struct text line = text_over(data, sizeof data - 1);
    text_add(&line, "cairn: ");
    text_add(&line, noun);
    text_add_char(&line, ' ');
    add_address(&line, owner);
    text_add(&line, ": ");
    text_add(&line, what);
    text_add(&line, " at ");
    add_address(&line, where);
    data[line.length++] = '\n';
    os_die(data, line.length);
}
