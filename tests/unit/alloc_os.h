/* alloc_os.h - the real os.h beneath the allocator's layers under test: any call can be refused, and all are counted.
 *
 * Included by the one file of a program that is linked with src/alloc alone.
 */
#ifndef CAIRN_ALLOC_OS_H
#define CAIRN_ALLOC_OS_H

#define os_claim     real_claim
#define os_give_back real_give_back
#include "../../src/os/lock.c"
#include "../../src/os/os_linux.c"
#undef os_claim
#undef os_give_back

static struct {
    size_t claimed_bytes;
    size_t
        limit_bytes; /* as an address-space limit, or overcommit 2: no more than this is mapped; 0: no limit */
    unsigned claim_count;
    unsigned give_back_count;
    unsigned call_count;   /* of the two above */
    unsigned refuse_call;  /* the so-manieth call is refused; 0: none */
    unsigned refuse_after; /* as are all calls after so many; 0: none */
    bool occupied_once;    /* the next claim of a chunk finds somebody else there */
} fake_os;

enum os_claimed os_claim(void *start, size_t bytes);
bool os_give_back(void *start, size_t bytes);

static bool fake_refuses(void)
{
    fake_os.call_count++;
    bool all = fake_os.refuse_after > 0 && fake_os.call_count > fake_os.refuse_after;
    return all || fake_os.call_count == fake_os.refuse_call;
}

enum os_claimed os_claim(void *start, size_t bytes)
{
    fake_os.claim_count++;
    if (fake_refuses())
        return OS_REFUSED;
    if (fake_os.limit_bytes > 0 && fake_os.claimed_bytes + bytes > fake_os.limit_bytes)
        return OS_REFUSED;
    if (fake_os.occupied_once && bytes >= (1 << 21)) {
        fake_os.occupied_once = false;
        return OS_OCCUPIED;
    }
    enum os_claimed claim = real_claim(start, bytes);
    if (claim == OS_CLAIMED)
        fake_os.claimed_bytes += bytes;
    return claim;
}

bool os_give_back(void *start, size_t bytes)
{
    fake_os.give_back_count++;
    return !fake_refuses() && real_give_back(start, bytes);
}

#endif
