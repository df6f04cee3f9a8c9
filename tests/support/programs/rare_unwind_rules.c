/* rare_unwind_rules.c - allocates below functions in assembly whose unwind tables have rules that
 * compilers seldom write. Each function makes room on the stack after these rules. So the caller is
 * found only by a reader that knows how long each rule is. */
#include <stdlib.h>

enum { MANY = 100 };

void *volatile kept;

__attribute__((noinline, used)) void allocates(void)
{
    kept = malloc(100);
    free(kept);
}

/* RULE is the bytes of a rule on register r12 (12), which the functions do not use. The bytes of an
 * expression are DW_OP_breg7 with the offset 0. A reader that takes them for rules would go on 119
 * bytes behind, and miss the room. */
#define FUNCTION(name, rule)                                                                       \
    void name(void);                                                                               \
    __asm__(".text\n.type " #name ", @function\n" #name ":\n"                                      \
            ".cfi_startproc\n"                                                                     \
            ".cfi_escape " rule "\n"                                                               \
            "subq $40, %rsp\n"                                                                     \
            ".cfi_adjust_cfa_offset 40\n"                                                          \
            "call allocates\n"                                                                     \
            "addq $40, %rsp\n"                                                                     \
            ".cfi_adjust_cfa_offset -40\n"                                                         \
            "ret\n"                                                                                \
            ".cfi_endproc\n"                                                                       \
            ".size " #name ", . - " #name "\n")

FUNCTION(with_expression, "0x10, 12, 2, 0x77, 0");
FUNCTION(with_value_expression, "0x16, 12, 2, 0x77, 0");
FUNCTION(with_value_offset, "0x14, 12, 2");
FUNCTION(with_signed_value_offset, "0x15, 12, 2");
FUNCTION(with_size_of_arguments, "0x2e, 2");

int main(void)
{
    for (int i = 0; i < MANY; i++) {
        with_expression();
        with_value_expression();
        with_value_offset();
        with_signed_value_offset();
        with_size_of_arguments();
    }
    return 0;
}
