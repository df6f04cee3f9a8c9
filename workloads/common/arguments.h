/* arguments.h - parses the arguments of a workload.
 *
 * main() calls arguments_read() once. It fills `settings` and the values of workload.own. For a
 * wrong argument it prints one sentence on stderr and exits with 2. --help prints all options with
 * their defaults and exits with 0.
 */
#ifndef WORKLOAD_ARGUMENTS_H
#define WORKLOAD_ARGUMENTS_H

#include "common/workload.h"

void arguments_read(int argc, char **argv);

/* Returns the word that stands for `value` in "one|two|three", and its length. */
const char *choice_name(const char *choices, uint64_t value, size_t *length);

extern const char touch_choices[]; /* "none|header|all", in the order of enum touch */

#endif
