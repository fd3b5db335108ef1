/* parallel/report/memory_picture.c - a step's memory as stacked areas, with the peak and what
   holds it; see memory_timeline.h. */
#include "parallel/report/memory_timeline_internal.h"
#include "parallel/report/svg.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 980,
    LEFT = 76,
    RIGHT = 24,
    TOP = 64,
    PLOT_WIDTH = WIDTH - LEFT - RIGHT,
    PLOT_HEIGHT = 300,
    TICKS = 6, /* number of ticks on the axis, about */
    ROW = 18,
    HOLDERS = 14,
    TABLE = TOP + PLOT_HEIGHT + 64,
    SECOND = 400, /* the left edge of the table of holders */
    LETTER = 7    /* the width of a letter, about */
};

/* Colours of Okabe and Ito first, which colour-blind readers can distinguish. */
static const char *const colour[] = {"#0072b2", "#56b4e9", "#8c6bb1", "#d55e00",
                                     "#009e73", "#e69f00", "#cc79a7", "#999999",
                                     "#b58900", "#444444", "#a6cee3", "#b2df8a"};
_Static_assert(sizeof colour / sizeof *colour == WF_MEMORY_KINDS, "a colour for each kind");

typedef struct scene {
    const wf_memory_timeline *t;
    const char *title;
    const wf_memory_holder *holder;
    size_t holders, top, peak, by_kind[WF_MEMORY_KINDS];
    double unit, tick; /* bytes of the axis' unit, and of a distance of ticks */
    const char *unit_name;
    size_t (*column)[WF_MEMORY_KINDS]; /* [PLOT_WIDTH + 1] the fullest moment of each pixel */
} scene;

static double x_of(const scene *s, size_t changes)
{
    return s->t->changes ? LEFT + (double)changes / (double)s->t->changes * PLOT_WIDTH : LEFT;
}

static double y_of(const scene *s, double bytes)
{
    double most = ceil((double)s->peak * 1.08 / s->tick) * s->tick;

    return TOP + PLOT_HEIGHT - (most > 0 ? bytes / most : 0) * PLOT_HEIGHT;
}

