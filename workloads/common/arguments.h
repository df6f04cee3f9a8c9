/* arguments.h - what a workload was asked to do.
 *
 * arguments_read() fills `settings` and the values of workload.own. A wrong argument is one sentence on stderr and
 * exit(2), --help the list of all with their defaults and exit(0).
 */
#ifndef WORKLOAD_ARGUMENTS_H
#define WORKLOAD_ARGUMENTS_H

#include "common/workload.h"

void arguments_read(int argc, char **argv);

/* The word that stands for `value` in "one|two|three", and its length. */
const char *choice_name(const char *choices, uint64_t value, size_t *length);

extern const char touch_choices[]; /* "none|header|all", in the order of enum touch */

#endif
