# path_malloc.S - an allocator of which each path takes a known number of instructions.
#
#              small  medium  large
#     new          8      20    111
#     reused       7      19    110
#     free         5       8     10
#     realloc      4, in place
#
# It keeps one free block of each size. Blocks have 1 KiB, 32 KiB or 1 MiB.

    .bss
    .balign 4096
area_small:  .skip 1 << 20
area_medium: .skip 8 << 20
area_large:  .skip 64 << 20

    .data
top_small:   .quad area_small
top_medium:  .quad area_medium
top_large:   .quad area_large
last_small:  .quad 0
last_medium: .quad 0
last_large:  .quad 0

    .text
    .globl malloc, free, calloc, realloc
    .type malloc, @function
    .type free, @function
    .type calloc, @function
    .type realloc, @function

# The rest of malloc: six instructions for a new block, and five for a reused one.
    .macro take size, bytes
    mov last_\size(%rip), %rax
    test %rax, %rax
    jnz 1f
    mov top_\size(%rip), %rax
    addq $\bytes, top_\size(%rip)
    ret
1:  movq $0, last_\size(%rip)
    ret
    .endm

malloc:
    cmp $1024, %rdi
    jbe small
    cmp $32768, %rdi
    jbe medium
    mov $50, %ecx
2:  dec %ecx
    jnz 2b
    take large, 0x100000
small:
    take small, 0x400
medium:
    .rept 10
    nop
    .endr
    take medium, 0x8000

free:
    lea area_medium(%rip), %rax
    cmp %rax, %rdi
    jb free_small
    lea area_large(%rip), %rax
    cmp %rax, %rdi
    jb free_medium
    nop
    nop
    mov %rdi, last_large(%rip)
    ret
free_small:
    mov %rdi, last_small(%rip)
    ret
free_medium:
    mov %rdi, last_medium(%rip)
    ret

calloc:
    imul %rsi, %rdi
    mov top_small(%rip), %rax
    addq $0x400, top_small(%rip)
    ret

realloc:
    mov %rdi, %rax
    test %rax, %rax
    jz malloc
    ret

    .section .note.GNU-stack, "", @progbits
