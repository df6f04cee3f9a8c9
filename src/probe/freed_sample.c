#include "probe/freed_sample.h"

#include "probe/handed_out.h"

enum { ENTRIES_SHIFT = 8 };

static struct freed_block entries[1 << ENTRIES_SHIFT];

static struct freed_block *entry_of(uintptr_t block)
{
    return &entries[(block * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - ENTRIES_SHIFT)];
}

bool freed_sample_has_room(uintptr_t block)
{
    return entry_of(block)->block == 0;
}

void freed_sample_add(struct freed_block freed)
{
    if (handed_out_hide(freed.block, 1))
        *entry_of(freed.block) = freed;
}

struct freed_block *freed_sample_find(uintptr_t block)
{
    struct freed_block *entry = entry_of(block);
    return LIKELY(entry->block != block) ? NULL : entry;
}

void freed_sample_hide(uintptr_t start, size_t bytes)
{
    for (size_t i = 0; i < COUNT_OF(entries); i++)
        if (entries[i].block != 0 && entries[i].block - start < bytes)
            (void)handed_out_hide(entries[i].block, 1);
}
