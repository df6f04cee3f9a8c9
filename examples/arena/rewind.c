/* Prints the longest line of its input, with its words in reverse order. The program needs memory
 * only for one line and for the longest line. */
#include <cairn/arena.h>
#include <stdio.h>
#include <string.h>

/* Reads the next line into the arena, without its newline, and stores its length. Returns NULL at
 * the end of the file, and if there is no memory. */
static char *read_line(struct cairn_arena *arena, FILE *from, size_t *length)
{
    int c = getc(from);
    if (c == EOF)
        return NULL;
    size_t room = 64;
    char *line = cairn_arena_alloc(arena, room);
    for (*length = 0; line != NULL && c != EOF && c != '\n'; c = getc(from)) {
        if (*length + 1 == room) {
            /* The line is the newest block, so that it grows in place. */
            line = cairn_arena_resize(arena, line, room, 2 * room);
            if (line == NULL)
                break;
            room *= 2;
        }
        line[(*length)++] = (char)c;
    }
    if (line != NULL)
        line[*length] = '\0';
    return line;
}

static char *reversed(struct cairn_arena *arena, char *line)
{
    char *result = cairn_arena_strdup(arena, "");
    for (char *word = strtok(line, " "); result != NULL && word != NULL; word = strtok(NULL, " ")) {
        size_t length = strlen(word) + strlen(result) + 2;
        char *longer = cairn_arena_alloc(arena, length);
        if (longer == NULL)
            return NULL;
        snprintf(longer, length, "%s%s%s", word, *result != '\0' ? " " : "", result);
        result = longer;
    }
    return result;
}

int main(void)
{
    struct cairn_arena *longest = cairn_arena_create(0);
    struct cairn_arena *scratch = cairn_arena_create(0);
    char *best = NULL;
    size_t best_length = 0;
    size_t length;
    struct cairn_arena_point start = cairn_arena_mark(scratch);
    for (char *line; (line = read_line(scratch, stdin, &length)) != NULL;) {
        if (best == NULL || length > best_length) {
            char *words = reversed(scratch, line);
            cairn_arena_reset(longest);
            best = words != NULL ? cairn_arena_strdup(longest, words) : NULL;
            if (best == NULL)
                return 1; /* there is no memory */
            best_length = length;
        }
        cairn_arena_rewind(scratch, start); /* frees the line and the copies that made `words` */
    }
    if (!feof(stdin))
        return 1; /* the input cannot be read, or there is no memory */
    puts(best != NULL ? best : "nothing to read");
    cairn_arena_destroy(scratch);
    cairn_arena_destroy(longest);
}
