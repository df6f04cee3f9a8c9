#include "alloc/options.h"

#include <stdlib.h>
#include <string.h>

static bool is(const char *name, const char *value)
{
    const char *given = secure_getenv(name);
    return given != NULL && strcmp(given, value) == 0;
}

enum options_statistics options_statistics(void)
{
    return is("CAIRN_STATS", "1")      ? OPTIONS_STATISTICS_LINES
           : is("CAIRN_STATS", "json") ? OPTIONS_STATISTICS_JSON
                                       : OPTIONS_STATISTICS_NONE;
}

bool options_keep_deepbind(void)
{
    return is("CAIRN_KEEP_DEEPBIND", "1");
}
