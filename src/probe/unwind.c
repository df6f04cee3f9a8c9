#include "probe/unwind.h"

#include "probe/objects.h"

#include <stdatomic.h>
#include <string.h>

/* --- rules ------------------------------------------------------------------------------------ */

/* How to go from a function to its caller. The frame's address (CFA) is the caller's stack pointer
 * after the return, and the return address lies in the 8 bytes before it. */
enum rule_kind {
    BY_FRAME_POINTER, /* no table has a rule: CFA == frame pointer + 16 */
    OF_STACK,         /* CFA == stack pointer + offset */
    OF_FRAME,         /* CFA == frame pointer + offset */
    /* CFA == word at frame pointer + offset: functions that align their stack */
    AT_FRAME,
    OF_SIGNAL, /* the frame is one that the kernel made for a signal */
    OUTERMOST, /* there is no caller, or the rule is not known */
};

/* Where the caller's frame pointer is. */
enum saved_kind {
    KEPT,     /* still in the register */
    AT_CFA,   /* at CFA + 8 * saved */
    AT_ITSELF /* at the address in the frame pointer */
};

struct rule {
    uint8_t kind;       /* enum rule_kind */
    uint8_t saved_kind; /* enum saved_kind */
    int16_t saved;      /* in units of 8 bytes; see AT_CFA */
    int32_t offset;     /* in bytes; see enum rule_kind */
};

/* Hash table of the rules by return address. Threads read and write it without a lock. If two
 * threads write an entry at the same time, `check ^ packed` is not the address of either, so the
 * entry is not used (the "lockless" hash table of chess programs). */
enum { RULES_SHIFT = 13, KIND_BITS = 3, SAVED_KIND_BITS = 2, OBJECT_BITS = 11 };
static_assert(OBJECTS < 1 << OBJECT_BITS, "an entry holds the number of its object");
static struct {
    _Atomic uint64_t check; /* address ^ packed */
    _Atomic uint64_t packed;
} rules[1 << RULES_SHIFT];

static uint64_t pack(struct rule rule, uint32_t object)
{
    return (uint64_t)rule.kind | (uint64_t)rule.saved_kind << KIND_BITS |
           (uint64_t)object << (KIND_BITS + SAVED_KIND_BITS) |
           (uint64_t)(uint16_t)rule.saved << 16 | (uint64_t)(uint32_t)rule.offset << 32;
}

static struct rule unpack(uint64_t packed)
{
    return (struct rule){
        .kind = packed & ((1 << KIND_BITS) - 1),
        .saved_kind = packed >> KIND_BITS & ((1 << SAVED_KIND_BITS) - 1),
        .saved = (int16_t)(packed >> 16 & 0xffff),
        .offset = (int32_t)(packed >> 32),
    };
}

static uint32_t object_in(uint64_t packed)
{
    return packed >> (KIND_BITS + SAVED_KIND_BITS) & ((1 << OBJECT_BITS) - 1);
}

/* --- reading tables --------------------------------------------------------------------------- */

/* A position in a table, from which numbers are read. After a read that fails or goes beyond `end`,
 * `bad` is true. This read and all later ones return 0. */
struct cursor {
    struct peek *peek;
    uintptr_t at, end;
    bool bad;
};

static void get(struct cursor *cursor, void *to, size_t bytes)
{
    cursor->bad |= cursor->at > cursor->end || bytes > cursor->end - cursor->at ||
                   !peek_at(cursor->peek, cursor->at, to, bytes);
    if (cursor->bad)
        memset(to, 0, bytes);
    else
        cursor->at += bytes;
}

static uint8_t get_byte(struct cursor *cursor)
{
    uint8_t value;
    get(cursor, &value, sizeof value);
    return value;
}

static uint16_t get_half(struct cursor *cursor)
{
    uint16_t value;
    get(cursor, &value, sizeof value);
    return value;
}

static uint32_t get_four(struct cursor *cursor)
{
    uint32_t value;
    get(cursor, &value, sizeof value);
    return value;
}

