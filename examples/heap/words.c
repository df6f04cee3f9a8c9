/* Counts the words of its input. The words lie in a heap of their own, so that they are freed all
 * at once. */
#include <cairn/cairn.h>
#include <stdio.h>
#include <string.h>

struct word {
    struct word *next;
    unsigned count;
    char text[];
};

/* Returns the word with this text, and adds it first if it is new. Returns NULL if there is no
 * memory. */
static struct word *find(struct cairn_heap *heap, struct word **words, const char *text)
{
    for (struct word *word = *words; word != NULL; word = word->next)
        if (strcmp(word->text, text) == 0)
            return word;
    struct word *word = cairn_heap_malloc(heap, sizeof *word + strlen(text) + 1);
    if (word == NULL)
        return NULL;
    word->next = *words;
    word->count = 0;
    strcpy(word->text, text);
    return *words = word;
}

static bool add(void *block, size_t usable_bytes, void *sum)
{
    (void)block;
    *(size_t *)sum += usable_bytes;
    return true;
}

int main(void)
{
    struct cairn_heap *heap = cairn_heap_create();
    if (heap == NULL)
        return 1;
    struct word *words = NULL;
    const struct word *most = NULL;
    unsigned different = 0;
    char text[100];
    while (scanf("%99s", text) == 1) {
        struct word *word = find(heap, &words, text);
        if (word == NULL)
            return 1;
        different += word->count++ == 0;
        if (most == NULL || word->count > most->count)
            most = word;
    }
    size_t bytes = 0;
    cairn_heap_walk(heap, add, &bytes); /* visits every live block of the heap */
    if (most != NULL)
        printf("%u words in %zu bytes; most often: %s\n", different, bytes, most->text);
    cairn_heap_destroy(heap);
}
