/* blocks.h - records which memory was handed out, and the size group of each block.
 *
 * The record has one byte for each granule of 16 bytes and one for each OS page of 4 KiB. One leaf
 * covers 1 GiB of addresses. Valgrind runs one thread at a time, so a block's bytes need no lock.
 *
 *     a granule is noted  <=>  its own byte or the byte of its page has the bit NOTED
 */
#ifndef CAIRN_INSTRUCTIONS_BLOCKS_H
#define CAIRN_INSTRUCTIONS_BLOCKS_H

#include "instructions/paths.h"

/* Records that a block of `bytes` bytes was handed out. Returns PATH_NEW if its first granule was
 * never handed out before, or if it is a large block that was handed out before and whose second
 * page has left memory since. Returns PATH_REUSED otherwise, and PATH_UNTOLD for NULL. */
enum path blocks_add(const void *block, size_t bytes);

/* Returns the size group of a block that blocks_add() recorded, and SIZE_SMALL for another one. */
enum size_group blocks_group(const void *block);

#endif
