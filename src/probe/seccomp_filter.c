#include "probe/seccomp_filter.h"

#include "probe/direct_syscall.h"
#include "probe/peek.h"

#include <linux/filter.h>
#include <string.h>

enum { DATA_WORDS = sizeof(struct seccomp_data) / sizeof(uint32_t) };

/* The state of a filter that runs. */
struct machine {
    uint32_t data[DATA_WORDS]; /* the struct seccomp_data */
    uint32_t memory[BPF_MEMWORDS];
    uint32_t a; /* accumulator */
    uint32_t x; /* index register */
    bool broken;
};

static uint32_t load(struct machine *machine, struct sock_filter one)
{
    uint32_t place = one.k / sizeof(uint32_t);
    switch (BPF_MODE(one.code)) {
    case BPF_IMM:
        return one.k;
    case BPF_LEN:
        return sizeof machine->data;
    case BPF_ABS:
        if (place < DATA_WORDS && one.k % sizeof(uint32_t) == 0)
            return machine->data[place];
        break;
    case BPF_MEM:
        if (one.k < BPF_MEMWORDS)
            return machine->memory[one.k];
        break;
    default:
        break;
    }
    machine->broken = true;
    return 0;
}

static void store(struct machine *machine, struct sock_filter one, uint32_t value)
{
    if (one.k < BPF_MEMWORDS)
        machine->memory[one.k] = value;
    else
        machine->broken = true;
}

/* Returns the operand of a calculation, a comparison or a return. */
static uint32_t operand(const struct machine *machine, struct sock_filter one)
{
    return BPF_SRC(one.code) == BPF_X ? machine->x : one.k;
}

static uint32_t calculate(struct machine *machine, struct sock_filter one)
{
    uint32_t a = machine->a, with = operand(machine, one);
    switch (BPF_OP(one.code)) {
    case BPF_ADD:
        return a + with;
    case BPF_SUB:
        return a - with;
    case BPF_MUL:
        return a * with;
    case BPF_DIV:
        machine->broken |= with == 0;
        return with != 0 ? a / with : 0;
    case BPF_AND:
        return a & with;
    case BPF_OR:
        return a | with;
    case BPF_XOR:
        return a ^ with;
    case BPF_LSH:
        return a << with % 32;
    case BPF_RSH:
        return a >> with % 32;
    case BPF_NEG:
        return -a;
    default:
        machine->broken = true;
        return 0;
    }
}

/* Returns the number of instructions that a jump skips. */
static uint32_t skipped(struct machine *machine, struct sock_filter one)
{
    uint32_t a = machine->a, with = operand(machine, one);
    switch (BPF_OP(one.code)) {
    case BPF_JA:
        return one.k;
    case BPF_JEQ:
        return a == with ? one.jt : one.jf;
    case BPF_JGT:
        return a > with ? one.jt : one.jf;
    case BPF_JGE:
        return a >= with ? one.jt : one.jf;
    case BPF_JSET:
        return (a & with) != 0 ? one.jt : one.jf;
    default:
        machine->broken = true;
        return 0;
    }
}

/* Executes an instruction that neither jumps nor returns. */
static void execute(struct machine *machine, struct sock_filter one)
{
    switch (BPF_CLASS(one.code)) {
    case BPF_LD:
        machine->a = load(machine, one);
        break;
    case BPF_LDX:
        machine->x = load(machine, one);
        break;
    case BPF_ST:
        store(machine, one, machine->a);
        break;
    case BPF_STX:
        store(machine, one, machine->x);
        break;
    case BPF_ALU:
        machine->a = calculate(machine, one);
        break;
    default: /* BPF_MISC */
        if (BPF_MISCOP(one.code) == BPF_TAX)
            machine->x = machine->a;
        else
            machine->a = machine->x;
    }
}

bool seccomp_filter_permits(const struct sock_fprog *filter, const struct seccomp_data *data)
{
    struct peek peek = {.bytes = 0};
    struct sock_fprog program;
    struct machine machine = {.a = 0};
    /* After a filter, the kernel may not be asked whether an address is valid. Null is the only
     * wrong address that programs are known to pass. */
    if (direct_forbidden && filter != NULL)
        peek.safe_bytes = SIZE_MAX;
    if (!peek_at(&peek, (uintptr_t)filter, &program, sizeof program))
        return false;
    memcpy(machine.data, data, sizeof machine.data);
    for (uint64_t at = 0; at < program.len && !machine.broken; at++) {
        struct sock_filter one;
        if (!peek_at(&peek, (uintptr_t)(program.filter + at), &one, sizeof one))
            return false;
        if (BPF_CLASS(one.code) == BPF_RET) {
            uint32_t action = BPF_RVAL(one.code) == BPF_A ? machine.a : one.k;
            action &= SECCOMP_RET_ACTION_FULL;
            return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG;
        }
        if (BPF_CLASS(one.code) == BPF_JMP)
            at += skipped(&machine, one);
        else
            execute(&machine, one);
    }
    return false;
}
