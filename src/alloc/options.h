/* options.h - what the environment asks for; read at the moment that it matters, so that a start costs nothing.
 *
 *     CAIRN_STATS=1              statistics in lines on stderr when the process ends
 *     CAIRN_STATS=json           as one JSON object in one line
 *     CAIRN_STATS=prometheus     in Prometheus' text format
 *     CAIRN_SITES=1              what each call site does with large blocks is in the JSON as well (site.h)
 *     CAIRN_LIMIT=SIZE           no more memory than that is handed out: bytes, or with K, M, G or T times 1024 …
 *     CAIRN_HUGE_PAGES=0         no chunk asks for huge pages; =1: also where they are slow to come (page_heap.h)
 *     CAIRN_BACKGROUND=1         a thread gives memory back while the program sleeps (background.h)
 *     CAIRN_PURGE=free           memory goes back when the kernel needs it (MADV_FREE)
 *     CAIRN_POLICY=frozen        nothing is learnt of the program (learning.h)
 *     CAIRN_TRACE=1              what is learnt is told on stderr
 *     CAIRN_KEEP_DEEPBIND=1      dlopen() passes RTLD_DEEPBIND on (abi/dlopen.c)
 *
 * A program that runs with other rights than its caller's (set-uid, capabilities) is asked nothing.
 */
#ifndef CAIRN_ALLOC_OPTIONS_H
#define CAIRN_ALLOC_OPTIONS_H

#include "base/base.h"

enum options_statistics {
    OPTIONS_STATISTICS_NONE,
    OPTIONS_STATISTICS_LINES,
    OPTIONS_STATISTICS_JSON,
    OPTIONS_STATISTICS_PROMETHEUS,
};

enum options_statistics options_statistics(void);

enum options_limit { OPTIONS_LIMIT_NONE, OPTIONS_LIMIT_GIVEN, OPTIONS_LIMIT_WRONG };

/* The limit in bytes, where one is given; wrong is what is no size, 0, or more than memory can be. `environment` is what a
 * constructor gets: ours come before the C library has its own. */
enum options_limit options_limit(char **environment, size_t *bytes);

/* Also for a constructor. */
enum options_huge { OPTIONS_HUGE_AUTO, OPTIONS_HUGE_NEVER, OPTIONS_HUGE_ALWAYS };
enum options_huge options_huge_pages(char **environment);
bool options_sites(char **environment);

/* Also for a constructor. */
bool options_background(char **environment);
bool options_purge_lazily(char **environment);
bool options_policy_frozen(char **environment);
bool options_trace(char **environment);

bool options_keep_deepbind(void);

#endif
