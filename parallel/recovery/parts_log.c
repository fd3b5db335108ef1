/* parallel/recovery/parts_log.c - the file of one rank; see parts_log.h. */
#include "parallel/recovery/parts_log.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

wf_status wf_flip_read(const char *text, wf_flip *flip, wf_error *error)
{
    char end, *dot;

    *flip = (wf_flip){.kind = 0};
    if (sscanf(text, "%" SCNd64 ":%d:%511[^:]:%" SCNd64 ":%d%c", &flip->step, &flip->rank,
               flip->path, &flip->element, &flip->bit, &end) != 5)
        return wf_error_set(error, WF_EINVAL,
                            ".flip_bit %s is no STEP:RANK:TENSOR:ELEMENT:BIT, for instance "
                            "5:3:block.0.attn.qkv.weight:17:22",
                            text);
    dot = strrchr(flip->path, '.');
    for (int kind = 1; dot && kind < WF_PAR_KINDS; kind++)
        if (strcmp(dot + 1, wf_nn_kept_suffix(kind)) == 0)
            flip->kind = kind;
    if (flip->kind)
        *dot = '\0';
    return WF_OK;
}

wf_status wf_parts_log_open(wf_parts_log *log, const char *folder, int rank, wf_error *error)
{
    char name[32];

    *log = (wf_parts_log){.file = {.file = -1}};
    snprintf(name, sizeof name, "rank-%05d.jsonl", rank);
    return wf_row_file_open_own(&log->file, ".log_digests", folder, name, error);
}

wf_status wf_parts_log_fresh(const wf_parts_log *log, wf_error *error)
{
    if (log->file.file < 0 || log->file.empty)
        return WF_OK;
    return wf_error_set(
        error, WF_EINVAL,
        ".log_digests: %s has rows of a run, and this run continues from no checkpoint: give "
        "another folder, remove that one, or continue with .resume",
        log->file.path);
}

void wf_parts_log_close(wf_parts_log *log)
{
    wf_row_file_close(&log->file, NULL);
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

wf_status wf_parts_log_step(wf_parts_log *log, int64_t step, const wf_rank *rank,
                            const char *numerics, const wf_par_held_part *part, int64_t n,
                            wf_error *unwritten, wf_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *row = open_memstream(&text, &bytes);

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
    else
        wf_row_file_write(&log->file, text, bytes, unwritten);
    free(text);
    return error->code;
}
