/* target.h - determines the kind of an executable file, and so whether a library can be preloaded
 * into it.
 *
 * The functions make only system calls and use less than 2 KiB of stack; target_search gets its
 * buffer from the caller. They may be called between vfork and exec and from signal handlers. They
 * examine files, never the environment that a program will get. For scripts and for privileges they
 * follow the rules of Linux, which allow a chain of up to 5 scripts, each the interpreter of the
 * one before.
 */
#ifndef CAIRN_WITNESS_TARGET_H
#define CAIRN_WITNESS_TARGET_H

#include "base/base.h"

enum target_kind {
    /* No program would run. The file is missing, is not a regular file or is not executable, or it
     * is a script with a chain of more than 5 script interpreters. */
    TARGET_NONE,
    TARGET_DYNAMIC,
    TARGET_STATIC,
    TARGET_SETUID,
    TARGET_OTHER_CLASS,
    TARGET_ENVIRONMENT, /* not preloaded; set only by exec.c */
    TARGET_UNKNOWN,
    TARGET_SCRIPT, /* a script; only target_of() returns this */
};

enum { TARGET_INTERPRETER_BYTES = 256 }; /* Linux parses only these first bytes of a script */

/* Returns the word that record.h defines for a kind. `kind` must not be TARGET_NONE or
 * TARGET_SCRIPT. */
const char *target_kind_name(enum target_kind kind);

/* Returns whether `path` has the name of a dynamic loader. As a command, a loader runs the program
 * that its arguments name. */
bool target_is_loader(const char *path);

/* Returns the kind of an open file. For a script it returns TARGET_SCRIPT and writes the path of
 * the interpreter. `path` is used only to recognize a dynamic loader by its name, because the file
 * of a loader looks like a static program. */
enum target_kind target_of(int fd, const char *path, char interpreter[TARGET_INTERPRETER_BYTES]);

/* Returns the kind of the program that runs if `path` is executed. The parameters are those of
 * execveat(2); `flags` may contain AT_SYMLINK_NOFOLLOW. */
enum target_kind target_at(int folder_fd, const char *path, int flags);

/* The folders that execvp(3) searches if PATH is not set. */
#define TARGET_SEARCH_DEFAULT "/bin:/usr/bin"

/* Searches for `file` as execvp(3) does. Returns the kind of the program that runs, and its path in
 * `found`. `search_path` is the value of PATH, or NULL if PATH is not set. Returns TARGET_NONE if
 * no folder of PATH has such a program. */
enum target_kind target_search(const char *file, const char *search_path, char *found,
                               size_t capacity);

#endif
