/* core/files/output_publish.c - outputs are written, and get their names; see the headers. */
#include "core/files/output_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *wf_output_stream(const wf_output *output)
{
    wf_output *o =
        (wf_output *)output; /* the stream is part of it, opened when it is first asked for */

    if (o && !o->stream)
        o->stream = fdopen(o->file.fd, o->direct ? "w" : "w+");
    return o ? o->stream : NULL;
}

wf_file *wf_output_file(wf_output *o)
{
    return &o->file;
}

const char *wf_output_path(const wf_output *o)
{
    return o->path;
}

bool wf_output_replaces(const wf_output *o)
{
    return !o->direct;
}

/* Completes an output: all that was written is brought to the disk. */
static wf_status complete(wf_output *o, wf_error *error)
{
    errno = EIO; /* why a stream has failed earlier is not known any more */
    if (o->stream && (fflush(o->stream) != 0 || ferror(o->stream)))
        return wf_output_failed(o, error);
    if (!o->direct && fsync(o->file.fd) != 0)
        return wf_output_failed(o, error);
    return WF_OK;
}

static wf_status take_name(wf_output *o, wf_error *error)
{
    if (renameat(o->folder.fd, o->partial, o->folder.fd, o->name) != 0)
        return wf_output_failed(o, error);
    *o->partial = 0;
    return WF_OK;
}

wf_status wf_output_publish(wf_output *o, wf_error *error)
{
    wf_error failed = {WF_OK, ""};

    if (complete(o, &failed) == WF_OK && !o->direct && take_name(o, &failed) == WF_OK)
        fsync(o->folder.fd); /* without fsync of folders, the system does it later */
    wf_output_discard(o);
    return failed.code == WF_OK ? WF_OK : wf_error_set(error, failed.code, "%s", failed.text);
}

/* Writes an output that was begun, or NULL with its error in `why`. */
static wf_status finish(wf_output *o, const void *bytes, size_t n, const wf_error *why,
                        wf_error *error)
{
    FILE *stream = o ? wf_output_stream(o) : NULL;

    if (!o)
        return wf_error_set(error, why->code, "%s", why->text);
    if (stream && fwrite(bytes, 1, n, stream) == n && fflush(stream) == 0)
        return wf_output_publish(o, error);
    wf_output_failed(o, error);
    wf_output_discard(o);
    return WF_EIO;
}

wf_status wf_output_write(const char *path, const void *bytes, size_t n, wf_error *error)
{
    wf_error why = {WF_OK, ""};

    return finish(wf_output_open(path, &why), bytes, n, &why, error);
}

wf_status wf_output_put(const wf_folder *folder, const char *name, const void *bytes, size_t n,
                        wf_error *error)
{
    wf_error why = {WF_OK, ""};

    return finish(wf_output_begin(folder, name, wf_output_mark(), &why), bytes, n, &why, error);
}

/* Publishes outputs that are all whole and on the disk, with the folder locked. */
static wf_status publish_locked(wf_output **o, int64_t n, const char *const *stale,
                                int64_t stales, wf_error *error)
{
    const wf_folder *folder = &o[n - 1]->folder;

    if (unlinkat(folder->fd, o[n - 1]->name, 0) != 0 && errno != ENOENT)
        return wf_output_failed(o[n - 1], error);
    fsync(folder->fd);
    for (int64_t i = 0; i < stales; i++)
        if (unlinkat(folder->fd, stale[i], 0) != 0 && errno != ENOENT)
            return wf_error_set(error, WF_EIO,
                                "cannot remove %s/%s, which is of an older set: %s",
                                folder->path, stale[i], strerror(errno));
    for (int64_t i = 0; i + 1 < n; i++)
        if (take_name(o[i], error) != WF_OK)
            return error->code;
    fsync(folder->fd);
    if (take_name(o[n - 1], error) == WF_OK)
        fsync(folder->fd);
    return error->code;
}

wf_status wf_output_publish_set(wf_output **output, int64_t n, const char *const *stale,
                                int64_t stales, wf_error *error)
{
    wf_error failed = {WF_OK, ""};

    for (int64_t i = 0; i < n && failed.code == WF_OK; i++)
        if (output[i]->direct)
            wf_error_set(&failed, WF_EIO, "cannot write %s: it is no regular file",
                         output[i]->path);
        else
            complete(output[i], &failed);
    if (failed.code == WF_OK) {
        int lock = openat(output[n - 1]->folder.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        while (lock >= 0 && flock(lock, LOCK_EX) != 0 && errno == EINTR)
            ;
        publish_locked(output, n, stale, stales, &failed);
        if (lock >= 0)
            close(lock);
    }
    for (int64_t i = 0; i < n; i++)
        wf_output_discard(output[i]);
    return failed.code == WF_OK ? WF_OK : wf_error_set(error, failed.code, "%s", failed.text);
}
