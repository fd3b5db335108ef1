/* apps/gpt_train/parts_log.c - the file of one rank; see parts_log.h. */
#include "apps/gpt_train/parts_log.h"
#include "apps/gpt_train/whole_write.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

wf_status app_flip_read(const char *text, app_flip *flip, wf_error *error)
{
    char end;
    size_t length;

    *flip = (app_flip){.kind = 0};
    if (sscanf(text, "%" SCNd64 ":%d:%511[^:]:%" SCNd64 ":%d%c", &flip->step, &flip->rank,
               flip->path, &flip->element, &flip->bit, &end) != 5)
        return wf_error_set(error, WF_EINVAL,
                            "--flip-bit %s is no STEP:RANK:TENSOR:ELEMENT:BIT, for instance "
                            "5:3:block.0.attn.qkv.weight:17:22",
                            text);
    length = strlen(flip->path);
    if (length > 2 && flip->path[length - 2] == '.' &&
        (flip->path[length - 1] == 'm' || flip->path[length - 1] == 'v')) {
        flip->kind = flip->path[length - 1] == 'm' ? 1 : 2;
        flip->path[length - 2] = '\0';
    }
    return WF_OK;
}

wf_status app_parts_log_open(app_parts_log *log, const char *folder, int rank, wf_error *error)
{
    struct stat s;

    *log = (app_parts_log){.file = -1};
    if (mkdir(folder, 0755) != 0 && errno != EEXIST)
        return wf_error_set(error, WF_EIO, "--log-digests: cannot make folder %s: %s", folder,
                            strerror(errno));
    snprintf(log->path, sizeof log->path, "%.4000s/rank-%05d.jsonl", folder, rank);
    log->file = open(log->path,
                     O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (log->file < 0)
        return wf_error_set(error, WF_EIO, "--log-digests: cannot write %s: %s", log->path,
                            strerror(errno));
    if (fstat(log->file, &s) == 0 && S_ISREG(s.st_mode) && s.st_nlink == 1 &&
        s.st_uid == geteuid())
        return WF_OK;
    app_parts_log_close(log);
    return wf_error_set(error, WF_EIO,
                        "--log-digests: %s is no file of its own, but a link, a special file "
                        "or another user's: "
                        "remove it",
                        log->path);
}

void app_parts_log_close(app_parts_log *log)
{
    if (log->file >= 0)
        close(log->file);
    log->file = -1;
}

static void write_dims(FILE *row, const int64_t *of, int n)
{
    fputs(", [", row);
    for (int d = 0; d < n; d++)
        fprintf(row, "%s%" PRId64, d ? ", " : "", of[d]);
    fputc(']', row);
}

/* Paths are made of letters, digits, dots and underscores. */
static void write_parts(FILE *row, const wf_rank *rank, const char *numerics,
                        const wf_par_held_part *part, int64_t n)
{
    fprintf(row, "{\"rank\": %d, \"ranks\": %d, \"numerics\": \"%s\", \"parts\": [",
            rank->index, rank->size, numerics);
    for (int64_t i = 0; i < n; i++) {
        fprintf(row, "%s[\"%s\", %d", i ? ", " : "", part[i].path, part[i].kind);
        write_dims(row, part[i].size, part[i].ndim);
        write_dims(row, part[i].start, part[i].ndim);
        write_dims(row, part[i].local, part[i].ndim);
        fputc(']', row);
    }
    fputs("]}\n", row);
}

wf_status app_parts_log_step(app_parts_log *log, int64_t step, const wf_rank *rank,
                             const char *numerics, const wf_par_held_part *part, int64_t n,
                             wf_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *row = open_memstream(&text, &bytes);
    wf_error unwritten = {WF_OK, ""};

    if (!row)
        return wf_error_set(error, WF_ENOMEM, "no memory for a row of digests");
    if (log->rows++ == 0)
        write_parts(row, rank, numerics, part, n);
    fprintf(row, "{\"step\": %" PRId64 ", \"digests\": [", step);
    for (int64_t i = 0; i < n; i++)
        fprintf(row, "%s\"%016" PRIx64 "\"", i ? ", " : "", part[i].digest);
    fputs("]}\n", row);
    if (fclose(row)) /* memory that it grew into */
        wf_error_set(error, WF_ENOMEM, "no memory for a row of digests");
    else if (app_write_whole(log->file, log->path, text, bytes, &unwritten) != WF_OK &&
             !log->told) {
        log->told = true;
        fprintf(stderr, "gpt_train: warning: %s\n", unwritten.text);
    }
    free(text);
    return error->code;
}
