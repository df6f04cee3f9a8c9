#include "probe/thread_state.h"

__thread struct thread_state thread_state = {.guard = THREAD_UNKNOWN};