static void choose_unit(scene *s)
{
    static const char *const names[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double power, ratio;
    int k = 0;

    for (s->unit = 1; k < 4 && (double)s->peak >= 4 * 1024 * s->unit; k++)
        s->unit *= 1024;
    s->unit_name = names[k];
    power = pow(10, floor(log10(fmax((double)s->peak / s->unit / TICKS, 1e-3))));
    ratio = (double)s->peak / s->unit / TICKS / power;
    s->tick = s->unit * power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
}

static size_t sum_of(const size_t *by_kind)
{
    size_t sum = 0;

    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        sum += by_kind[k];
    return sum;
}

/* Finds the fullest moment of each pixel, so that the peak is in the picture. */
static void fill_columns(scene *s)
{
    const wf_memory_timeline *t = s->t;
    size_t now[WF_MEMORY_KINDS];
    int last = 0;

    memcpy(now, t->at_begin, sizeof now);
    memcpy(s->column[0], now, sizeof now);
    for (size_t i = 0; i < t->changes; i++) {
        int x = (int)((i + 1) * PLOT_WIDTH / t->changes);

        for (; last < x; last++)
            memcpy(s->column[last + 1], now, sizeof now);
        now[t->change[i].kind] += (size_t)t->change[i].bytes;
        if (sum_of(now) >= sum_of(s->column[x]))
            memcpy(s->column[x], now, sizeof now);
    }
    for (; last < PLOT_WIDTH; last++)
        memcpy(s->column[last + 1], now, sizeof now);
}

static void draw_ticks(const scene *s, FILE *out)
{
    char words[64];

    for (double at = 0; y_of(s, at) >= TOP - 1; at += s->tick) {
        fprintf(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n",
                LEFT, y_of(s, at), LEFT + PLOT_WIDTH, y_of(s, at));
        snprintf(words, sizeof words, "%g", at / s->unit);
        wf_svg_text(out, LEFT - 8, y_of(s, at) + 4, "line", "text-anchor=\"end\"", words);
    }
    snprintf(words, sizeof words, "transform=\"rotate(-90 20 %d)\" text-anchor=\"middle\"",
             TOP + PLOT_HEIGHT / 2);
    wf_svg_text(out, 20, TOP + PLOT_HEIGHT / 2, "line", words, s->unit_name);
    wf_svg_text(out, LEFT + PLOT_WIDTH / 2, TOP + PLOT_HEIGHT + 22, "line",
                "text-anchor=\"middle\"",
                "memory taken and given back, in the order of the program");
}

/* Draws the area of a kind above those of the kinds before it. */
static void draw_area(const scene *s, int kind, FILE *out)
{
    double base[PLOT_WIDTH + 1];

    for (int x = 0; x <= PLOT_WIDTH; x++) {
        base[x] = 0;
        for (int k = 0; k < kind; k++)
            base[x] += (double)s->column[x][k];
    }
    fprintf(out, "<path fill=\"%s\" d=\"M", colour[kind]);
    for (int x = 0; x <= PLOT_WIDTH; x++)
        fprintf(out, "%s%d,%.1f", x ? " " : "", LEFT + x, y_of(s, base[x]));
    for (int x = PLOT_WIDTH; x >= 0; x--)
        fprintf(out, " %d,%.1f", LEFT + x, y_of(s, base[x] + (double)s->column[x][kind]));
    fprintf(out, "Z\"/>\n");
}

static const char *phase_of(const scene *s, size_t i)
{
    return s->t->site[s->t->change[i].site].phase;
}

/* Draws a line where a phase begins, and its name where that has room. */
static void draw_phases(const scene *s, FILE *out)
{
    for (size_t i = 0; i < s->t->changes;) {
        const char *phase = phase_of(s, i);
        size_t end = i;
        double from = x_of(s, i), to;

        while (end < s->t->changes && strcmp(phase_of(s, end), phase) == 0)
            end++;
        to = x_of(s, end);
        fprintf(out,
                "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#999999\" "
                "stroke-dasharray=\"2 3\"/>\n",
                from, TOP - 14, from, TOP + PLOT_HEIGHT);
        if (to - from > LETTER * (double)strlen(phase))
            wf_svg_text(out, (from + to) / 2, TOP - 4, "line", "text-anchor=\"middle\"", phase);
        i = end;
    }
}

/* Writes a number of bytes with commas. */
static const char *commas(int64_t bytes, char text[32])
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)bytes), used = 0;

    for (int i = 0; i < n; i++) {
        text[used++] = digits[i];
        if ((n - i) % 3 == 1 && i + 1 < n && digits[i] != '-')
            text[used++] = ',';
    }
    text[used] = 0;
    return text;
}

static void draw_peak(const scene *s, FILE *out)
{
    const wf_memory_site *site = s->top ? &s->t->site[s->t->change[s->top - 1].site] : NULL;
    double x = x_of(s, s->top), y = y_of(s, (double)s->peak);
    char words[320], bytes[32];

    fprintf(out,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%d\" stroke=\"#222222\"/>\n"
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#222222\"/>\n",
            x, y, x, TOP + PLOT_HEIGHT, x, y);
    snprintf(words, sizeof words, "peak: %s bytes%s%s%s%s", commas((int64_t)s->peak, bytes),
             site && *site->phase ? ", in " : "", site ? site->phase : "",
             site && *site->module ? ", module " : "", site ? site->module : "");
    wf_svg_text(out, LEFT, TOP - 26, "rank", NULL, words);
}