static uint64_t get_eight(struct cursor *cursor)
{
    uint64_t value;
    get(cursor, &value, sizeof value);
    return value;
}

/* LEB128, without and with sign (DWARF 5, 7.6). */
static uint64_t get_unsigned(struct cursor *cursor)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = get_byte(cursor);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            break;
    }
    return value;
}

static int64_t get_signed(struct cursor *cursor)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64;) {
        uint8_t byte = get_byte(cursor);
        value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
        if ((byte & 0x80) != 0)
            continue;
        if ((byte & 0x40) != 0 && shift < 64)
            value |= UINT64_MAX << shift;
        break;
    }
    return (int64_t)value;
}

static void skip(struct cursor *cursor, uint64_t bytes)
{
    if (bytes > cursor->end - cursor->at)
        cursor->bad = true;
    else
        cursor->at += bytes;
}

/* Reads an address of the encoding that compilers use for .eh_frame (DW_EH_PE_…, LSB 10.5). */
static uintptr_t get_encoded(struct cursor *cursor, uint8_t encoding)
{
    enum { RELATIVE = 0x10, UDATA4 = 3, SDATA4 = 0xb, UDATA8 = 4, SDATA8 = 0xc, ABSOLUTE = 0 };
    uintptr_t from = (encoding & 0x70) == RELATIVE ? cursor->at : 0;
    if ((encoding & 0x70) != RELATIVE && (encoding & 0x70) != 0)
        cursor->bad = true;
    switch (encoding & 0xf) {
    case UDATA4:
        return from + get_four(cursor);
    case SDATA4:
        return from + (uintptr_t)(intptr_t)(int32_t)get_four(cursor);
    case ABSOLUTE:
    case UDATA8:
    case SDATA8:
        return from + get_eight(cursor);
    default:
        cursor->bad = true;
        return 0;
    }
}

/* --- .eh_frame -------------------------------------------------------------------------------- */

enum { RBP = 6, RSP = 7, RETURN = 16, REMEMBERED = 8 };

/* The rules for one instruction of a function, in the terms of DWARF. */
struct row {
    enum { CFA_UNKNOWN, CFA_OF, CFA_AT_FRAME } cfa;
    uint64_t cfa_register;
    int64_t cfa_offset;
    enum { SAVED_SAME, SAVED_AT, SAVED_AT_ITSELF, SAVED_ELSEWHERE } saved;
    int64_t saved_offset;
    enum { RETURN_AT, RETURN_NONE, RETURN_ELSEWHERE } back;
    int64_t return_offset;
};

struct program {
    uint64_t code_unit;
    int64_t data_unit;
    bool of_signal;
    struct row first; /* after the instructions of the CIE */
};

/* Notes that a register of the caller is saved at CFA + `offset`. */
static void save(struct row *row, uint64_t number, int64_t offset)
{
    if (number == RBP) {
        row->saved = SAVED_AT;
        row->saved_offset = offset;
    } else if (number == RETURN) {
        row->back = RETURN_AT;
        row->return_offset = offset;
    }
}

static void lose(struct row *row, uint64_t number, bool is_undefined)
{
    if (number == RBP)
        row->saved = is_undefined ? SAVED_SAME : SAVED_ELSEWHERE;
    else if (number == RETURN)
        row->back = is_undefined ? RETURN_NONE : RETURN_ELSEWHERE;
}

static void restore(struct row *row, uint64_t number, const struct row *first)
{
    if (number == RBP) {
        row->saved = first->saved;
        row->saved_offset = first->saved_offset;
    } else if (number == RETURN) {
        row->back = first->back;
        row->return_offset = first->return_offset;
    }
}

/* Reads a DWARF expression. Returns true if its value is rbp + `*offset`, or the word at this
 * address. In the second case, `*is_word` is true. */
