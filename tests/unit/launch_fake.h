/* launch_fake.h - temporary folders that look like cgroups, removed at the end of a test.
 *
 * The files are ordinary ones. A write only changes the file, while in a real cgroup the kernel
 * acts on the write.
 */
#ifndef CAIRN_LAUNCH_FAKE_H
#define CAIRN_LAUNCH_FAKE_H

#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fake {
    char path[64];
    int folder;
};

static inline struct fake fake_make(void)
{
    struct fake fake = {.path = "/tmp/launch_fake_XXXXXX"};
    if (mkdtemp(fake.path) == NULL) {
        perror(fake.path);
        exit(1);
    }
    fake.folder = open(fake.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fake;
}

static inline void fake_write(const struct fake *fake, const char *name, const char *text)
{
    int fd = openat(fake->folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        perror(name);
        exit(1);
    }
    close(fd);
}

static inline bool fake_holds(const struct fake *fake, const char *name, const char *expected)
{
    char text[4096] = "";
    int fd = openat(fake->folder, name, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    return got >= 0 && strcmp(text, expected) == 0;
}

static inline int fake_remove_one(const char *path, const struct stat *status, int type,
                                  struct FTW *ftw)
{
    (void)status;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void fake_remove(struct fake *fake)
{
    close(fake->folder);
    nftw(fake->path, fake_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
