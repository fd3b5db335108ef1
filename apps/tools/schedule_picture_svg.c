/* apps/tools/schedule_picture_svg.c - a schedule in time as SVG: a lane for each rank, a box
   for each action. */
#include "apps/tools/schedule_picture.h"
#include "parallel/report/svg.h"
#include <string.h>

enum { MARGIN = 20, LABEL = 64, LANE = 26, BOX = 22, MOST_WIDTH = 12000, WIDEST_UNIT = 30 };

/* Returns the fill colour of a kind: the early stages of a rank are darker than the late
   ones. */
static const char *fill_of(int kind)
{
    switch (kind) {
    case WF_PIPE_F:
        return "#7aa6e8";
    case WF_PIPE_B:
        return "#7cc98f";
    case WF_PIPE_I:
        return "#6fc7c7";
    case WF_PIPE_W:
        return "#e8c66a";
    case WF_PIPE_R:
        return "#c79be0";
    default:
        return NULL;
    }
}

static void draw_box(FILE *out, const wf_pipe_action *a, const wf_pipe_shape *shape, double x,
                     double y, double width)
{
    char text[48];

    /* Later stages of a rank are lighter. */
    fprintf(out,
            "<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
            "fill-opacity=\"%.2f\" stroke=\"white\"><title>%s</title></rect>\n",
            x, y, width, BOX, fill_of(a->kind),
            1 - 0.6 * (double)(a->stage / shape->ranks) /
                    (double)(shape->stages / shape->ranks + 1),
            wf_pipe_action_text(a, text, sizeof text));
    snprintf(text, sizeof text, "%d", a->micro);
    if (width >= 7 * (double)strlen(text))
        fprintf(out, "<text x=\"%.2f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n",
                x + width / 2, y + 15, text);
}

static void draw_rank(const app_schedule_picture *p, int rank, double scale, FILE *out)
{
    wf_pipe_shape shape = wf_pipe_table_shape(p->table);
    const wf_pipe_action *row;
    double y = MARGIN + rank * LANE;
    int64_t n;

    row = wf_pipe_table_row(p->table, rank, &n);
    fprintf(out, "<text x=\"%d\" y=\"%.0f\">rank %d</text>\n", MARGIN, y + 15, rank);
    fprintf(out, "<rect x=\"%d\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" fill=\"#eeeeee\"/>\n",
            LABEL + MARGIN, y, (double)p->timing->makespan * scale, BOX);
    for (int64_t i = 0; i < n; i++) {
        double start = (double)p->timing->start[rank][i] * scale;
        double end = (double)p->timing->end[rank][i] * scale;

        if (!fill_of(row[i].kind))
            continue;
        /* Both actions of a block have its time: each is drawn over half of it. */
        if (p->costs->blocks && row[i].with_next)
            end = (start + end) / 2;
        else if (p->costs->blocks && i && row[i - 1].with_next)
            start = (start + end) / 2;
        draw_box(out, &row[i], &shape, LABEL + MARGIN + start, y, end - start);
    }
}

static void draw_legend(double y, FILE *out)
{
    static const struct {
        wf_pipe_kind kind;
        const char *what;
    } legend[] = {{WF_PIPE_F, "F forward"},
                  {WF_PIPE_B, "B backward"},
                  {WF_PIPE_I, "I inputs"},
                  {WF_PIPE_W, "W weights"},
                  {WF_PIPE_R, "R recompute"}};

    for (int i = 0; i < (int)(sizeof legend / sizeof *legend); i++) {
        fprintf(out, "<rect x=\"%d\" y=\"%.0f\" width=\"14\" height=\"14\" fill=\"%s\"/>\n",
                MARGIN + i * 110, y, fill_of((int)legend[i].kind));
        fprintf(out, "<text x=\"%d\" y=\"%.0f\">%s</text>\n", MARGIN + 20 + i * 110, y + 12,
                legend[i].what);
    }
}

static void draw(FILE *out, const void *arg)
{
    const app_schedule_picture *p = arg;
    int ranks = wf_pipe_table_shape(p->table).ranks;
    double span = (double)p->timing->makespan, scale = WIDEST_UNIT / p->unit;
    double width, height = 2 * MARGIN + ranks * LANE + 2 * LANE, y = MARGIN + ranks * LANE;
    char text[160];

    if (span * scale > MOST_WIDTH)
        scale = MOST_WIDTH / span;
    width = LABEL + 2 * MARGIN + span * scale;
    width = width < 640 ? 640 : width;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\">\n<style>text { font-family: sans-serif; font-size: "
            "12px; fill: #222 }</style>\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"white\"/>\n",
            width, height, width, height);
    for (int r = 0; r < ranks; r++)
        draw_rank(p, r, scale, out);
    draw_legend(y + 6, out);
    app_schedule_picture_bubbles(p, text, sizeof text);
    fprintf(out, "<text x=\"%d\" y=\"%.0f\">%s</text>\n</svg>\n", MARGIN, y + LANE + 18, text);
}

wf_status app_schedule_picture_svg(const app_schedule_picture *p, const char *path,
                                   wf_error *error)
{
    return wf_svg_write(path, draw, p, error);
}
