/* touch.h - writes to memory once and gives it back, so that the host of a virtual machine provides
 * it.
 *
 * In a virtual machine the first touch of a page costs up to 30 times as much as later ones.
 * Without this, the first contender would pay for all. If the machine reports less available
 * memory, nothing is touched, because that would end in an out-of-memory kill.
 */
#ifndef CAIRN_LAUNCH_TOUCH_H
#define CAIRN_LAUNCH_TOUCH_H

#include "base/base.h"

/* Touches `bytes` of memory. Returns false after printing an error. */
bool touch_memory(uint64_t bytes);

#endif
