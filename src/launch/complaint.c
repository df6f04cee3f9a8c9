#define _GNU_SOURCE 1

#include "launch/complaint.h"

#include "base/text.h"

#include <string.h>
#include <unistd.h>

void complaint(const char *what, const char *object, int error)
{
    char data[1024];
    /* Two bytes are left for the end of the sentence. */
    struct text text = text_over(data, sizeof data - 2);
    text_add(&text, "cairn-launch: ");
    text_add(&text, what);
    if (object != NULL) {
        text_add(&text, " '");
        text_add(&text, object);
        text_add(&text, "'");
    }
    if (error != 0) {
        text_add(&text, ": ");
        text_add(&text, strerror(error));
    }
    memcpy(data + text.length, ".\n", 2);
    ssize_t written = write(STDERR_FILENO, data, text.length + 2);
    (void)written; /* there is no other place to report it */
}
