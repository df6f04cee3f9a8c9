/* options.h - what the environment asks for; read at the moment that it matters, so that a start costs nothing.
 *
 *     CAIRN_STATS=1              statistics in lines on stderr when the process ends
 *     CAIRN_STATS=json           as one JSON object in one line
 *     CAIRN_KEEP_DEEPBIND=1      dlopen() passes RTLD_DEEPBIND on (abi/dlopen.c)
 *
 * A program that runs with other rights than its caller's (set-uid, capabilities) is asked nothing.
 */
#ifndef CAIRN_ALLOC_OPTIONS_H
#define CAIRN_ALLOC_OPTIONS_H

#include "base/base.h"

enum options_statistics { OPTIONS_STATISTICS_NONE, OPTIONS_STATISTICS_LINES, OPTIONS_STATISTICS_JSON };

enum options_statistics options_statistics(void);

bool options_keep_deepbind(void);

#endif
