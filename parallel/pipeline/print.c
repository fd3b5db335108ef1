/* parallel/pipeline/print.c - tables as text. */
#include "parallel/pipeline/text_internal.h"
#include <string.h>

enum { WIDTH = 96 };

/* Appends a word to a line, or begins a continuation of it. */
static void word(FILE *out, size_t *column, const char *text)
{
    size_t n = strlen(text);

    if (*column + 1 + n + 2 > WIDTH) {
        fprintf(out, " \\\n  ");
        *column = 2;
    }
    fprintf(out, " %s", text);
    *column += 1 + n;
}

static void print_header(const wf_pipe_table *t, FILE *out)
{
    char text[32];
    size_t column;
    int ranks = 0;

    column =
        (size_t)fprintf(out, "stages %d  micro %d  place", t->shape.stages, t->shape.micro);
    for (int s = 0; s < t->shape.stages; s++) {
        snprintf(text, sizeof text, "%d", t->stage_rank[s]);
        word(out, &column, text);
        ranks = t->stage_rank[s] + 1 > ranks ? t->stage_rank[s] + 1 : ranks;
    }
    fprintf(out, "\n");
    if (ranks < t->shape.ranks)
        fprintf(out, "ranks %d\n", t->shape.ranks);
    if (t->facts.lowered)
        fprintf(out, "lowered  group %d  resident %d  frozen %d%s\n", t->facts.group,
                t->facts.resident, t->facts.frozen, t->facts.tied ? "  tied" : "");
}

static void print_row(const wf_pipe_table *t, int rank, FILE *out)
{
    const wf_pipe_row *row = &t->row[rank];
    size_t column = (size_t)fprintf(out, "%d:", rank);

    for (int64_t i = 0; i < row->n; i++) {
        char first[48], second[48], both[128];

        wf_pipe_action_text(&row->action[i], first, sizeof first);
        if (row->action[i].with_next && i + 1 < row->n) {
            snprintf(both, sizeof both, "(%s + %s)", first,
                     wf_pipe_action_text(&row->action[++i], second, sizeof second));
            word(out, &column, both);
        } else {
            word(out, &column, first);
        }
    }
    fprintf(out, "\n");
}

wf_status wf_pipe_table_print(const wf_pipe_table *table, FILE *out)
{
    fprintf(out, "weft-schedule 1\n");
    print_header(table, out);
    for (int r = 0; r < table->shape.ranks; r++)
        print_row(table, r, out);
    return ferror(out) ? WF_EIO : WF_OK;
}
