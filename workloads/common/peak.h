/* peak.h - reads the highest resident memory that this program ever had. */
#ifndef WORKLOAD_PEAK_H
#define WORKLOAD_PEAK_H

#include <stdint.h>

/* Returns the peak of this program alone, or 0 if the peak cannot be read. getrusage() is not used,
 * because its peak includes that of the process that started this program. The function does not
 * allocate. */
uint64_t peak_resident_bytes(void);

#endif
