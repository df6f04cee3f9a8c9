/* complaint.h - says in one sentence on stderr why cairn-launch could not do its own part.
 *
 * One write per sentence, "cairn-launch: <what> '<object>': <error>.", so that it is not torn by what PROG
 * prints. Says and returns; what happens next is decided by the caller.
 */
#ifndef CAIRN_LAUNCH_COMPLAINT_H
#define CAIRN_LAUNCH_COMPLAINT_H

/* Exit status of cairn-launch when it failed itself, as with env and timeout. */
#define COMPLAINT_EXIT 125

/* `object` may be NULL; `error` is an errno, or 0 for none. */
void complaint(const char *what, const char *object, int error);

#endif
