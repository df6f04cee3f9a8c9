/* loaded.h - tells which loaded file contains an address. */
#ifndef CAIRN_LOADED_H
#define CAIRN_LOADED_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns whether the address lies in a segment of the file. dl_iterate_phdr() gives the file. */
static inline bool loaded_contains(const struct dl_phdr_info *file, uintptr_t address)
{
    for (size_t i = 0; i < file->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &file->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD &&
            address - file->dlpi_addr - segment->p_vaddr < segment->p_memsz)
            return true;
    }
    return false;
}

#endif