static bool expression(struct cursor *cursor, int64_t *offset, bool *is_word)
{
    enum { OF_RBP = 0x70 + RBP, DEREFERENCE = 0x06 };
    uint64_t bytes = get_unsigned(cursor);
    *offset = 0;
    *is_word = false;
    /* A longer expression is damaged. Without this check, `end` could overflow to an address before
     * the expression, and execute() would read the same instructions forever. */
    if (cursor->bad || bytes > cursor->end - cursor->at) {
        cursor->bad = true;
        return false;
    }
    uintptr_t end = cursor->at + bytes;
    bool known = get_byte(cursor) == OF_RBP;
    if (known)
        *offset = get_signed(cursor);
    *is_word = cursor->at + 1 == end && get_byte(cursor) == DEREFERENCE;
    known &= cursor->at == end;
    cursor->at = end;
    return known;
}

/* Executes the call frame instructions (DWARF 5, 6.4.2) for the code from `place` to `target`. */
static void execute(struct cursor *cursor, const struct program *program, struct row *row,
                    uintptr_t place, uintptr_t target)
{
    struct row remembered[REMEMBERED];
    size_t depth = 0;
    while (!cursor->bad && cursor->at < cursor->end) {
        uint8_t code = get_byte(cursor), low = code & 0x3f;
        uint64_t number;
        int64_t offset;
        bool is_word;
        switch (code >> 6) {
        case 1: /* DW_CFA_advance_loc */
            place += low * program->code_unit;
            if (place > target)
                return;
            continue;
        case 2: /* DW_CFA_offset */
            save(row, low, (int64_t)get_unsigned(cursor) * program->data_unit);
            continue;
        case 3: /* DW_CFA_restore */
            restore(row, low, &program->first);
            continue;
        default:
            break;
        }
        switch (low) {
        case 0x00: /* DW_CFA_nop */
            break;
        case 0x02: /* DW_CFA_advance_loc1, …2, …4 */
            place += get_byte(cursor) * program->code_unit;
            break;
        case 0x03:
            place += get_half(cursor) * program->code_unit;
            break;
        case 0x04:
            place += get_four(cursor) * program->code_unit;
            break;
        case 0x05: /* DW_CFA_offset_extended */
            number = get_unsigned(cursor);
            save(row, number, (int64_t)get_unsigned(cursor) * program->data_unit);
            break;
        case 0x06: /* DW_CFA_restore_extended */
            restore(row, get_unsigned(cursor), &program->first);
            break;
        case 0x07: /* DW_CFA_undefined */
            lose(row, get_unsigned(cursor), true);
            break;
        case 0x08: /* DW_CFA_same_value */
            number = get_unsigned(cursor);
            if (number == RBP)
                row->saved = SAVED_SAME;
            break;
        case 0x09: /* DW_CFA_register */
            lose(row, get_unsigned(cursor), false);
            (void)get_unsigned(cursor);
            break;
        case 0x0a: /* DW_CFA_remember_state */
            if (depth == REMEMBERED)
                cursor->bad = true;
            else
                remembered[depth++] = *row;
            break;
        case 0x0b: /* DW_CFA_restore_state */
            if (depth == 0)
                cursor->bad = true;
            else
                *row = remembered[--depth];
            break;
        case 0x0c: /* DW_CFA_def_cfa */
        case 0x12: /* DW_CFA_def_cfa_sf */
            row->cfa = CFA_OF;
            row->cfa_register = get_unsigned(cursor);
            row->cfa_offset = low == 0x0c ? (int64_t)get_unsigned(cursor)
                                          : get_signed(cursor) * program->data_unit;
            break;
        case 0x0d: /* DW_CFA_def_cfa_register */
            row->cfa_register = get_unsigned(cursor);
            break;
        case 0x0e: /* DW_CFA_def_cfa_offset */
            row->cfa_offset = (int64_t)get_unsigned(cursor);
            break;
        case 0x13: /* DW_CFA_def_cfa_offset_sf */
            row->cfa_offset = get_signed(cursor) * program->data_unit;
            break;
        case 0x0f: /* DW_CFA_def_cfa_expression */
            row->cfa =
                expression(cursor, &offset, &is_word) && is_word ? CFA_AT_FRAME : CFA_UNKNOWN;
            row->cfa_offset = offset;
            break;
        case 0x10: /* DW_CFA_expression */
            number = get_unsigned(cursor);
            if (expression(cursor, &offset, &is_word) && number == RBP && offset == 0 && !is_word)
                row->saved = SAVED_AT_ITSELF;
            else
                lose(row, number, false);
            break;
        case 0x11: /* DW_CFA_offset_extended_sf */
            number = get_unsigned(cursor);
            save(row, number, get_signed(cursor) * program->data_unit);
            break;
        case 0x14: /* DW_CFA_val_offset, …_sf */
        case 0x15:
            lose(row, get_unsigned(cursor), false);
            (void)get_unsigned(cursor);
            break;
        case 0x16: /* DW_CFA_val_expression */
            lose(row, get_unsigned(cursor), false);
            (void)expression(cursor, &offset, &is_word);
            break;
        case 0x2e: /* DW_CFA_GNU_args_size */
            (void)get_unsigned(cursor);
            break;
        default:
            cursor->bad = true;
        }
        if (place > target)
            return;
    }
}

