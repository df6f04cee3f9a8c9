/* touch.h - writes to memory once and gives it back, so that a virtual machine's host has backed it.
 *
 * In a virtual machine the first touch of a page costs up to 30 times more than the next one, and whoever
 * runs first would pay for all. Nothing is touched when the machine says that it has less: that would end in
 * an out-of-memory kill.
 */
#ifndef CAIRN_LAUNCH_TOUCH_H
#define CAIRN_LAUNCH_TOUCH_H

#include "base/base.h"

/* False after a complaint. */
bool touch_memory(uint64_t bytes);

#endif
