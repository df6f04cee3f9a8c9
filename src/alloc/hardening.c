#include "alloc/hardening.h"

#include "base/random.h"
#include "os/os.h"

uint64_t canary_secrets[2];
_Thread_local const void *hardening_caller;

uintptr_t hardening_begin(void)
{
    uint64_t secret = os_random();
    struct random random = random_of(secret);
    canary_secrets[0] = random_next(&random);
    canary_secrets[1] = random_next(&random) | 1;
    return (secret & ~(uintptr_t)15) | 8;
}
