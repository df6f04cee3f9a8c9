/* complaint.h - prints an error of cairn-launch itself as one sentence on stderr.
 *
 * The sentence is "cairn-launch: <what> '<object>': <error>." It is written by one write(), so that
 * output of PROG cannot interrupt it. The function only prints. The caller decides whether to go
 * on.
 */
#ifndef CAIRN_LAUNCH_COMPLAINT_H
#define CAIRN_LAUNCH_COMPLAINT_H

/* Exit status if cairn-launch itself failed. env(1) and timeout(1) use the same number. */
#define COMPLAINT_EXIT 125

/* Prints the sentence described above. `object` may be NULL. `error` is an errno, or 0 if there is
 * none. */
void complaint(const char *what, const char *object, int error);

#endif
