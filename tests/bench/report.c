/* tests/bench/report.c - results as a table for people, or as a line of JSON each for programs.
 */
#include "tests/bench/bench.h"
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_WIDTH = 15, NUMBER_WIDTH = 9 };

static void print_json(const bench_report *report, const bench_cell *cells)
{
    json_t *row = json_object();

    json_object_set_new(row, "bench", json_string(report->command));
    for (const bench_cell *c = cells; c->name; c++) {
        if (c->text)
            json_object_set_new(row, c->name, json_string(c->text));
        else if (!isfinite(c->number))
            json_object_set_new(row, c->name, json_null());
        else if (c->decimals == 0)
            json_object_set_new(row, c->name, json_integer((json_int_t)llround(c->number)));
        else
            json_object_set_new(row, c->name, json_real(c->number));
    }
    json_dumpf(row, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(row);
}

static int width_of(const bench_cell *c)
{
    int least = c->text ? TEXT_WIDTH : NUMBER_WIDTH, title = (int)strlen(c->name);

    return title > least ? title : least;
}

static void print_titles(bench_report *report, const bench_cell *cells)
{
    char titles[sizeof report->titles] = "";
    size_t used = 0;

    for (const bench_cell *c = cells; c->name && used < sizeof titles; c++) {
        int width = c->text ? -width_of(c) : width_of(c), n;

        n = snprintf(titles + used, sizeof titles - used, "%s%*s", used ? "  " : "", width,
                     c->name);
        used += n > 0 ? (size_t)n : 0;
    }
    if (strcmp(titles, report->titles) == 0)
        return;
    strcpy(report->titles, titles);
    for (char *t = titles; *t; t++)
        *t = *t == '_' ? ' ' : *t;
    printf("\n%s\n", titles);
}

static void print_cells(const bench_cell *cells)
{
    for (const bench_cell *c = cells; c->name; c++) {
        if (c->text)
            printf("%-*s", c[1].name ? width_of(c) : 0, c->text);
        else if (!isfinite(c->number))
            printf("%*s", width_of(c), "-");
        else
            printf("%*.*f", width_of(c), c->decimals, c->number);
        printf("%s", c[1].name ? "  " : "\n");
    }
}

void bench_row(bench_report *report, const bench_cell *cells)
{
    if (report->json) {
        print_json(report, cells);
    } else {
        print_titles(report, cells);
        print_cells(cells);
    }
    fflush(stdout);
}

void bench_note(bench_report *report, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (report->json)
        print_json(report, (const bench_cell[]){bench_text("note", text), {.name = NULL}});
    else
        printf("# %s\n", text);
    fflush(stdout);
}
