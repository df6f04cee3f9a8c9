/* compiles_code.c memfd|anonymous - writes a function into memory, as a just-in-time compiler does,
 * prints its address, and calls it. The function calls malloc and free again and again. Its memory
 * is anonymous, or it is a file in memory. Only for x86-64. */
#define _GNU_SOURCE 1
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 4096 };

static const unsigned char code[] = {
    0x53,                      /* push rbx */
    0x41, 0x54,                /* push r12 */
    0x48, 0x83, 0xec, 0x08,    /* sub rsp, 8, which aligns the stack */
    0x48, 0x89, 0xfb,          /* mov rbx, rdi: malloc */
    0x49, 0x89, 0xf4,          /* mov r12, rsi: free */
    0xbf, 0x40, 0,    0,    0, /* mov edi, 64 */
    0xff, 0xd3,                /* call rbx */
    0x48, 0x89, 0xc7,          /* mov rdi, rax */
    0x41, 0xff, 0xd4,          /* call r12 */
    0xeb, 0xf1,                /* jmp to "mov edi, 64" */
};

int main(int count, char **arguments)
{
    int file = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (count != 2)
        return 2;
    if (strcmp(arguments[1], "memfd") == 0) {
        file = memfd_create("doublemapper", 0);
        flags = MAP_SHARED;
        if (file < 0 || ftruncate(file, 2 * BYTES) != 0)
            return 3;
    }
    /* The code is not at the beginning of the file. */
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, file, file < 0 ? 0 : BYTES);
    if (memory == MAP_FAILED)
        return 4;
    memcpy(memory, code, sizeof code);
    if (mprotect(memory, BYTES, PROT_READ | PROT_EXEC) != 0)
        return 5;
    printf("%zu\n", (size_t)memory);
    fflush(stdout);
    ((void (*)(void *(*)(size_t), void (*)(void *)))memory)(malloc, free);
}
