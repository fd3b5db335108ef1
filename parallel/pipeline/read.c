/* parallel/pipeline/read.c - tables from files. */
#include "parallel/pipeline/text.h"
#include "core/files/input.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Reads all of a file, or of a pipe, as text. Owner: caller, free. */
static wf_status read_text(const char *path, char **text, wf_error *error)
{
    FILE *file = wf_input_open(path), *copy;
    char *all = NULL, block[4096];
    size_t size = 0, n;
    bool bad = !file;

    *text = NULL;
    copy = file ? open_memstream(&all, &size) : NULL;
    while (copy && (n = fread(block, 1, sizeof block, file)) > 0)
        fwrite(block, 1, n, copy);
    bad = bad || !copy || ferror(file);
    if (bad)
        wf_error_set(error, WF_EIO, "cannot read schedule %s: %s", path, strerror(errno));
    if (copy && fclose(copy) != 0 && !bad)
        bad = wf_error_set(error, WF_ENOMEM, "no memory to read schedule %s", path) != WF_OK;
    if (!bad && strlen(all) < size)
        bad =
            wf_error_set(error, WF_EDATA,
                         "schedule %s has a byte 0 after %zu characters of %zu: it is no text",
                         path, strlen(all), size) != WF_OK;
    if (file)
        fclose(file);
    if (bad)
        free(all);
    else
        *text = all;
    return bad ? error->code : WF_OK;
}

wf_status wf_pipe_table_read(const char *path, wf_pipe_table **table, wf_error *error)
{
    char *text;
    wf_status status = read_text(path, &text, error);

    *table = NULL;
    if (status == WF_OK)
        status = wf_pipe_table_parse(path, text, table, error);
    free(text);
    return status;
}
