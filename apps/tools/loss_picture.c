/* apps/tools/loss_picture.c - axes with round numbers, a curve for each run, and a legend; see
   the header. */
#include "apps/tools/loss_picture.h"
#include "parallel/report/svg.h"
#include <math.h>
#include <string.h>

enum {
    WIDTH = 760,
    LEFT = 70,
    RIGHT = 24,
    TOP = 44,
    PLOT_WIDTH = WIDTH - LEFT - RIGHT,
    PLOT_HEIGHT = 320,
    BELOW = 56, /* ticks and the name of the axis */
    ROW = 20,   /* a line of the legend */
    TICKS = 8,  /* number of ticks on an axis, about */
    MOST_NAME = 60
};

/* Colours of Okabe and Ito, which colour-blind readers can distinguish. */
static const char *const colour[APP_LOSS_PICTURE_RUNS] = {
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#222222", "#8c6bb1"};

/* The range of an axis, and the distance of its ticks: 1, 2 or 5 times a power of ten. */
typedef struct axis {
    double from, to, tick;
} axis;

typedef struct scene {
    const app_loss_picture *p;
    axis x, y;
} scene;

/* A row's loss of this kind. False: it has none, or none that is finite. */
static bool loss_of(const app_run_row *row, const char *key, double *loss)
{
    const json_t *value = json_object_get(row->row, key);

    *loss = json_number_value(value);
    return json_is_number(value) && isfinite(*loss);
}

static axis axis_of(double least, double most, bool whole)
{
    double span = most > least ? most - least : whole ? 1 : fmax(fabs(most) * 1e-3, 1e-6);
    double power = pow(10, floor(log10(span / TICKS))), ratio = span / TICKS / power;
    axis a = {.tick = power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10)};

    if (whole && a.tick < 1)
        a.tick = 1;
    a.from = floor(least / a.tick) * a.tick;
    a.to = ceil(most / a.tick) * a.tick;
    if (a.to <= a.from)
        a.to = a.from + a.tick;
    return a;
}

static double x_of(const scene *s, double step)
{
    return LEFT + (step - s->x.from) / (s->x.to - s->x.from) * PLOT_WIDTH;
}

static double y_of(const scene *s, double loss)
{
    return TOP + (s->y.to - loss) / (s->y.to - s->y.from) * PLOT_HEIGHT;
}

/* Draws ticks, with as many decimals as their distance has. */
static void draw_ticks(const scene *s, FILE *out)
{
    int digits = s->y.tick < 1 ? (int)ceil(-log10(s->y.tick) - 1e-9) : 0;
    char words[96];

    for (double at = s->y.from; at < s->y.to + s->y.tick / 2; at += s->y.tick) {
        fprintf(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n",
                LEFT, y_of(s, at), LEFT + PLOT_WIDTH, y_of(s, at));
        snprintf(words, sizeof words, "%.*f", digits, at);
        wf_svg_text(out, LEFT - 8, y_of(s, at) + 4, "line", "text-anchor=\"end\"", words);
    }
    for (double at = s->x.from; at < s->x.to + s->x.tick / 2; at += s->x.tick) {
        fprintf(out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#dddddd\"/>\n",
                x_of(s, at), TOP, x_of(s, at), TOP + PLOT_HEIGHT);
        snprintf(words, sizeof words, "%.0f", at);
        wf_svg_text(out, x_of(s, at), TOP + PLOT_HEIGHT + 18, "line", "text-anchor=\"middle\"",
                    words);
    }
    fprintf(out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
            "stroke=\"#666666\"/>\n",
            LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT);
    wf_svg_text(out, LEFT + PLOT_WIDTH / 2, TOP + PLOT_HEIGHT + 42, "line",
                "text-anchor=\"middle\"", "step");
    snprintf(words, sizeof words, "transform=\"rotate(-90 18 %d)\" text-anchor=\"middle\"",
             TOP + PLOT_HEIGHT / 2);
    wf_svg_text(out, 18, TOP + PLOT_HEIGHT / 2, "line", words, "loss, nats a token");
}

/* The steps of one pixel, in the order in which they came. */
typedef struct column {
    double x, first, least, most, last;
    bool some;
} column;

static void draw_column(column *c, bool *begun, FILE *out, const scene *s)
{
    if (!c->some)
        return;
    fprintf(out, "%s%.1f,%.1f", *begun ? " L" : "M", c->x, y_of(s, c->first));
    if (c->least < c->most)
        fprintf(out, " L%.1f,%.1f L%.1f,%.1f L%.1f,%.1f", c->x, y_of(s, c->most), c->x,
                y_of(s, c->least), c->x, y_of(s, c->last));
    *begun = true;
    c->some = false;
}

/* A curve that has as many points as can be seen; a loss that is not finite, or not there,
   leaves a gap in that of training. */
static void draw_curve(const scene *s, int run, const char *key, bool gaps, const char *style,
                       FILE *out)
{
    const app_run_rows *rows = &s->p->run[run];
    column c = {.some = false};
    bool begun = false;
    double loss;

    fprintf(out, "<path fill=\"none\" stroke=\"%s\" %s d=\"", colour[run], style);
    for (size_t i = 0; i < rows->steps; i++) {
        double x = x_of(s, (double)rows->of[i].number);
        bool has = loss_of(&rows->of[i], key, &loss);

        if (!has && gaps) {
            draw_column(&c, &begun, out, s);
            fputs(begun ? " " : "", out);
            begun = false;
        }
        if (!has)
            continue;
        if (c.some && x - c.x >= 1)
            draw_column(&c, &begun, out, s);
        if (!c.some)
            c = (column){x, loss, loss, loss, loss, true};
        c.least = fmin(c.least, loss);
        c.most = fmax(c.most, loss);
        c.last = loss;
    }
    draw_column(&c, &begun, out, s);
    fprintf(out, "\"/>\n");
}

