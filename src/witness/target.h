/* target.h - what an executable file is, and so whether a library can be preloaded into it.
 *
 * Only system calls and a little stack (below 2 KiB; target_search takes its buffer from the caller):
 * called between vfork and exec and from signal handlers. Looks at files, never at the environment that
 * they will get. What is foreseen follows Linux: script interpreters, at most 5 of them in a row, and who
 * gains privileges.
 */
#ifndef CAIRN_WITNESS_TARGET_H
#define CAIRN_WITNESS_TARGET_H

#include "base/base.h"

enum target_kind {
    TARGET_NONE, /* nothing would run: missing, not a file, not executable, scripts in a circle */
    TARGET_DYNAMIC,
    TARGET_STATIC,
    TARGET_SETUID,
    TARGET_OTHER_CLASS,
    TARGET_ENVIRONMENT, /* never found here: for callers that know the environment */
    TARGET_UNKNOWN,
    TARGET_SCRIPT, /* by target_of() alone: the answer is that of the interpreter */
};

enum { TARGET_INTERPRETER_BYTES = 256 }; /* Linux reads as much of a script's first line */

/* The word of record.h for it; not for TARGET_NONE and TARGET_SCRIPT. */
const char *target_kind_name(enum target_kind kind);

/* Does `path` have the name of a dynamic loader? Run as a command, it loads the program that its
 * arguments name. */
bool target_is_loader(const char *path);

/* What the open file is. For a script, writes the interpreter. `path` tells a loader from a static
 * program. */
enum target_kind target_of(int fd, const char *path, char interpreter[TARGET_INTERPRETER_BYTES]);

/* What runs when `path` is executed, as execveat(2) takes it; `flags` may have AT_SYMLINK_NOFOLLOW. */
enum target_kind target_at(int folder_fd, const char *path, int flags);

/* Where execvp(3) looks when PATH is unset. */
#define TARGET_SEARCH_DEFAULT "/bin:/usr/bin"

/* What runs when `file` is searched for as execvp(3) does, and in `found` its path. `search_path` NULL:
 * PATH is unset. */
enum target_kind target_search(const char *file, const char *search_path, char *found,
                               size_t capacity);

#endif
