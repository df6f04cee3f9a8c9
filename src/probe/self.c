#include "probe/self.h"

__thread struct self self = {.guard = SELF_UNKNOWN};
