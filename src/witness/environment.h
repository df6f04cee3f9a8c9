/* environment.h - reads environment variables. getenv is not used, because it takes locks and reads
 * only the process's own environment. The functions here also read the environment of another
 * program. */
#ifndef CAIRN_WITNESS_ENVIRONMENT_H
#define CAIRN_WITNESS_ENVIRONMENT_H

#include <string.h>

#include "base/base.h"

/* Returns the value of the first variable of that name, or NULL if there is none. */
static inline const char *environment_value(char *const environment[], const char *name)
{
    size_t length = strlen(name);
    for (; environment != NULL && *environment != NULL; environment++)
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

/* Returns whether `list` has an element that equals the first `length` bytes of `word`. Each
 * character of `separators` ends an element of `list`. */
static inline bool environment_list_has(const char *list, const char *separators, const char *word,
                                        size_t length)
{
    for (;;) {
        size_t part = strcspn(list, separators);
        if (part == length && memcmp(list, word, length) == 0)
            return true;
        if (list[part] == '\0')
            return false;
        list += part + 1;
    }
}

#endif