/* Reads a common information entry (CIE): its header, and its instructions, which it executes. Sets
 * the encoding of addresses in the FDEs of this entry, and whether these FDEs have augmentation
 * data. Returns false if the entry has an unknown form. */
static bool read_cie(struct cursor *cursor, struct program *program, uint8_t *encoding,
                     bool *has_data)
{
    uint64_t length = get_four(cursor);
    cursor->end = cursor->at + length;
    if (length == 0 || length == UINT32_MAX || get_four(cursor) != 0)
        return false;
    uint8_t version = get_byte(cursor);
    char letters[8] = "";
    for (size_t i = 0; i < sizeof letters; i++)
        if ((letters[i] = (char)get_byte(cursor)) == '\0')
            break;
    if ((version != 1 && version != 3) || letters[sizeof letters - 1] != '\0')
        return false;
    program->code_unit = get_unsigned(cursor);
    program->data_unit = get_signed(cursor);
    if ((version == 1 ? get_byte(cursor) : get_unsigned(cursor)) != RETURN)
        return false;
    *encoding = 0;
    *has_data = letters[0] == 'z';
    if (letters[0] != 'z' && letters[0] != '\0')
        return false;
    uint64_t data = *has_data ? get_unsigned(cursor) : 0;
    if (cursor->bad || data > cursor->end - cursor->at)
        return false;
    uintptr_t after = cursor->at + data;
    for (const char *letter = letters + 1; *has_data && *letter != '\0'; letter++) {
        if (*letter == 'R')
            *encoding = get_byte(cursor);
        else if (*letter == 'L')
            (void)get_byte(cursor);
        else if (*letter == 'P')
            (void)get_encoded(cursor, get_byte(cursor) & 0x7f);
        else if (*letter == 'S')
            program->of_signal = true;
        else
            return false;
    }
    if (cursor->bad)
        return false;
    cursor->at = after;
    program->first = (struct row){.return_offset = -8};
    execute(cursor, program, &program->first, 0, UINTPTR_MAX);
    return !cursor->bad;
}

/* Finds the frame description entry (FDE) of an address in the sorted table of .eh_frame_hdr.
 * Returns the address of the entry, or 0. */
