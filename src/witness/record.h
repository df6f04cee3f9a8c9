/* record.h - the format of a line in the witness file, which every process of a measured tree
 * writes and cairn/run/proof.py reads.
 *
 * The file consists of JSON lines. Each line is appended by one write(2). Strings are ASCII: a byte
 * of 0x80 or above is written as \u00XX, so that encoding a string as Latin-1 gives the original
 * bytes. A string that was too long ends in "[cut]". There are four events, which "event" names. A
 * reader skips members that it does not know.
 *
 *     {"v":1,"event":"start","pid":7,"ppid":6,"exe":"/usr/bin/make",
 *      "malloc":{"path":"/usr/lib/libjemalloc.so.2","build_id":"9a01…"},
 *      "split":{"free":"/lib/libc.so.6"},"knobs":{"LD_PRELOAD":"…"},"knobs_cut":true}
 *         A program image started. `malloc` is the object whose malloc it uses: the exe itself if
 *         the program has its own. `build_id` is null if the object has none. `split` contains
 *         those of free, calloc and realloc that belong to another object. It is absent if there
 *         are none; a program that has it is broken. `knobs_cut` is present if some knobs did not
 *         fit.
 *     {"v":1,"event":"exec","pid":7,"path":"/bin/ls","kind":"dynamic"}
 *         The process is about to execute that program. The line is written before the exec,
 *         because afterwards the old program no longer exists.
 *     {"v":1,"event":"exec-failed","pid":7,"kind":"dynamic"}
 *         The exec failed. This cancels the latest `exec` of the process, whose kind it repeats.
 *     {"v":1,"event":"spawn","pid":8,"path":"/bin/ls","kind":"dynamic"}
 *         posix_spawn started process 8, which runs that program. The parent writes this line,
 *         often after the `start` of process 8.
 *
 * `kind` says whether a `start` must follow:
 *
 *     dynamic       yes
 *     static        no: it has no loader, so nothing can be preloaded
 *     setuid        no: it gains privileges (set-id bit, file capabilities, ids that differ), and
 *                   the loader then ignores LD_PRELOAD
 *     other class   no: it is an ELF file for another word size or machine than this library
 *     environment   no: its environment lacks our LD_PRELOAD or CAIRN_WITNESS
 *     unknown       not known: neither ELF nor a script (binfmt_misc), or not readable
 *
 * For every process number, if all is well:
 *
 *     starts >= dynamic execs - dynamic exec-faileds + dynamic spawns
 *
 * The command that cairn-launch starts has one more.
 *
 * There may be more starts than that, because some ways to start a program are invisible to a
 * library: libc itself (system, popen), a static program, a direct system call. A fork without exec
 * needs no line, since the child keeps the allocator of its parent. A line that is not valid JSON
 * was torn, for example by a full disk. The file then proves nothing.
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

/* Returns the file that this process writes to: the absolute path in CAIRN_WITNESS at the time of
 * the first call. The first call should be made before the program runs. Returns NULL if there is
 * no such path or if the process has gained privileges; then nothing is written. */
const char *record_file(void);

/* Begins a record: {"v":1,"event":EVENT,"pid":PID */
void record_begin(struct text *line, const char *event, pid_t pid);

/* Adds a member. At most `limit` bytes of `value`, encoded as JSON, are added; "[cut]" follows if
 * there were more. */
void record_add(struct text *line, const char *key, const char *value, size_t limit);

/* Ends the line and appends it to the file. A failure is silent here; the reader notices the
 * missing line and reports it. */
void record_end(struct text *line);

#endif
