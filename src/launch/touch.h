/* touch.h - writes to memory once and gives it back, so that the host of a virtual machine provides
 * this memory before the measurement.
 *
 * In a virtual machine the first access to a page costs up to 30 times as much as later ones.
 * Without this step, the allocator that is measured first would pay that cost for all others. If
 * fewer bytes are available than requested, nothing is touched, because the kernel would kill the
 * process.
 */
#ifndef CAIRN_LAUNCH_TOUCH_H
#define CAIRN_LAUNCH_TOUCH_H

#include "base/base.h"

/* Touches `bytes` of memory. Returns false after printing an error. */
bool touch_memory(uint64_t bytes);

#endif