static uintptr_t find_fde(struct peek *peek, uintptr_t table, uintptr_t address)
{
    enum { VERSION = 1, DATA_RELATIVE_FOUR_BYTES = 0x3b, UDATA4 = 3 };
    struct cursor cursor = {.peek = peek, .at = table, .end = UINTPTR_MAX};
    uint8_t version = get_byte(&cursor), frame_encoding = get_byte(&cursor);
    uint8_t count_encoding = get_byte(&cursor), encoding = get_byte(&cursor);
    if (version != VERSION || count_encoding != UDATA4 || encoding != DATA_RELATIVE_FOUR_BYTES)
        return 0;
    (void)get_encoded(&cursor, frame_encoding);
    uint32_t low = 0, high = get_four(&cursor);
    const uintptr_t entries = cursor.at;
    if (cursor.bad)
        return 0;
    int32_t entry[2] = {0, 0};
    uintptr_t found = 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (!peek_at(peek, entries + (uintptr_t)middle * sizeof entry, entry, sizeof entry))
            return 0;
        if (table + (uintptr_t)(intptr_t)entry[0] <= address) {
            found = table + (uintptr_t)(intptr_t)entry[1];
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return found;
}

/* Computes the row for the instruction at `address`. Returns false if no table describes it. */
static bool find_row(struct peek *peek, uintptr_t table, uintptr_t address, struct row *row,
                     bool *of_signal)
{
    uintptr_t fde = table != 0 ? find_fde(peek, table, address) : 0;
    if (fde == 0)
        return false;
    struct cursor cursor = {.peek = peek, .at = fde, .end = UINTPTR_MAX};
    uint64_t length = get_four(&cursor);
    cursor.end = cursor.at + length;
    uintptr_t cie = cursor.at - get_four(&cursor);
    struct cursor of_cie = {.peek = peek, .at = cie, .end = UINTPTR_MAX};
    struct program program = {.of_signal = false};
    uint8_t encoding;
    bool has_data;
    if (cursor.bad || length == 0 || length == UINT32_MAX ||
        !read_cie(&of_cie, &program, &encoding, &has_data))
        return false;
    uintptr_t begin = get_encoded(&cursor, encoding);
    uintptr_t bytes = get_encoded(&cursor, encoding & 0xf);
    if (cursor.bad || address - begin >= bytes)
        return false;
    if (has_data)
        skip(&cursor, get_unsigned(&cursor));
    *of_signal = program.of_signal;
    *row = program.first;
    execute(&cursor, &program, row, begin, address);
    return !cursor.bad;
}

static struct rule rule_of_row(const struct row *row, bool of_signal)
{
    const struct rule outermost = {.kind = OUTERMOST};
    struct rule rule = {.offset = (int32_t)row->cfa_offset};
    if (of_signal)
        return (struct rule){.kind = OF_SIGNAL};
    if (row->back != RETURN_AT || row->return_offset != -8 || row->cfa_offset != rule.offset)
        return outermost;
    if (row->cfa == CFA_AT_FRAME)
        rule.kind = AT_FRAME;
    else if (row->cfa == CFA_OF && row->cfa_register == RSP)
        rule.kind = OF_STACK;
    else if (row->cfa == CFA_OF && row->cfa_register == RBP)
        rule.kind = OF_FRAME;
    else
        return outermost;
    if (row->saved == SAVED_AT) {
        rule.saved_kind = AT_CFA;
        rule.saved = (int16_t)(row->saved_offset / 8);
        if ((int64_t)rule.saved * 8 != row->saved_offset)
            return outermost;
    } else if (row->saved == SAVED_AT_ITSELF) {
        rule.saved_kind = AT_ITSELF;
    }
    return rule;
}

/* Returns the rule for the code at `address`. `object` is the number of the object that has this
 * address, or 0. `is_loaded` is true if the object cannot be unloaded meanwhile. */
static struct rule rule_of(struct peek *peek, uintptr_t address, uint32_t object, bool is_loaded)
{
    size_t place = (size_t)((address * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - RULES_SHIFT));
    uint64_t packed = atomic_load_explicit(&rules[place].packed, memory_order_relaxed);
    uint64_t check = atomic_load_explicit(&rules[place].check, memory_order_relaxed);
    if (object == 0)
        return (struct rule){.kind = BY_FRAME_POINTER};
    if (LIKELY((check ^ packed) == address && object_in(packed) == object))
        return unpack(packed);
    struct row row;
    bool of_signal = false;
    struct rule rule = {.kind = BY_FRAME_POINTER};
    const struct object *about = objects_get(object);
    peek->safe_start = about->start;
    peek->safe_bytes = is_loaded ? about->end - about->start : 0;
    if (find_row(peek, about->table, address, &row, &of_signal))
        rule = rule_of_row(&row, of_signal);
    peek->safe_bytes = 0;
    packed = pack(rule, object);
    atomic_store_explicit(&rules[place].packed, packed, memory_order_relaxed);
    atomic_store_explicit(&rules[place].check, address ^ packed, memory_order_relaxed);
    return rule;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* Goes on to the function that the signal interrupted. The stack pointer points to the ucontext_t
 * that the kernel passed to the handler. */
static bool step_over_signal(struct peek *peek, struct unwind_start *now)
{
    enum { REGISTERS = 40, FRAME = 10, STACK = 15, INSTRUCTION = 16, COUNT = 17 };
    uintptr_t registers[COUNT];
    if (!peek_at(peek, now->stack + REGISTERS, registers, sizeof registers))
        return false;
    *now = (struct unwind_start){.instruction = registers[INSTRUCTION],
                                 .stack = registers[STACK],
                                 .frame = registers[FRAME]};
    return true;
}

/* Goes on to the caller. Returns false if there is none, or if it cannot be found. */
static bool step(struct peek *peek, struct rule rule, struct unwind_start *now)
{
    enum { FRAME_MOST = 1 << 20 };
    uintptr_t cfa, frame = now->frame;
    switch (rule.kind) {
    case OF_STACK:
        cfa = now->stack + (uintptr_t)(intptr_t)rule.offset;
        break;
    case OF_FRAME:
        cfa = now->frame + (uintptr_t)(intptr_t)rule.offset;
        break;
    case AT_FRAME:
        if (!peek_word(peek, now->frame + (uintptr_t)(intptr_t)rule.offset, &cfa))
            return false;
        break;
    case BY_FRAME_POINTER:
        cfa = now->frame + 16;
        rule.saved_kind = AT_CFA;
        rule.saved = -2;
        if (cfa - now->stack > FRAME_MOST)
            return false;
        break;
    default:
        return false;
    }
    if (cfa <= now->stack || cfa % 8 != 0)
        return false;
    uintptr_t saved_at =
        rule.saved_kind == AT_ITSELF ? now->frame : cfa + (uintptr_t)(intptr_t)(rule.saved * 8);
    if (rule.saved_kind != KEPT && !peek_word(peek, saved_at, &frame))
        return false;
    uintptr_t instruction;
    if (!peek_word(peek, cfa - 8, &instruction) || instruction < 4096)
        return false;
    *now = (struct unwind_start){.instruction = instruction, .stack = cfa, .frame = frame};
    return true;
}

void unwind(const struct unwind_start *start, struct unwind_stack *found)
{
    enum { SIGNALS_MOST = 8 };
    struct peek stack = {.bytes = 0}, tables = {.bytes = 0};
    struct unwind_start now = *start;
    unsigned signals = 0;
    /* An interrupted instruction is looked up by its own address. A return address is looked up by
     * the byte before it, because a call can be the last instruction of its function. */
    bool is_return = false;
    /* True while every address is certainly code that this thread runs. The object of such an
     * address cannot be unloaded meanwhile. After a step by frame pointers, the address may be any
     * number. */
    bool is_sure = true;
    found->count = 0;
    found->deeper = false;
    while (now.instruction != 0) {
        uintptr_t address = now.instruction - is_return;
        uint32_t object = objects_find(&tables, address);
        struct rule rule = rule_of(&tables, address, object, is_sure);
        is_sure &= rule.kind != BY_FRAME_POINTER;
        if (found->count == COUNT_OF(found->frames)) {
            found->deeper = rule.kind != OUTERMOST;
            return;
        }
        if (rule.kind != OF_SIGNAL)
            found->frames[found->count++] = (struct unwind_frame){
                .object = object,
                .place = address - (object != 0 ? objects_get(object)->about.base : 0)};
        is_return = rule.kind != OF_SIGNAL;
        if (is_return ? !step(&stack, rule, &now)
                      : signals++ == SIGNALS_MOST || !step_over_signal(&stack, &now))
            return;
    }
}
