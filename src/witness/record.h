/* record.h - one line of the witness file: the contract between the processes that write it and the reader.
 *
 * The file is JSON lines, appended to by every process of a measured tree, one write(2) per line. Strings
 * are ASCII; a byte from 0x80 up is \u00XX, so that encoding a string as Latin-1 gives back the bytes. A
 * string that was too long ends in "[cut]". There are four events, told apart by "event"; a reader passes
 * over members that it does not know.
 *
 *     {"v":1,"event":"start","pid":7,"ppid":6,"exe":"/usr/bin/make",
 *      "malloc":{"path":"/usr/lib/libjemalloc.so.2","build_id":"9a01…"},
 *      "split":{"free":"/lib/libc.so.6"},"knobs":{"LD_PRELOAD":"…"},"knobs_cut":true}
 *         A program image began. `malloc` names the object whose malloc it uses: the exe itself when the
 *         program brings its own; `build_id` is null when the object has none. `split` names those of free,
 *         calloc and realloc that another object owns, and is absent when there are none: such a program is
 *         broken. `knobs_cut` is there when some knobs had no room.
 *     {"v":1,"event":"exec","pid":7,"path":"/bin/ls","kind":"dynamic"}
 *         The process is about to become that program. Written before: nobody is left to write it after.
 *     {"v":1,"event":"exec-failed","pid":7,"kind":"dynamic"}
 *         It did not: takes back the latest `exec` of that process, whose kind it repeats.
 *     {"v":1,"event":"spawn","pid":8,"path":"/bin/ls","kind":"dynamic"}
 *         posix_spawn made process 8, which runs that program. Written by the parent, often after the
 *         `start` of 8.
 *
 * `kind` says whether a `start` must follow:
 *
 *     dynamic       yes
 *     static        no: no loader, so nothing can be preloaded
 *     setuid        no: it gains privileges (set-id bit, file capabilities, ids that differ), and then the
 *                   loader ignores LD_PRELOAD
 *     other class   no: ELF for another word size or machine than this library
 *     environment   no: the environment that it was given lacks our LD_PRELOAD or CAIRN_WITNESS
 *     unknown       nobody knows: neither ELF nor a script (binfmt_misc), or not readable
 *
 * So for every pid, when all is well:
 *
 *     starts >= dynamic execs - dynamic exec-faileds + dynamic spawns  (+ 1 for the launched command)
 *
 * It is "at least", because programs are also started in ways that no library sees: by libc itself (system,
 * popen), by a static program, by a direct system call. A fork without exec needs no line, since the child
 * keeps the allocator of its parent. A line that is not JSON was torn by a full disk, and then nothing is
 * proven.
 */
#ifndef CAIRN_WITNESS_RECORD_H
#define CAIRN_WITNESS_RECORD_H

#include <sys/types.h>

#include "base/text.h"

enum {
    RECORD_PATH_BYTES = 1000, /* the most that a path takes up, as JSON */
    RECORD_CUT_BYTES = 5,     /* "[cut]" */
    RECORD_HEAD_BYTES = 120,  /* version, event, pid, kind, braces, keys */
};

/* Where this process writes to: the absolute path in CAIRN_WITNESS, remembered from the first call on,
 * which should come before the program runs. NULL without one, and in a process with gained privileges:
 * then nothing is written. */
const char *record_file(void);

/* Starts a line in `line`: {"v":1,"event":EVENT,"pid":PID */
void record_begin(struct text *line, const char *event, pid_t pid);

/* Adds a member; at most `limit` bytes of `value` as JSON, and "[cut]" when that was not all of it. */
void record_add(struct text *line, const char *key, const char *value, size_t limit);

/* Ends the line and appends it to the file. A failure is silent: the reader misses the line, and says so. */
void record_end(struct text *line);

#endif
