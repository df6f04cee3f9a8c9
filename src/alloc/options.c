#include "alloc/options.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

static bool is(const char *name, const char *value)
{
    const char *given = secure_getenv(name);
    return given != NULL && strcmp(given, value) == 0;
}

enum options_statistics options_statistics(void)
{
    return is("CAIRN_STATS", "1")            ? OPTIONS_STATISTICS_LINES
           : is("CAIRN_STATS", "json")       ? OPTIONS_STATISTICS_JSON
           : is("CAIRN_STATS", "prometheus") ? OPTIONS_STATISTICS_PROMETHEUS
                                             : OPTIONS_STATISTICS_NONE;
}

/* Returns n if the unit stands for 2^n bytes, or -1 if there is no such unit. No unit means 1
 * byte. */
static int unit_shift(const char *unit)
{
    static const char units[] = "KMGT";
    if (*unit == '\0')
        return 0;
    const char *found = strchr(units, *unit);
    return found == NULL || unit[1] != '\0' ? -1 : 10 * (int)(found - units + 1);
}

/* Returns the value of the variable `name`, which ends in '='. Returns NULL if it is not set, or if
 * the program has other rights than its caller. */
static const char *given_in(char **environment, const char *name)
{
    size_t length = strlen(name);
    if (getauxval(AT_SECURE) != 0)
        return NULL;
    for (; environment != NULL && *environment != NULL; environment++)
        if (strncmp(*environment, name, length) == 0)
            return *environment + length;
    return NULL;
}

bool options_are_given(char **environment)
{
    return given_in(environment, "CAIRN_") != NULL;
}

enum options_limit options_limit(char **environment, size_t *bytes)
{
    const char *given = given_in(environment, "CAIRN_LIMIT=");
    if (given == NULL || *given == '\0')
        return OPTIONS_LIMIT_NONE;
    size_t number = 0;
    const char *at = given;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(number, (size_t)10, &number) ||
            __builtin_add_overflow(number, (size_t)(*at - '0'), &number))
            return OPTIONS_LIMIT_WRONG;
    int shift = unit_shift(at);
    if (number == 0 || shift < 0 || number > SIZE_MAX >> shift)
        return OPTIONS_LIMIT_WRONG;
    *bytes = number << shift;
    return OPTIONS_LIMIT_GIVEN;
}

enum options_limit options_guarded(char **environment, uint32_t *every)
{
    enum { MOST = 1000000000 };
    const char *at = given_in(environment, "CAIRN_GUARDED=");
    if (at == NULL || *at == '\0')
        return OPTIONS_LIMIT_NONE;
    uint64_t number = 0;
    for (; *at >= '0' && *at <= '9' && number <= MOST; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    if (*at != '\0' || number == 0 || number > MOST)
        return OPTIONS_LIMIT_WRONG;
    *every = (uint32_t)number;
    return OPTIONS_LIMIT_GIVEN;
}

enum options_huge options_huge_pages(char **environment)
{
    const char *given = given_in(environment, "CAIRN_HUGE_PAGES=");
    if (given == NULL)
        return OPTIONS_HUGE_AUTO;
    if (strcmp(given, "0") == 0)
        return OPTIONS_HUGE_NEVER;
    return strcmp(given, "1") == 0 ? OPTIONS_HUGE_ALWAYS : OPTIONS_HUGE_AUTO;
}

static bool is_in(char **environment, const char *name, const char *value)
{
    const char *given = given_in(environment, name);
    return given != NULL && strcmp(given, value) == 0;
}

bool options_sites(char **environment)
{
    return is_in(environment, "CAIRN_SITES=", "1");
}

bool options_keep_by_place(char **environment)
{
    return is_in(environment, "CAIRN_BIG_CACHE=", "sites");
}

bool options_background(char **environment)
{
    return is_in(environment, "CAIRN_BACKGROUND=", "1");
}

bool options_purge_lazily(char **environment)
{
    return is_in(environment, "CAIRN_PURGE=", "free");
}

enum options_policy options_policy(char **environment)
{
    return is_in(environment, "CAIRN_POLICY=", "frozen") ? OPTIONS_POLICY_FROZEN
           : is_in(environment, "CAIRN_POLICY=", "ucb1") ? OPTIONS_POLICY_UCB1
                                                         : OPTIONS_POLICY_LEARNING;
}

bool options_trace(char **environment)
{
    return is_in(environment, "CAIRN_TRACE=", "1");
}

bool options_hardened_full(char **environment)
{
    return is_in(environment, "CAIRN_HARDENED=", "full");
}

enum options_move options_move(char **environment)
{
    const char *given = given_in(environment, "CAIRN_MOVE=");
    if (given == NULL)
        return OPTIONS_MOVE_AUTO;
    if (strcmp(given, "0") == 0)
        return OPTIONS_MOVE_NEVER;
    return strcmp(given, "1") == 0 ? OPTIONS_MOVE_ALWAYS : OPTIONS_MOVE_AUTO;
}

bool options_keep_deepbind(void)
{
    return is("CAIRN_KEEP_DEEPBIND", "1");
}