/* Counts a run's steps with such a loss, and finds the last of them. */
static size_t count_losses(const app_run_rows *rows, const char *key, double *last)
{
    size_t n = 0;
    double loss;

    for (size_t i = 0; i < rows->steps; i++)
        if (loss_of(&rows->of[i], key, &loss)) {
            *last = loss;
            n++;
        }
    return n;
}

static void draw_run(const scene *s, int run, FILE *out)
{
    const app_run_rows *rows = &s->p->run[run];
    double loss, last;
    size_t validated = count_losses(rows, "val_loss", &last);

    draw_curve(s, run, "loss", true, "stroke-width=\"1.2\" stroke-opacity=\"0.75\"", out);
    draw_curve(s, run, "val_loss", false, "stroke-width=\"2\" stroke-dasharray=\"6 3\"", out);
    for (size_t i = 0; i < rows->steps && validated <= PLOT_WIDTH / 6; i++)
        if (loss_of(&rows->of[i], "val_loss", &loss))
            fprintf(out,
                    "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"white\" stroke=\"%s\" "
                    "stroke-width=\"2\"/>\n",
                    x_of(s, (double)rows->of[i].number), y_of(s, loss), colour[run]);
}

/* The end of a name that is too long says more than its beginning. */
static void draw_legend(const scene *s, int run, double y, FILE *out)
{
    const char *name = s->p->name[run];
    size_t length = strlen(name);
    char words[MOST_NAME + 120];
    double last;
    int n = snprintf(words, sizeof words, "%s%s", length > MOST_NAME ? ".." : "",
                     length > MOST_NAME ? name + length - MOST_NAME : name);

    if (count_losses(&s->p->run[run], "loss", &last))
        n += snprintf(words + n, sizeof words - (size_t)n, ": loss %.4f at last", last);
    if (count_losses(&s->p->run[run], "val_loss", &last))
        snprintf(words + n, sizeof words - (size_t)n, ", of validation %.4f", last);
    fprintf(out,
            "<line x1=\"%d\" y1=\"%.0f\" x2=\"%d\" y2=\"%.0f\" stroke=\"%s\" "
            "stroke-width=\"3\"/>\n",
            LEFT, y - 4, LEFT + 26, y - 4, colour[run]);
    wf_svg_text(out, LEFT + 34, y, "line", NULL, words);
}

/* Marks the step at which two runs diverge. */
static void draw_difference(const scene *s, FILE *out)
{
    double x = x_of(s, (double)s->p->differs);
    bool left = x > LEFT + PLOT_WIDTH / 2;
    char words[64];

    fprintf(out,
            "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#b00020\" "
            "stroke-width=\"1.5\" stroke-dasharray=\"2 3\"/>\n",
            x, TOP, x, TOP + PLOT_HEIGHT);
    snprintf(words, sizeof words, "they differ from step %" JSON_INTEGER_FORMAT " on",
             s->p->differs);
    wf_svg_text(out, left ? x - 6 : x + 6, TOP + 16, "line",
                left ? "text-anchor=\"end\"" : NULL, words);
}

static void draw(FILE *out, const void *arg)
{
    const scene *s = arg;
    const double legend = TOP + PLOT_HEIGHT + BELOW + ROW;

    wf_svg_begin(out, WIDTH, legend + (s->p->runs + 1) * ROW);
    wf_svg_text(out, LEFT, 28, "head", NULL, "Loss by step");
    draw_ticks(s, out);
    for (int i = 0; i < s->p->runs; i++)
        draw_run(s, i, out);
    if (s->p->differs)
        draw_difference(s, out);
    for (int i = 0; i < s->p->runs; i++)
        draw_legend(s, i, legend + i * ROW, out);
    wf_svg_text(
        out, LEFT, legend + s->p->runs * ROW, "small", NULL,
        "A line is the training loss of each step, dots on dashes are validation losses.");
    fprintf(out, "</svg>\n");
}

wf_status app_loss_picture_svg(const app_loss_picture *p, const char *path, wf_error *error)
{
    static const char *const keys[] = {"loss", "val_loss"};
    double least = INFINITY, most = -INFINITY, from = INFINITY, to = -INFINITY, loss;
    scene s = {.p = p};

    for (int r = 0; r < p->runs; r++)
        for (size_t i = 0; i < p->run[r].steps; i++)
            for (int k = 0; k < 2; k++)
                if (loss_of(&p->run[r].of[i], keys[k], &loss)) {
                    least = fmin(least, loss);
                    most = fmax(most, loss);
                    from = fmin(from, (double)p->run[r].of[i].number);
                    to = fmax(to, (double)p->run[r].of[i].number);
                }
    if (!isfinite(least))
        return wf_error_set(error, WF_EINVAL, "there is nothing to draw: no step has a loss");
    s.x = axis_of(from, to, true);
    s.y = axis_of(least, most, false);
    return wf_svg_write(path, draw, &s, error);
}