static void draw_kinds(const scene *s, FILE *out)
{
    double y = TABLE;
    char bytes[32];

    wf_svg_text(out, LEFT - 52, y, "rank", NULL, "at the peak, by kind");
    for (int k = WF_MEMORY_KINDS - 1; k >= 0; k--) {
        if (!s->by_kind[k])
            continue;
        y += ROW;
        fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"11\" height=\"11\" fill=\"%s\"/>\n",
                LEFT - 52, y - 10, colour[k]);
        wf_svg_text(out, LEFT - 34, y, "line", NULL, wf_memory_kind_name((wf_memory_kind)k));
        wf_svg_text(out, SECOND - 60, y, "line", "text-anchor=\"end\"",
                    commas((int64_t)s->by_kind[k], bytes));
    }
}

/* Returns what is in use at the peak and in no block that was seen to be taken. */
static int64_t in_no_block(const scene *s)
{
    int64_t rest = (int64_t)s->peak;

    for (size_t i = 0; i < s->holders; i++)
        rest -= s->holder[i].bytes;
    return rest;
}

static void draw_holder(FILE *out, double y, wf_memory_kind kind, int64_t held,
                        const char *words)
{
    char bytes[32];

    fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"11\" height=\"11\" fill=\"%s\"/>\n", SECOND,
            y - 10, kind < WF_MEMORY_KINDS ? colour[kind] : "#ffffff");
    wf_svg_text(out, SECOND + 110, y, "line", "text-anchor=\"end\"", commas(held, bytes));
    wf_svg_text(out, SECOND + 124, y, "line", NULL, words);
}

static void draw_holders(const scene *s, FILE *out)
{
    int64_t shared = in_no_block(s), others = 0;
    double y = TABLE;
    char words[320];

    wf_svg_text(out, SECOND, y, "rank", NULL,
                "who holds it: kind, blocks, module (* is any layer) and phase that took them");
    for (size_t i = 0; i < s->holders; i++) {
        const wf_memory_holder *h = &s->holder[i];
        const wf_memory_site *site = &s->t->site[h->site];

        if (i >= HOLDERS) {
            others += h->bytes;
            continue;
        }
        snprintf(words, sizeof words, "%s, %lld%s%s%s%s%s", wf_memory_kind_name(h->kind),
                 (long long)h->blocks, *site->module ? " in " : "", site->module,
                 *site->phase ? " (" : "", site->phase, *site->phase ? ")" : "");
        draw_holder(out, y += ROW, h->kind, h->bytes, words);
    }
    if (others)
        draw_holder(out, y += ROW, WF_MEMORY_KINDS, others, "others");
    if (shared)
        draw_holder(out, y += ROW, WF_MEMORY_KINDS, shared,
                    "shared by ranks, or from before this was watched");
}

static void draw(FILE *out, const void *arg)
{
    const scene *s = arg;

    wf_svg_begin(out, WIDTH, TABLE + (HOLDERS + 4) * ROW);
    wf_svg_text(out, LEFT, 16, "head", NULL, s->title);
    draw_ticks(s, out);
    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        if (s->by_kind[k] || s->t->in_use[k])
            draw_area(s, k, out);
    draw_phases(s, out);
    draw_peak(s, out);
    draw_kinds(s, out);
    draw_holders(s, out);
    fprintf(out, "</svg>\n");
}

const char *wf_memory_timeline_title(int rank, char title[WF_MEMORY_TITLE])
{
    snprintf(title, WF_MEMORY_TITLE, "memory of rank %d over a training step", rank);
    return title;
}

wf_status wf_memory_timeline_write(const wf_memory_timeline *t, const char *title,
                                   const char *path, wf_error *error)
{
    scene s = {.t = t, .title = title};
    wf_memory_holder *holder = NULL;

    s.top = wf_memory_timeline_top(t, s.by_kind, &s.peak);
    s.column = calloc(PLOT_WIDTH + 1, sizeof *s.column);
    if (s.column && !t->failed)
        holder = wf_memory_timeline_holders(t, s.top, &s.holders);
    s.holder = holder;
    if (holder) {
        choose_unit(&s);
        fill_columns(&s);
        wf_svg_write(path, draw, &s, error);
    } else {
        wf_error_set(error, WF_ENOMEM, "no memory to draw a timeline of memory");
    }
    free(holder);
    free(s.column);
    return error->code;
}
