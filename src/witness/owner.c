#define _GNU_SOURCE 1
#include "witness/owner.h"

#include "base/loaded.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

struct search {
    uintptr_t address;
    struct owner owner;
};

static int look_at_object(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct search *search = argument;
    (void)size;
    if (!loaded_contains(object, search->address))
        return 0;
    search->owner.path = object->dlpi_name;
    struct loaded_build_id id = loaded_build_id_of(object);
    search->owner.build_id = id.bytes;
    search->owner.build_id_bytes = id.length;
    return 1;
}

struct owner owner_of_address(const void *address)
{
    struct search search = {.address = (uintptr_t)address};
    dl_iterate_phdr(look_at_object, &search);
    return search.owner;
}

/* The program in memory. */
struct program {
    uintptr_t base;            /* address in memory - address in the file */
    const ElfW(Dyn) * section; /* NULL if it has none */
};

static int look_at_program(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct program *program = argument;
    (void)size;
    program->base = object->dlpi_addr;
    for (size_t i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            program->section =
                (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    return 1; /* the program is the first object */
}

/* Returns what an entry of the program's dynamic section points to. Some loaders turn the offset in
 * the entry into an address, as glibc does on most processors. */
static const void *pointer_of(const struct program *program, const ElfW(Dyn) * entry)
{
    uintptr_t at = entry->d_un.d_ptr;
    return (const void *)(at < program->base ? program->base + at : at);
}

/* Finds a symbol in the program's GNU hash table. The table consists of a header, a bloom filter,
 * buckets and chains of hash values. The lowest bit of a hash value is set in the last entry of
 * each chain. dladdr would find the symbol as well, but dladdr looks at all symbols of the program,
 * which takes 60 us for the 29,000 symbols of gcc's cc1. */
static const ElfW(Sym) * find_symbol(const struct program *program, const char *name)
{
    const ElfW(Dyn) *section = program->section;
    const uint32_t *table = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    for (; section->d_tag != DT_NULL; section++) {
        if (section->d_tag == DT_GNU_HASH)
            table = pointer_of(program, section);
        if (section->d_tag == DT_SYMTAB)
            symbols = pointer_of(program, section);
        if (section->d_tag == DT_STRTAB)
            names = pointer_of(program, section);
    }
    if (table == NULL || symbols == NULL || names == NULL)
        return NULL;
    uint32_t hash = 5381;
    for (const char *c = name; *c != '\0'; c++)
        hash = hash * 33 + (unsigned char)*c;
    uint32_t bucket_count = table[0];
    uint32_t first = table[1];
    const uint32_t *buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table);
    const uint32_t *chains = buckets + bucket_count;
    for (uint32_t i = buckets[hash % bucket_count]; i >= first && i != 0; i++) {
        uint32_t link = chains[i - first];
        if ((link | 1) == (hash | 1) && strcmp(names + symbols[i].st_name, name) == 0)
            return &symbols[i];
        if ((link & 1) != 0)
            break;
    }
    return NULL;
}

/* Returns whether the program has only a jump to the function `name`, not the function itself. The
 * linker puts such a jump into a program whose code was not compiled as position independent and
 * takes the address of malloc, so that all pointers to malloc compare equal. Some linkers also put
 * such code into a program that is position independent. dlsym returns the address of the jump,
 * because it searches the program first. The symbol of a jump is undefined (SHN_UNDEF). */
static bool is_only_a_jump(const char *name)
{
    struct program program = {0};
    dl_iterate_phdr(look_at_program, &program);
    const ElfW(Sym) *symbol = program.section != NULL ? find_symbol(&program, name) : NULL;
    return symbol != NULL && symbol->st_shndx == SHN_UNDEF;
}

struct owner owner_of_function(const char *name)
{
    const void *address = dlsym(RTLD_DEFAULT, name);
    if (address == NULL)
        return (struct owner){.path = NULL};
    struct owner owner = owner_of_address(address);
    if (owner.path != NULL && owner.path[0] == '\0' && is_only_a_jump(name))
        /* RTLD_NEXT searches the objects after this library. The program, which has the jump, comes
         * before this library. */
        owner = owner_of_address(dlsym(RTLD_NEXT, name));
    return owner;
}
