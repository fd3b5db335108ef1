/* parallel/report/expert_load.c - loads of experts; see the header. */
#include "parallel/report/expert_load.h"
#include "core/host_data.h"
#include "nn/layers/moe.h"
#include "parallel/agree_internal.h"
#include "parallel/parallel_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct counter {
    wf_nn_hooks hooks;
    wf_expert_load *load;
    wf_nn_module *module;
    uint64_t *mine; /* [experts + 1], in load->mine; the last is of no expert */
    int64_t experts;
    bool drops; /* experts have a capacity */
} counter;

struct wf_expert_load {
    wf_par *par;
    bool counts; /* this rank, of those that have the same tokens */
    int layers;
    int64_t experts;             /* their number in all layers, and one of none in each */
    counter *counter;            /* [layers] */
    wf_layer_load *layer;        /* [2 layers]: those of the last step, then of all steps */
    uint64_t *mine, *step, *all; /* [experts] */
};

static bool is_mixture(const wf_nn_module *m)
{
    return strcmp(m->type->name, "moe") == 0;
}

/* Counts the choices of a micro-step, which are the last of what the point passes. */
static void at_point(void *self, wf_nn_module *module, const char *point, int n, wf_tensor **x)
{
    counter *c = self;
    wf_context *ctx = module->ctx;
    wf_host_data view = {.t = NULL};
    double share = wf_context_model_share(ctx, 1); /* 0 without a sequence, or recomputed */
    const float *index;

    wf_context_model_share(ctx, share);
    if (strcmp(point, "dispatch") != 0 || !c->load->counts || share <= 0 || !x[n - 1] ||
        wf_context_dry_run(ctx) ||
        !(wf_context_recording(ctx) || wf_context_is_recorded_later(ctx)))
        return;
    index = wf_data_read(x[n - 1], &view);
    for (int64_t i = 0; index && i < wf_tensor_local_count(x[n - 1]); i++)
        c->mine[(int64_t)index[i]]++;
    wf_data_close(&view);
}

static bool acts(void *self, const char *point)
{
    (void)self, (void)point;
    return false;
}

static void count_layer(void *arg, wf_nn_module *m)
{
    wf_expert_load *l = arg;

    l->layers += is_mixture(m);
    if (is_mixture(m))
        l->experts += ((const wf_nn_moe *)m)->gate->tensor->dim[0].size + 1;
}

/* Gives a mixture a counter, and the counter its numbers. */
static void add_layer(void *arg, wf_nn_module *m)
{
    wf_expert_load *l = arg;
    counter *c = &l->counter[l->layers];
    int64_t first = l->experts;

    if (!is_mixture(m))
        return;
    *c = (counter){.hooks = {.at = at_point, .acts = acts, .self = c},
                   .load = l,
                   .module = m,
                   .mine = l->mine + first,
                   .experts = ((const wf_nn_moe *)m)->gate->tensor->dim[0].size,
                   .drops = ((const wf_nn_moe *)m)->capacity > 0};
    l->layers++;
    l->experts += c->experts + 1;
    if (wf_nn_hook_add(m, &c->hooks) != WF_OK)
        c->module = NULL;
}

/* Sets up what is reported, once the number of layers is known. */
static void name_layers(wf_expert_load *l)
{
    int64_t first = 0;

    for (int i = 0; i < l->layers; i++) {
        const char *path = l->counter[i].module ? l->counter[i].module->path : "";

        const int64_t n = l->counter[i].experts, none = first + n;
        const bool drops = l->counter[i].drops;

        l->layer[i] = (wf_layer_load){path, n, l->step + first, drops ? l->step + none : NULL};
        l->layer[l->layers + i] =
            (wf_layer_load){path, n, l->all + first, drops ? l->all + none : NULL};
        first = none + 1;
    }
}

wf_expert_load *wf_expert_load_open(wf_par *par, wf_nn_module *model)
{
    wf_expert_load *l = calloc(1, sizeof *l), *opened = NULL;
    unsigned alike = wf_par_tensor_axes(par) | (par->ep_axis >= 0 ? 1u << par->ep_axis : 0);

    if (!l) {
        wf_fail(par->ctx, WF_ENOMEM, "no memory for the loads of experts");
        return NULL;
    }
    *l = (wf_expert_load){.par = par, .counts = true};
    for (int axis = 0; axis < wf_mesh_axes(par->mesh); axis++)
        if (alike >> axis & 1 && wf_mesh_coordinate(par->mesh, axis) > 0)
            l->counts = false;
    wf_nn_visit(model, count_layer, NULL, l);
    l->counter = calloc((size_t)l->layers + 1, sizeof *l->counter);
    l->layer = calloc(2 * (size_t)l->layers + 1, sizeof *l->layer);
    l->mine = calloc(3 * (size_t)l->experts + 1, sizeof *l->mine);
    if (!l->counter || !l->layer || !l->mine) {
        wf_fail(par->ctx, WF_ENOMEM, "no memory for the loads of experts");
    } else if (!l->layers) {
        wf_fail(par->ctx, WF_EINVAL,
                "loads of experts are reported of a model with a mixture, and this has none");
    } else {
        l->step = l->mine + l->experts;
        l->all = l->step + l->experts;
        l->layers = 0;
        l->experts = 0;
        wf_nn_visit(model, add_layer, NULL, l);
        name_layers(l);
        opened = l;
    }
    if (!opened)
        wf_expert_load_close(l);
    return opened;
}

