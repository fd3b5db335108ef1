/* core/files/scratch.c - see the header. */
#include "core/files/scratch.h"
#include "core/files/output.h"
#include "core/files/output_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAME "scratch"

struct wf_scratch {
    int folder;
};

/* Removes files that programs left which were killed before their file had lost its name. */
static void clean(const wf_scratch *s, const char *path)
{
    wf_folder folder = {.calls = &wf_system_files, .fd = s->folder};

    snprintf(folder.path, sizeof folder.path, "%s", path);
    wf_output_clean(&folder, NAME);
}

wf_scratch *wf_scratch_open(const char *path, wf_error *error)
{
    wf_scratch *s = malloc(sizeof *s);

    if (!s) {
        wf_error_set(error, WF_ENOMEM, "no memory to open directory %s", path);
        return NULL;
    }
    s->folder = wf_own_folder_open(path, true, error);
    if (s->folder >= 0) {
        clean(s, path);
        return s;
    }
    free(s);
    return NULL;
}

void wf_scratch_close(wf_scratch *s)
{
    if (s)
        close(s->folder);
    free(s);
}

/* Opens a new file that loses its name at once, on file systems where a file has one. It is
   locked as partial files are: one that is not is of a dead program. */
static int open_named(const wf_scratch *s)
{
    char name[WF_FILES_NAME];
    int fd;

    wf_output_partial(NAME, wf_output_mark(), name);
    fd = openat(s->folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        flock(fd, LOCK_EX | LOCK_NB);
        unlinkat(s->folder, name, 0);
    }
    return fd;
}

static int open_nameless(const wf_scratch *s)
{
    int fd = openat(s->folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

    return fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR) ? open_named(s) : fd;
}

static void *take(void *self, size_t bytes)
{
    int fd = bytes ? open_nameless(self) : -1;
    void *block = MAP_FAILED;

    if (fd >= 0 && posix_fallocate(fd, 0, (off_t)bytes) == 0)
        block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return block == MAP_FAILED ? NULL : block;
}

static void give(void *self, void *block, size_t bytes)
{
    (void)self;
    munmap(block, bytes);
}

wf_allocator wf_scratch_allocator(wf_scratch *s)
{
    return (wf_allocator){.alloc = take, .release = give, .opaque = true, .self = s};
}
