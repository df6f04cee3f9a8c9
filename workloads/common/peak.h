/* peak.h - reads the highest resident memory that this program ever had. */
#ifndef WORKLOAD_PEAK_H
#define WORKLOAD_PEAK_H

#include <stdint.h>

/* Returns the peak of this program alone, or 0 if it cannot be read. getrusage() would begin with
 * the peak of the process that started it. Does not allocate. */
uint64_t peak_resident_bytes(void);

#endif
