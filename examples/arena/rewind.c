/* Prints the longest line of its input, with its words in reverse order. The program needs memory
 * only for one line and for the longest line. */
#include <cairn/arena.h>
#include <stdio.h>
#include <string.h>

/* Reads the next line into the arena, without its newline. Returns NULL at the end. */
static char *read_line(struct cairn_arena *arena, FILE *from)
{
    char *line = NULL;
    size_t room = 0;
    size_t length = 0;
    for (int c; (c = getc(from)) != EOF && c != '\n';) {
        if (length + 1 >= room) {
            /* The line is the newest block, so that it grows in place. */
            line = cairn_arena_resize(arena, line, room, 2 * room + 64);
            if (line == NULL)
                return NULL;
            room = 2 * room + 64;
        }
        line[length++] = (char)c;
    }
    if (line != NULL)
        line[length] = '\0';
    return line;
}

static char *reversed(struct cairn_arena *arena, char *line)
{
    char *result = cairn_arena_strdup(arena, "");
    for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " ")) {
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
    struct cairn_arena_point start = cairn_arena_mark(scratch);
    for (char *line; (line = read_line(scratch, stdin)) != NULL;) {
        if (best == NULL || strlen(line) > strlen(best)) {
            char *words = reversed(scratch, line);
            if (words == NULL)
                break;
            cairn_arena_reset(longest);
            best = cairn_arena_strdup(longest, words);
        }
        cairn_arena_rewind(scratch, start); /* frees the line and the copies that made `words` */
    }
    puts(best != NULL ? best : "nothing to read");
    cairn_arena_destroy(scratch);
    cairn_arena_destroy(longest);
}
