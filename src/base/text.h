/* text.h - writes text and JSON into a buffer that the caller owns.
 *
 * The functions allocate nothing, make no system call, and are async-signal-safe. Between calls,
 * always:
 *     length < capacity
 *     data[length] == '\0'
 *     truncated == true if something did not fit; after that, nothing more is added
 * A truncated text must not be used as a document. The caller checks `truncated` before it writes
 * the text out.
 */
#ifndef CAIRN_TEXT_H
#define CAIRN_TEXT_H

#include "base/base.h"

struct text {
    char *data;
    size_t capacity;
    size_t length;
    bool truncated;
};

/* Returns an empty text in a buffer of `capacity` bytes. `capacity` includes the final NUL and is
 * at least 1. */
static inline struct text text_over(char *data, size_t capacity)
{
    data[0] = '\0';
    return (struct text){.data = data, .capacity = capacity};
}

static inline void text_add_char(struct text *text, char c)
{
    if (text->truncated || text->length + 1 >= text->capacity) {
        text->truncated = true;
        return;
    }
    text->data[text->length++] = c;
    text->data[text->length] = '\0';
}

static inline void text_add(struct text *text, const char *s)
{
    while (*s != '\0' && !text->truncated)
        text_add_char(text, *s++);
}

static inline void text_add_unsigned(struct text *text, uint64_t value)
{
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (count > 0)
        text_add_char(text, digits[--count]);
}

/* Adds "0x" and hexadecimal digits. */
static inline void text_add_hex(struct text *text, uint64_t value)
{
    text_add(text, "0x");
    bool begun = false;
    for (int shift = 60; shift >= 0; shift -= 4) {
        unsigned digit = (unsigned)(value >> shift) & 15;
        begun = begun || digit != 0 || shift == 0;
        if (begun)
            text_add_char(text, "0123456789abcdef"[digit]);
    }
}

static inline void text_add_signed(struct text *text, int64_t value)
{
    if (value < 0) {
        text_add_char(text, '-');
        text_add_unsigned(text, UINT64_C(0) - (uint64_t)value);
    } else {
        text_add_unsigned(text, (uint64_t)value);
    }
}

/* Adds a JSON string with its quotes. Bytes from 0x7f up become \u00XX, because a path need not be
 * valid UTF-8. A reader gets every byte back by encoding the string as Latin-1. */
static inline void text_add_json_string(struct text *text, const char *s)
{
    static const char hex[] = "0123456789abcdef";
    text_add_char(text, '"');
    for (; *s != '\0' && !text->truncated; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            text_add_char(text, '\\');
            text_add_char(text, (char)c);
        } else if (c < 0x20 || c >= 0x7f) {
            text_add(text, "\\u00");
            text_add_char(text, hex[c >> 4]);
            text_add_char(text, hex[c & 15]);
        } else {
            text_add_char(text, (char)c);
        }
    }
    text_add_char(text, '"');
}

/* Adds the name of a member of an object, and a comma before it if one is needed. */
static inline void text_add_json_key(struct text *text, const char *key)
{
    if (text->length > 0 && text->data[text->length - 1] != '{')
        text_add_char(text, ',');
    text_add_json_string(text, key);
    text_add_char(text, ':');
}

static inline void text_add_json_unsigned(struct text *text, const char *key, uint64_t value)
{
    text_add_json_key(text, key);
    text_add_unsigned(text, value);
}

static inline void text_add_json_text(struct text *text, const char *key, const char *value)
{
    text_add_json_key(text, key);
    text_add_json_string(text, value);
}

static inline void text_add_json_bool(struct text *text, const char *key, bool value)
{
    text_add_json_key(text, key);
    text_add(text, value ? "true" : "false");
}

/* Adds null, for a value that was not measured. */
static inline void text_add_json_null(struct text *text, const char *key)
{
    text_add_json_key(text, key);
    text_add(text, "null");
}

#endif
