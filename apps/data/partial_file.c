/* apps/data/partial_file.c - see the header. */
#include "apps/data/partial_file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

wf_status app_partial_file_failed(const app_partial_file *o, wf_error *error)
{
    return wf_error_set(error, WF_EIO, "cannot write %s: %s", o->partial, strerror(errno));
}

wf_status app_partial_file_open(app_partial_file *o, const char *prefix, const char *ending,
                                wf_error *error)
{
    size_t size = strlen(prefix) + 64;
    int descriptor;

    o->name = malloc(size);
    o->partial = malloc(size);
    if (!o->name || !o->partial)
        return wf_error_set(error, WF_ENOMEM, "no memory for the name of %s%s", prefix, ending);
    snprintf(o->name, size, "%s%s", prefix, ending);
    snprintf(o->partial, size, "%s%s.partial-%ld", prefix, ending, (long)getpid());
    descriptor = open(o->partial,
                      O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    o->file = descriptor < 0 ? NULL : fdopen(descriptor, "w+");
    if (o->file)
        return WF_OK;
    app_partial_file_failed(o, error);
    if (descriptor >= 0)
        close(descriptor);
    free(o->partial); /* it is somebody else's */
    o->partial = NULL;
    return error->code;
}

wf_status app_partial_file_close(app_partial_file *o, wf_error *error)
{
    FILE *file = o->file;
    wf_status status = WF_OK;

    if (fflush(file) != 0 || fsync(fileno(file)) != 0)
        status = app_partial_file_failed(o, error);
    o->file = NULL;
    if (fclose(file) != 0)
        status = app_partial_file_failed(o, error);
    return status;
}

void app_partial_file_discard(app_partial_file *o)
{
    if (o->file)
        fclose(o->file);
    if (o->partial)
        unlink(o->partial); /* not there any more where it has its final name */
    free(o->name);
    free(o->partial);
}

void app_sync_folder(const char *name)
{
    const char *slash = strrchr(name, '/');
    char folder[PATH_MAX];
    int descriptor;

    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - name) + 1 : 1,
             slash ? name : ".");
    descriptor = open(folder, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (descriptor >= 0) {
        fsync(descriptor);
        close(descriptor);
    }
}
