#define _GNU_SOURCE 1

#include "launch/reaped.h"

#include "base/text.h"

#include <fcntl.h>
#include <unistd.h>

enum { LINE_BYTES = 512 };

bool reaped_open(struct reaped *reaped, const char *path)
{
    reaped->file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
    return reaped->file >= 0;
}

void reaped_add(const struct reaped *reaped, pid_t pid, const char *name, int status, bool killed)
{
    char data[LINE_BYTES];
    struct text line = text_over(data, sizeof data);
    if (reaped->file < 0)
        return;
    text_add_char(&line, '{');
    text_add_json_unsigned(&line, "v", 1);
    text_add_json_text(&line, "event", "wait");
    text_add_json_unsigned(&line, "pid", (uint64_t)pid);
    text_add_json_unsigned(&line, "by", (uint64_t)getpid());
    text_add_json_unsigned(&line, "status", (uint64_t)status);
    text_add_json_text(&line, "program", name);
    if (killed)
        text_add_json_bool(&line, "killed", true);
    text_add(&line, "}\n");
    ssize_t written = write(reaped->file, line.data, line.length);
    (void)written;
}

void reaped_close(struct reaped *reaped)
{
    if (reaped->file >= 0)
        close(reaped->file);
    reaped->file = -1;
}
