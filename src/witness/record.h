/* record.h - the format of the witness file, in which every process of a measured program records
 * which allocator it uses and how it ends. cairn/run/proof.py and cairn/run/endings.py read the
 * file.
 *
 * The file consists of JSON lines. Each line is appended by one write(2). Strings are ASCII: a byte
 * of 0x80 or above is written as \u00XX, so that encoding a string as Latin-1 gives the original
 * bytes. A string that was too long ends in "[cut]". The member "event" names one of seven events.
 * A reader skips members that it does not know.
 *
 *     {"v":1,"event":"start","pid":7,"ppid":6,"exe":"/usr/bin/make",
 *      "malloc":{"path":"/usr/lib/libjemalloc.so.2","build_id":"9a01…"},
 *      "split":{"free":"/lib/libc.so.6"},"knobs":{"LD_PRELOAD":"…"},"knobs_cut":true}
 *         A program image started. `malloc` is the object whose malloc the program uses. This is
 *         the exe itself if the program has a malloc of its own. `build_id` is null if the object
 *         has none. `split` names each of free, calloc and realloc that belongs to another object
 *         than malloc, with the path of that object. A program with such a function is broken.
 *         `split` is absent if one object owns all four functions. `knobs` has the environment
 *         variables that configure an allocator. `knobs_cut` is present if some of them did not
 *         fit.
 *     {"v":1,"event":"exec","pid":7,"path":"/bin/ls","kind":"dynamic"}
 *         The process is about to execute the program `path`. The line is written before the exec,
 *         because the exec ends the old program.
 *     {"v":1,"event":"exec-failed","pid":7,"kind":"dynamic"}
 *         The exec failed. The line cancels the latest `exec` line of the process. Both lines have
 *         the same kind.
 *     {"v":1,"event":"spawn","pid":8,"path":"/bin/ls","kind":"dynamic"}
 *         posix_spawn started process 8, which runs the program `path`. The parent writes this
 *         line, often after the `start` of process 8.
 *
 *     {"v":1,"event":"fork","pid":9,"ppid":7,"program":"make"}
 *         Process 9 is a forked child of a process that ignores SIGCHLD. No process will wait for
 *         it. Other forked children write no line when they begin.
 *     {"v":1,"event":"end","pid":9,"status":512,"program":"make"}
 *         The process ends by itself, here with exit status 2. `status` is as wait(2) returns it.
 *         The line is written before the end, so the process may still crash, and a process may
 *         write the line twice. `program` is the name of the program, at most 60 bytes of it.
 *     {"v":1,"event":"wait","pid":9,"by":7,"status":11,"program":"make"}
 *         Process 7, which runs `program`, waited for its child 9, and the child ended with this
 *         status. `pid` is 0 if the child was started by system() or popen(), which do not tell its
 *         number. There is no such line for a child that exited with status 0.
 *     {"v":1,"event":"wait","pid":9,"by":5,"status":9,"program":"make","killed":true}
 *         cairn-launch (here process 5) writes this line for every process that it reaps: for the
 *         command itself and for orphans. `program` is the name of the program that ended, or "" if
 *         it is not known. `killed` is present if cairn-launch may have ended the process, because
 *         it was still alive when the command had ended.
 *
 * `kind` says whether a `start` must follow:
 *
 *     dynamic       yes
 *     static        no: the program has no loader, so nothing can be preloaded
 *     setuid        no: the program gains privileges (by a set-id bit, by file capabilities, or
 *                   because effective and real ids differ); the loader then ignores LD_PRELOAD
 *     other class   no: the file is ELF for another word size or machine than this library
 *     environment   no: the program's environment lacks our LD_PRELOAD or CAIRN_WITNESS
 *     unknown       not known: the file is neither ELF nor a script (binfmt_misc), or not readable
 *
 * If no record is missing, for every process number:
 *
 *     starts >= dynamic execs - dynamic exec-faileds + dynamic spawns
 *
 * The process that cairn-launch starts has at least one start more than this, because no witness
 * records the exec by the launcher.
 *
 * There may be more starts than the formula requires, because this library does not see every start
 * of a program: system and popen of libc, static programs, programs that make the system call
 * directly, and processes with a filter of system calls (sandbox.h) start others without an `exec`
 * or `spawn` line. A fork without exec needs no line here,
 * because the child keeps the allocator of its parent. A line that is not valid JSON is incomplete,
 * for example because the disk was full. A file with such a line proves nothing.
 */
#ifndef CAIRN_WITNESS_RECORD_H
#define CAIRN_WITNESS_RECORD_H

#include <sys/types.h>

#include "base/text.h"

enum {
    RECORD_PATH_BYTES = 1000, /* limit for a path, encoded as JSON */
    RECORD_CUT_BYTES = 5,     /* "[cut]" */
    RECORD_HEAD_BYTES = 120,  /* version, event, pid, kind, braces, keys */
};

/* Returns the path of the file that this process writes to. This is the absolute path in
 * CAIRN_WITNESS at the time of the first call, which should be made before the program runs.
 * Returns NULL if CAIRN_WITNESS has no absolute path, or if the process has gained privileges. The
 * process then writes no records. */
const char *record_file(void);

/* Begins a record: {"v":1,"event":EVENT,"pid":PID */
void record_begin(struct text *line, const char *event, pid_t pid);

/* Adds a member. A value that takes more than `limit` bytes as JSON is cut, and "[cut]" is
 * appended. */
void record_add(struct text *line, const char *key, const char *value, size_t limit);

/* Ends the line and appends it to the file. Returns 0, or the errno of the failure. Most callers
 * ignore the errno, because the reader notices the missing line and reports the problem. */
int record_end(struct text *line);

#endif
