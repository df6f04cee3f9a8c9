/* options.h - the options in the environment. Each is read when it is needed, so that a start costs
 * nothing.
 *
 *     CAIRN_STATS=1              writes statistics to stderr, as lines, when the process ends
 *     CAIRN_STATS=json           writes them as one JSON object in one line
 *     CAIRN_STATS=prometheus     writes them in Prometheus' text format
 *     CAIRN_SITES=1              adds to the JSON the large blocks of each call site (site.h)
 *     CAIRN_BIG_CACHE=sites      keeps free runs of large blocks by call site (big_cache.h); has no
 *                                effect in libcairn-hardened, or with CAIRN_BACKGROUND=1
 *     CAIRN_LIMIT=SIZE           limits the memory that is handed out: bytes, or with K, M, G or T
 *     CAIRN_HUGE_PAGES=0         never asks for huge pages
 *     CAIRN_HUGE_PAGES=1         asks for huge pages even if they come slowly (huge_page_timing.h),
 *                                and even if the program's buffers are sparse
 *     CAIRN_BACKGROUND=1         starts a thread that gives memory back while the program sleeps
 *     CAIRN_PURGE=free           gives memory back only when the kernel needs it (MADV_FREE)
 *     CAIRN_POLICY=frozen        learns nothing of the program (learning_control.h)
 *     CAIRN_POLICY=ucb1          also learns how much threads keep ready (run_cache_learning.h);
 *                                has no effect in libcairn-hardened, or with CAIRN_BACKGROUND=1
 *     CAIRN_TRACE=1              writes each change of a learnt value to stderr
 *     CAIRN_MOVE=0               lets realloc() copy blocks, never move their pages with mremap()
 *     CAIRN_MOVE=1               moves their pages, also in a sandbox (abi/sandbox.c)
 *     CAIRN_GUARDED=N            places one in N small blocks on a page of its own, between guards
 *                                (guarded_block.h)
 *     CAIRN_HARDENED=full        protects every large block, at any price (large_guard.h)
 *     CAIRN_KEEP_DEEPBIND=1      lets dlopen() pass RTLD_DEEPBIND on (abi/deepbind.c)
 *
 * All options are ignored in a program that has other rights than its caller (set-uid,
 * capabilities).
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

/* Sets `*bytes` to the limit if one is given. A value that is not a size, is 0 or is above SIZE_MAX
 * is wrong. `environment` is the environment that the loader passes to a constructor, because the C
 * library may not have set `environ` yet when our constructor runs. */
enum options_limit options_limit(char **environment, size_t *bytes);

/* Returns whether a variable begins with "CAIRN_". If not, no option is given, and the constructor
 * need not search for each. `environment` is as above, here and below. */
bool options_are_given(char **environment);

/* The library's constructor also calls the following functions. */
enum options_huge { OPTIONS_HUGE_AUTO, OPTIONS_HUGE_NEVER, OPTIONS_HUGE_ALWAYS };
enum options_huge options_huge_pages(char **environment);
bool options_sites(char **environment);
bool options_keep_by_place(char **environment);
bool options_background(char **environment);
bool options_purge_lazily(char **environment);
enum options_policy { OPTIONS_POLICY_LEARNING, OPTIONS_POLICY_FROZEN, OPTIONS_POLICY_UCB1 };
enum options_policy options_policy(char **environment);
bool options_trace(char **environment);

/* Sets `*every` to N if CAIRN_GUARDED=N is given. A value that is not a number from 1 to 10^9 is
 * wrong. */
enum options_limit options_guarded(char **environment, uint32_t *every);
bool options_hardened_full(char **environment);
enum options_move { OPTIONS_MOVE_AUTO, OPTIONS_MOVE_NEVER, OPTIONS_MOVE_ALWAYS };
enum options_move options_move(char **environment);

bool options_keep_deepbind(void);

#endif
