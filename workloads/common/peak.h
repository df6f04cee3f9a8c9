/* peak.h - the most memory that was ever resident at once in this program. */
#ifndef WORKLOAD_PEAK_H
#define WORKLOAD_PEAK_H

#include <stdint.h>

/* Of this program alone: that of getrusage() begins with the peak of whoever started it. 0 where it cannot be read.
 * Does not allocate. */
uint64_t peak_resident_bytes(void);

#endif
