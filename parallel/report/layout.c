/* parallel/report/layout.c - see the header. */
#include "parallel/report/layout.h"
#include "parallel/shard/sharding_plan.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BAR = 32, TEXT = 256, MOST_PARTS = 64, MOST_RANKS = 64 };

typedef struct layout_report {
    FILE *out;
    wf_mesh *mesh;
    unsigned pp; /* the axis of pipelines, a bit: all of its ranks but the first are left out */
    const wf_tensor *shown[64]; /* one of each shape and layout */
    const wf_layout *layout[64];
    int n_shown;
} layout_report;

static char *shape_text(const wf_tensor *t, const int64_t *sizes, char *text)
{
    int n = snprintf(text, TEXT, "[");

    for (int i = 0; i < t->ndim; i++)
        n += snprintf(text + n, TEXT - (size_t)n, "%s%" PRId64, i ? "," : "",
                      sizes ? sizes[i] : t->dim[i].size);
    snprintf(text + n, TEXT - (size_t)n, "]");
    return text;
}

static bool alike(const wf_tensor *a, const wf_tensor *b)
{
    bool same = a->ndim == b->ndim;

    for (int i = 0; same && i < a->ndim; i++)
        same = a->dim[i].size == b->dim[i].size && a->dim[i].grain == b->dim[i].grain;
    return same;
}

static void remember(layout_report *r, const wf_tensor *t, const wf_layout *layout)
{
    for (int i = 0; i < r->n_shown; i++)
        if (r->layout[i] == layout && alike(r->shown[i], t))
            return;
    if (r->n_shown < 64) {
        r->shown[r->n_shown] = t;
        r->layout[r->n_shown++] = layout;
    }
}

static void print_parameter(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    layout_report *r = arg;
    const wf_layout *layout = wf_par_layout(p);
    int64_t local[WF_MAX_DIMS], start;
    char global_text[TEXT], local_text[TEXT], layout_text[TEXT], path[TEXT];

    for (int i = 0; i < p->tensor->ndim; i++)
        wf_layout_part(r->mesh, layout, i, &p->tensor->dim[i], 0, &start, &local[i]);
    snprintf(path, sizeof path, "%s%s%s", m->path, *m->path ? "." : "", name);
    fprintf(r->out, "  %-34s %-16s %-16s %-16s%s%s\n", path,
            shape_text(p->tensor, NULL, global_text),
            wf_layout_print(layout, layout_text, TEXT),
            shape_text(p->tensor, local, local_text), strcmp(path, p->path) ? " tied to " : "",
            strcmp(path, p->path) ? p->path : "");
    remember(r, p->tensor, layout);
}

/* "##........" for the part [start, start + local) of a dim. */
static void print_bar(FILE *out, const wf_dim *dim, int64_t start, int64_t local)
{
    int64_t size = dim->size ? dim->size : 1;

    fputc('|', out);
    for (int i = 0; i < BAR; i++)
        fputc(i * size / BAR >= start && i * size / BAR < start + local ? '#' : '.', out);
    fputs("|  ", out);
}

/* The ranks that differ from `first` on axes that do not split the tensor, and have its
   part. */
static void print_ranks(const layout_report *r, int first, unsigned others)
{
    int n = 0;

    fprintf(r->out, "rank");
    for (int rank = first; rank >= 0; rank = wf_mesh_next(r->mesh, rank, others), n++)
        if (n < MOST_RANKS)
            fprintf(r->out, "%s%d", n ? "," : " ", rank);
    if (n > MOST_RANKS)
        fprintf(r->out, ",... (%d ranks)", n);
    fputc('\n', r->out);
}

/* A line per part: its ranges, a bar for each dim that is split, and its ranks. */
static void print_picture(const layout_report *r, const wf_tensor *t, const wf_layout *layout)
{
    unsigned axes = wf_layout_split_axes(layout);
    int parts = 0;
    char text[TEXT], layout_text[TEXT];

    fprintf(r->out, "\n  %s %s\n", shape_text(t, NULL, text),
            wf_layout_print(layout, layout_text, TEXT));
    for (int rank = 0; rank >= 0; rank = wf_mesh_next(r->mesh, rank, axes), parts++) {
        if (parts >= MOST_PARTS)
            continue;
        fprintf(r->out, "    ");
        for (int i = 0; i < t->ndim; i++) {
            int64_t start, local;

            wf_layout_part(r->mesh, layout, i, &t->dim[i], rank, &start, &local);
            snprintf(text, TEXT, "%" PRId64 ":%" PRId64, start, start + local);
            fprintf(r->out, "%-14s  ", text);
            if (local != t->dim[i].size)
                print_bar(r->out, &t->dim[i], start, local);
        }
        print_ranks(r, rank, ~(axes | r->pp));
    }
    if (parts > MOST_PARTS)
        fprintf(r->out, "    ... and %d parts more\n", parts - MOST_PARTS);
}

static void print_units(FILE *out, const wf_par *par, const wf_nn_module *model)
{
    fprintf(out, "\n  %-34s %12s %14s %14s  on rank 0\n", "unit", "parameters", "bytes stored",
            "bytes at use");
    for (int64_t i = 0; i < wf_par_unit_count(par, model); i++) {
        wf_par_unit_info u = wf_par_unit_at(par, model, i);
        const char *when = !u.gathered ? "never gathered"
                           : u.reshard ? "freed after forward"
                                       : "kept until after backward";

        fprintf(out, "  %-34s %12" PRId64 " %14zu %14zu  %s\n", *u.path ? u.path : "(root)",
                u.elements, u.shard_bytes, u.compute_bytes, when);
    }
}

void wf_par_print_layout(FILE *out, wf_par *par, wf_nn_module *model,
                         const wf_par_pipeline *pipeline)
{
    layout_report r = {.out = out, .mesh = wf_par_mesh(par)};
    int pp = wf_mesh_axis(r.mesh, "pp");

    r.pp = pp < 0 ? 0 : 1u << pp;
    if (pipeline)
        wf_par_print_stages(out, pipeline, model);
    fprintf(out, "  %-34s %-16s %-16s %-16s\n", "parameter", "shape", "layout",
            pipeline ? "on a first rank" : "on rank 0");
    wf_nn_visit(model, NULL, print_parameter, &r);
    fprintf(out, "\n  who holds what");
    if (pp >= 0)
        fprintf(out, ", where its stage is on pp 0; on pp p ranks are p x %d higher",
                wf_mesh_ranks(r.mesh) / wf_mesh_size(r.mesh, pp));
    fprintf(out, ":\n");
    for (int i = 0; i < r.n_shown; i++)
        print_picture(&r, r.shown[i], r.layout[i]);
    print_units(out, par, model);
    fputc('\n', out);
}
