/*
 * mesh/health/recorder_file.c - the file of a flight recorder. Also written by a signal:
 * everything here is a plain system call.
 */
#include "mesh/health/recorder_internal.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 512 };

/* Opens the recorder's folder, which this user made or owns, or the system's (/tmp): no other
   user's, and no symbolic link, for its name can be guessed. Links within the path to it are
   the user's. */
static int open_directory(const char *path)
{
    int folder;
    struct stat s;

    mkdir(path, 0700);
    folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0 && (fstat(folder, &s) != 0 || (s.st_uid != geteuid() && s.st_uid != 0))) {
        close(folder);
        folder = -1;
    }
    return folder;
}

/* Makes a new file: one of its name is removed, and never written to. */
static int open_new(const wf_recorder *r)
{
    int folder = open_directory(r->directory), file = -1;

    if (folder < 0)
        return -1;
    for (int i = 0; file < 0 && i < 2; i++) {
        unlinkat(folder, r->name, 0);
        file =
            openat(folder, r->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    close(folder);
    return file;
}

bool wf_recorder_write(const wf_recorder *r)
{
    size_t words = sizeof(wf_recording) / sizeof(uint64_t), at = 0;
    bool good;
    int file;

    if (!*r->directory)
        return false;
    file = open_new(r);
    good = file >= 0;
    while (good && at < words) {
        uint64_t chunk[CHUNK];
        size_t n = words - at < CHUNK ? words - at : CHUNK;

        for (size_t i = 0; i < n; i++)
            chunk[i] = atomic_load_explicit(&r->image[at + i], memory_order_relaxed);
        good = write(file, chunk, n * sizeof *chunk) == (ssize_t)(n * sizeof *chunk);
        at += n;
    }
    if (file >= 0)
        close(file);
    return good;
}
