/* parallel/report/row_file.c - rows appended to what a file has; see the header. */
#include "parallel/report/row_file.h"
#include "parallel/report/atomic_write_internal.h"
#include "core/files/prepare.h"
#include <errno.h>
#include <jansson.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns whether the last byte of a regular file ends no line. */
static bool ends_within_row(const char *path, const struct stat *s)
{
    char last = '\n';
    int fd;

    if (!S_ISREG(s->st_mode) || s->st_size == 0)
        return false;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false; /* it may be written alone */
    if (pread(fd, &last, 1, s->st_size - 1) != 1)
        last = '\n';
    close(fd);
    return last != '\n';
}

/* Opens with flags beside those of every file of rows. */
static wf_status open_rows(wf_row_file *f, const char *path, int flags, struct stat *s,
                           wf_error *error)
{
    const int how = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | flags;

    f->path = strdup(path);
    if (!f->path)
        return wf_error_set(error, WF_ENOMEM, "no memory for a log");
    f->file = open(path, how | O_EXCL, 0666);
    f->made = f->file >= 0;
    if (f->file < 0) /* this does not wait for a reader where the name is a pipe's */
        f->file = open(path, how, 0666);
    if (f->file < 0 || fcntl(f->file, F_SETFL, O_APPEND) != 0 || fstat(f->file, s) != 0) {
        wf_error_set(error, WF_EIO, "cannot open log file %s: %s", path, strerror(errno));
        wf_row_file_close(f, NULL);
        return WF_EIO;
    }
    return WF_OK;
}

wf_status wf_row_file_open_own(wf_row_file *f, const char *flag, const char *folder,
                               const char *name, wf_error *error)
{
    char path[4096];
    struct stat s;

    *f = (wf_row_file){.file = -1};
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
        return wf_error_set(error, WF_EINVAL, "%s: the path %s is too long", flag, folder);
    if (wf_output_prepare_folder(flag, folder, error) != WF_OK)
        return error->code;
    if (open_rows(f, path, O_NOFOLLOW, &s, error) != WF_OK)
        return error->code;
    if (!S_ISREG(s.st_mode) || s.st_nlink != 1 || s.st_uid != geteuid()) {
        wf_row_file_close(f, NULL);
        return wf_error_set(
            error, WF_EIO,
            "%s: %s is no file of its own, but a link, a special file or another "
            "user's: remove it",
            flag, path);
    }
    f->empty = s.st_size == 0;
    f->cut = ends_within_row(path, &s);
    return WF_OK;
}

wf_status wf_row_file_open(wf_row_file *f, const char *flag, const char *path, wf_error *error)
{
    struct stat s;

    *f = (wf_row_file){.file = -1};
    if (wf_output_prepare(flag, path, error) != WF_OK)
        return error->code;
    if (open_rows(f, path, 0, &s, error) != WF_OK)
        return error->code;
    f->empty = !S_ISREG(s.st_mode) || s.st_size == 0;
    f->cut = ends_within_row(path, &s);
    return WF_OK;
}

wf_status wf_row_file_write(wf_row_file *f, const char *rows, size_t bytes, wf_error *error)
{
    char *line = NULL;
    wf_status status;

    if (f->cut) {
        line = malloc(bytes + 1);
        if (!line)
            return wf_error_set(error, WF_ENOMEM, "no memory for a row of %s", f->path);
        *line = '\n';
        memcpy(line + 1, rows, bytes);
        rows = line;
        bytes++;
    }
    status = wf_write_whole(f->file, f->path, rows, bytes, error);
    f->written = f->written || status == WF_OK;
    f->cut = f->cut && status != WF_OK;
    free(line);
    return status;
}

json_t *wf_row_after_cut(FILE *file, long start)
{
    int c;

    if (start < 0 || fseek(file, start, SEEK_SET) != 0)
        return NULL;
    do
        c = fgetc(file);
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t');
    while (c != EOF && c != '\n')
        c = fgetc(file);
    return c == EOF ? NULL
                    : json_loadf(file, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, NULL);
}

wf_status wf_row_file_close(wf_row_file *f, wf_error *error)
{
    wf_status status = WF_OK;

    if (f->made && !f->written && f->file >= 0)
        unlink(f->path);
    if (f->file >= 0 && close(f->file) != 0)
        status = wf_error_set(error, WF_EIO, "cannot close log file %s: %s", f->path,
                              strerror(errno));
    free(f->path);
    *f = (wf_row_file){.file = -1};
    return status;
}
