/* loaded.h - tells which loaded file contains an address, and the build ID of a loaded file. */
#ifndef CAIRN_LOADED_H
#define CAIRN_LOADED_H

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The build ID of a loaded file. It lies in the file's memory. */
struct loaded_build_id {
    const unsigned char *bytes; /* NULL if the file has none */
    size_t length;
};

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

/* Finds the build ID in a PT_NOTE segment. A note is a header, a name and a description. The name
 * and the description are padded to the segment's alignment. */
static inline struct loaded_build_id loaded_build_id_in(const ElfW(Phdr) * segment, uintptr_t base)
{
    uintptr_t start = base + segment->p_vaddr;
    size_t padding = segment->p_align == 8 ? 7 : 3;
    size_t offset = 0;
    while (segment->p_memsz - offset >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, (const void *)(start + offset), sizeof note);
        size_t name = offset + sizeof note;
        size_t description = (name + note.n_namesz + padding) & ~padding;
        size_t end = (description + note.n_descsz + padding) & ~padding;
        if (end < offset || description + note.n_descsz > segment->p_memsz)
            break;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof "GNU" &&
            memcmp((const void *)(start + name), "GNU", sizeof "GNU") == 0)
            return (struct loaded_build_id){(const unsigned char *)(start + description),
                                            note.n_descsz};
        if (end >= segment->p_memsz)
            break;
        offset = end;
    }
    return (struct loaded_build_id){NULL, 0};
}

static inline struct loaded_build_id loaded_build_id_of(const struct dl_phdr_info *file)
{
    struct loaded_build_id found = {NULL, 0};
    for (size_t i = 0; i < file->dlpi_phnum && found.bytes == NULL; i++)
        if (file->dlpi_phdr[i].p_type == PT_NOTE)
            found = loaded_build_id_in(&file->dlpi_phdr[i], file->dlpi_addr);
    return found;
}

#endif
