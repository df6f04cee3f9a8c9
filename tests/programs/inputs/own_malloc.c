/* A program that brings the four functions of malloc, as the C library's manual says one may, and uses a fifth that the
 * library builds on them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(16) char arena[1 << 24];
static size_t used;

void *malloc(size_t size)
{
    size_t *head = (size_t *)(arena + used);
    used += (size + 31) & ~(size_t)15;
    *head = size;
    return head + 2;
}

void free(void *block)
{
    (void)block;
}

void *calloc(size_t count, size_t size)
{
    return memset(malloc(count * size), 0, count * size);
}

void *realloc(void *block, size_t size)
{
    void *moved = malloc(size);
    if (block != NULL) {
        size_t have = ((size_t *)block)[-2];
        memcpy(moved, block, have < size ? have : size);
    }
    return moved;
}

int main(void)
{
    char *block = malloc(10);
    strcpy(block, "kept");
    block = reallocarray(block, 100, 10);
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    for (int i = 0; i < 1000; i++)
        fprintf(stream, "%d ", i);
    fclose(stream);
    char *copy = strdup(text);
    printf("%s %zu %d\n", block, strlen(copy), block > arena && block < arena + sizeof arena);
    free(text), free(copy), free(block);
    return 0;
}
