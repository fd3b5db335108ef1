/* apps/tools/schedule_picture.c - a schedule in a terminal: a line for each rank, a cell for
   each unit of time. */
#include "apps/tools/schedule_picture.h"
#include <stdlib.h>
#include <string.h>

/* Kinds that compute, and what a terminal shows them in. */
static const struct {
    wf_pipe_kind kind;
    char letter;
    const char *colour;
} looks[] = {{WF_PIPE_F, 'F', "\033[30;44m"},
             {WF_PIPE_B, 'B', "\033[30;42m"},
             {WF_PIPE_I, 'I', "\033[30;46m"},
             {WF_PIPE_W, 'W', "\033[30;43m"},
             {WF_PIPE_R, 'R', "\033[30;45m"}};

static int look_of(int kind)
{
    for (int i = 0; i < (int)(sizeof looks / sizeof *looks); i++)
        if ((int)looks[i].kind == kind)
            return i;
    return -1;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* Ticks of a cell: the most that every cost is a multiple of. */
static int64_t ticks_of_cell(const wf_pipe_costs *c)
{
    int64_t cell = gcd(gcd(c->forward, c->inputs), gcd(c->weights, c->message));

    return cell ? cell : 1;
}

/* Returns the width of a cell: a letter, and the digits of the last micro-batch. */
static int width_of_cell(const wf_pipe_table *table)
{
    int width = 2;

    for (int m = wf_pipe_table_shape(table).micro - 1; m > 9; m /= 10)
        width++;
    return width;
}

/* Writes an action over as many cells as it takes. */
static void draw_action(const wf_pipe_action *a, int cells, int width, bool colour, FILE *out)
{
    char text[32];
    int look = look_of(a->kind), n;

    n = snprintf(text, sizeof text, "%c%d", looks[look].letter, a->micro);
    n = n < cells * (width + 1) ? n : cells * (width + 1);
    fprintf(out, "%s%.*s%*s%s", colour ? looks[look].colour : "", n, text,
            cells * (width + 1) - n - 1, "", colour ? "\033[0m" : "");
    fprintf(out, " ");
}

static void draw_rank(const app_schedule_picture *p, int rank, bool colour, FILE *out)
{
    int64_t n, cell = ticks_of_cell(p->costs), time = 0;
    const wf_pipe_action *row = wf_pipe_table_row(p->table, rank, &n);
    int width = width_of_cell(p->table);

    fprintf(out, "%4d  ", rank);
    for (int64_t i = 0; i < n; i++) {
        int64_t start = p->timing->start[rank][i], end = p->timing->end[rank][i];

        /* The second action of a block is drawn for both: it ends with it. */
        if (look_of(row[i].kind) < 0 || (i + 1 < n && row[i].with_next && p->costs->blocks))
            continue;
        for (; time < start; time += cell)
            fprintf(out, "%-*s ", width, ".");
        if (end > start)
            draw_action(&row[i], (int)((end - start) / cell), width, colour, out);
        time = end;
    }
    for (; time < p->timing->makespan; time += cell)
        fprintf(out, "%-*s ", width, ".");
    fprintf(out, "\n");
}

void app_schedule_picture_bubbles(const app_schedule_picture *p, char *text, size_t size)
{
    const wf_pipe_timing *t = p->timing;
    double all = (double)t->makespan * wf_pipe_table_shape(p->table).ranks;

    snprintf(text, size, "makespan %.10g; bubble %.4f of the step, %.4f of a rank's span",
             (double)t->makespan / p->unit, all > 0 ? (double)t->idle / all : 0,
             t->span ? (double)t->span_idle / (double)t->span : 0);
}

void app_schedule_picture_text(const app_schedule_picture *p, bool colour, FILE *out)
{
    int ranks = wf_pipe_table_shape(p->table).ranks;
    char text[160];

    fprintf(out, "rank  time, a cell for each %.10g\n",
            (double)ticks_of_cell(p->costs) / p->unit);
    for (int r = 0; r < ranks; r++)
        draw_rank(p, r, colour, out);
    fprintf(out, "\nrank      busy      fill   waiting     drain  peak activations\n");
    for (int r = 0; r < ranks; r++) {
        const wf_pipe_span *span = &p->timing->rank[r];

        fprintf(out, "%4d %9.10g %9.10g %9.10g %9.10g  %d\n", r, (double)span->busy / p->unit,
                (double)span->begin / p->unit,
                (double)(span->end - span->begin - span->busy) / p->unit,
                (double)(p->timing->makespan - span->end) / p->unit, span->peak);
    }
    app_schedule_picture_bubbles(p, text, sizeof text);
    fprintf(out, "%s\n", text);
}
