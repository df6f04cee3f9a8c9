/* probe_seccomp_filter.c - tests of the answer whether a filter of system calls permits a call. */
#include "probe/seccomp_filter.h"

#include "probe/direct_syscall.h"
#include "test.h"

#include <linux/filter.h>
#include <stddef.h>

#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, action)
#define FILTER(...)    ((struct sock_filter[]){__VA_ARGS__})
#define PERMITS(...)                                                                               \
    permits(FILTER(__VA_ARGS__), sizeof FILTER(__VA_ARGS__) / sizeof(struct sock_filter))

enum { NUMBER = 15, ARGUMENT = 59 };

static bool permits(struct sock_filter *filter, size_t length)
{
    const struct sock_fprog program = {.len = (unsigned short)length, .filter = filter};
    const struct seccomp_data data = {.nr = NUMBER, .args = {ARGUMENT}};
    return seccomp_filter_permits(&program, &data);
}

TEST(only_two_actions_permit_a_call)
{
    CHECK(PERMITS(RETURN(SECCOMP_RET_ALLOW)));
    CHECK(PERMITS(RETURN(SECCOMP_RET_LOG)));
    CHECK(!PERMITS(RETURN(SECCOMP_RET_KILL_PROCESS)));
    CHECK(!PERMITS(RETURN(SECCOMP_RET_TRAP)));
    CHECK(!PERMITS(RETURN(SECCOMP_RET_ERRNO | 1)));
    CHECK(!PERMITS(RETURN(SECCOMP_RET_TRACE)));
    CHECK(!PERMITS(RETURN(SECCOMP_RET_USER_NOTIF)));
    CHECK(PERMITS(BPF_STMT(BPF_LD | BPF_IMM, SECCOMP_RET_ALLOW), BPF_STMT(BPF_RET | BPF_A, 0)));
}

/* Each filter compares a value and permits the call only if the value is as expected. */
#define HAS(value, ...)                                                                            \
    PERMITS(__VA_ARGS__, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),                         \
            RETURN(SECCOMP_RET_ALLOW), RETURN(SECCOMP_RET_KILL_PROCESS))

#define LOAD(place)          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, place)
#define CALCULATE(op, value) BPF_STMT(BPF_ALU | (op) | BPF_K, value)

TEST(loads_and_stores_are_those_of_the_kernel)
{
    CHECK(HAS(NUMBER, LOAD(offsetof(struct seccomp_data, nr))));
    CHECK(!HAS(NUMBER + 1, LOAD(offsetof(struct seccomp_data, nr))));
    CHECK(HAS(ARGUMENT, LOAD(offsetof(struct seccomp_data, args))));
    CHECK(HAS(sizeof(struct seccomp_data), BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0)));
    CHECK(HAS(7, BPF_STMT(BPF_LD | BPF_IMM, 7), BPF_STMT(BPF_ST, 3), BPF_STMT(BPF_LD | BPF_IMM, 8),
              BPF_STMT(BPF_LD | BPF_MEM, 3)));
    CHECK(HAS(9, BPF_STMT(BPF_LDX | BPF_IMM, 9), BPF_STMT(BPF_STX, 2),
              BPF_STMT(BPF_LD | BPF_MEM, 2)));
    CHECK(HAS(6, BPF_STMT(BPF_LD | BPF_IMM, 6), BPF_STMT(BPF_MISC | BPF_TAX, 0),
              BPF_STMT(BPF_LD | BPF_IMM, 5), BPF_STMT(BPF_MISC | BPF_TXA, 0)));
}

TEST(calculations_are_those_of_the_kernel)
{
    static const struct {
        unsigned short operation;
        uint32_t value, result;
    } all[] = {{BPF_ADD, 5, 20}, {BPF_SUB, 5, 10},  {BPF_MUL, 5, 75}, {BPF_DIV, 5, 3},
               {BPF_AND, 6, 6},  {BPF_OR, 16, 31},  {BPF_XOR, 5, 10}, {BPF_LSH, 2, 60},
               {BPF_RSH, 2, 3},  {BPF_NEG, 0, -15U}};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        CHECK(HAS(all[i].result, LOAD(0), CALCULATE(all[i].operation, all[i].value)));
    CHECK(HAS(18, LOAD(0), BPF_STMT(BPF_LDX | BPF_IMM, 3), BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0)));
    CHECK(!HAS(0, LOAD(0), CALCULATE(BPF_DIV, 0)));
}

TEST(jumps_are_those_of_the_kernel)
{
    static const struct {
        unsigned short operation;
        uint32_t value;
        bool taken;
    } all[] = {{BPF_JEQ, 15, true},  {BPF_JEQ, 14, false}, {BPF_JGT, 14, true},
               {BPF_JGT, 15, false}, {BPF_JGE, 15, true},  {BPF_JGE, 16, false},
               {BPF_JSET, 24, true}, {BPF_JSET, 16, false}};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        CHECK(PERMITS(LOAD(0), BPF_JUMP(BPF_JMP | all[i].operation | BPF_K, all[i].value, 1, 0),
                      RETURN(SECCOMP_RET_KILL_PROCESS), RETURN(SECCOMP_RET_ALLOW)) == all[i].taken);
    CHECK(PERMITS(BPF_STMT(BPF_JMP | BPF_JA, 1), RETURN(SECCOMP_RET_KILL_PROCESS),
                  RETURN(SECCOMP_RET_ALLOW)));
}

TEST(a_filter_that_is_not_valid_permits_nothing)
{
    const struct seccomp_data data = {.nr = NUMBER};
    struct sock_fprog program = {.len = 1, .filter = NULL};
    CHECK(!seccomp_filter_permits(NULL, &data));
    CHECK(!seccomp_filter_permits((const struct sock_fprog *)8, &data));
    CHECK(!seccomp_filter_permits(&program, &data));
    CHECK(!PERMITS(LOAD(0)));
    CHECK(!PERMITS(LOAD(sizeof(struct seccomp_data)), RETURN(SECCOMP_RET_ALLOW)));
    CHECK(!PERMITS(BPF_STMT(BPF_LD | BPF_MEM, BPF_MEMWORDS), RETURN(SECCOMP_RET_ALLOW)));
    CHECK(!PERMITS(BPF_STMT(BPF_ST, BPF_MEMWORDS), RETURN(SECCOMP_RET_ALLOW)));
    direct_forbidden = true;
    CHECK(!seccomp_filter_permits(NULL, &data));
    CHECK(PERMITS(RETURN(SECCOMP_RET_ALLOW)));
    direct_forbidden = false;
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