void wf_expert_load_close(wf_expert_load *l)
{
    if (!l)
        return;
    for (int i = 0; l->counter && i < l->layers; i++)
        if (l->counter[i].module)
            wf_nn_hook_remove(l->counter[i].module, &l->counter[i].hooks);
    free(l->counter);
    free(l->layer);
    free(l->mine);
    free(l);
}

int wf_expert_load_step(wf_expert_load *l, const wf_layer_load **layers)
{
    size_t bytes = (size_t)l->experts * sizeof *l->step;
    wf_error error = {WF_OK, ""};

    *layers = l->layer;
    memcpy(l->step, l->mine, bytes);
    memset(l->mine, 0, bytes);
    if (wf_agree(l->par, l->experts, l->step, &error) != WF_OK)
        return 0;
    for (int64_t e = 0; e < l->experts; e++)
        l->all[e] += l->step[e];
    return l->layers;
}

/* Returns the largest load of a layer over the mean one, and finds the smallest and how many
   have none. */
static double spread(const wf_layer_load *layer, double *least, int64_t *empty)
{
    double sum = 0, most = 0, mean;

    *least = INFINITY;
    *empty = 0;
    for (int64_t e = 0; e < layer->experts; e++) {
        double tokens = (double)layer->tokens[e];

        sum += tokens;
        most = tokens > most ? tokens : most;
        *least = tokens < *least ? tokens : *least;
        *empty += layer->tokens[e] == 0;
    }
    mean = sum / (double)layer->experts;
    *least = mean > 0 ? *least / mean : NAN;
    return mean > 0 ? most / mean : NAN;
}

double wf_expert_load_ratio(const wf_layer_load *layer)
{
    double least;
    int64_t empty;

    return spread(layer, &least, &empty);
}

/* Prints a sign for each of at most 64 neighbouring groups of experts: their load by quarters
   of the mean. */
static void print_picture(FILE *out, const wf_layer_load *layer)
{
    static const char signs[] = " .:-=+*#%@";
    int64_t columns = layer->experts < 64 ? layer->experts : 64;
    double sum = 0;

    for (int64_t e = 0; e < layer->experts; e++)
        sum += (double)layer->tokens[e];
    for (int64_t c = 0; c < columns && sum > 0; c++) {
        int64_t first = c * layer->experts / columns, end = (c + 1) * layer->experts / columns;
        double mine = 0;
        int sign;

        for (int64_t e = first; e < end; e++)
            mine += (double)layer->tokens[e];
        sign = (int)ceil(4 * mine / (double)(end - first) / (sum / (double)layer->experts));
        fputc(signs[sign < (int)sizeof signs - 2 ? sign : (int)sizeof signs - 2], out);
    }
}

/* Returns how many of 100 choices no expert took. */
static double dropped_share(const wf_layer_load *layer)
{
    double all = (double)*layer->dropped;

    for (int64_t e = 0; e < layer->experts; e++)
        all += (double)layer->tokens[e];
    return all > 0 ? 100 * (double)*layer->dropped / all : 0;
}

void wf_expert_load_print(FILE *out, const wf_expert_load *l)
{
    fprintf(out, "loads of experts, over their mean\n  %-20s %8s %8s %8s  %s\n", "mixture",
            "largest", "smallest", "without", "each, a sign more for a quarter of the mean");
    for (int i = 0; i < l->layers; i++) {
        const wf_layer_load *layer = &l->layer[l->layers + i];
        double least, most;
        int64_t empty;

        most = spread(layer, &least, &empty);
        fprintf(out, "  %-20s %8.2f %8.2f %8" PRId64 "  |", layer->path, most, least, empty);
        print_picture(out, layer);
        fputs("|", out);
        if (layer->dropped)
            fprintf(out, "  %" PRIu64 " choices dropped, %.2f %%", *layer->dropped,
                    dropped_share(layer));
        fputc('\n', out);
    }
}
