/* nn/layers/lora.c - which linears and experts of a model get adapters, and what is trained
   beside them. */
#include "nn/layers/lora.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 64, NAMES = 320 };

/* Reads the next name of a list with commas in between; false at its end. */
static bool next_name(const char **list, char *name, size_t size)
{
    size_t n = *list ? strcspn(*list, ",") : 0;

    if (!*list || !**list)
        return false;
    snprintf(name, size, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ',');
    return true;
}

typedef struct search {
    const wf_nn_lora_options *options;
    const char *target; /* NULL: all that are no heads */
    wf_nn_adapter like; /* the next one, without its parameters */
    int64_t found;
    char names[NAMES]; /* names of the existing linears */
    wf_status status;
} search;

static const char *last_name(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

static void note_name(char *names, const char *name)
{
    size_t used = strlen(names), n = strlen(name);

    if (!n)
        return; /* the root */
    for (const char *at = names; (at = strstr(at, name)); at += n)
        if ((at == names || at[-1] == ' ') && (at[n] == 0 || at[n] == ','))
            return;
    if (used + n + 3 < NAMES)
        snprintf(names + used, NAMES - used, "%s%s", used ? ", " : "", name);
}

/* Adapts the experts of a mixture. */
static void adapt_experts(void *arg, wf_nn_module *module)
{
    search *s = arg;
    wf_nn_moe *m = wf_nn_as_moe(module);

    if (!m || s->status != WF_OK)
        return;
    s->found++;
    s->status = wf_nn_moe_adapt(m, s->options->rank, &s->like);
}

static void adapt(void *arg, wf_nn_module *module)
{
    search *s = arg;
    wf_nn_linear *m = wf_nn_as_linear(module);
    const char *name = last_name(module->path);

    if (!m || s->status != WF_OK)
        return;
    note_name(s->names, name);
    if (s->target ? strcmp(s->target, name) != 0 : !m->weight->matrix)
        return;
    s->found++;
    if (m->weight->refs > 1)
        s->status =
            wf_fail(module->ctx, WF_EINVAL,
                    "%s is tied to another module, so an adapter of it would not be one of "
                    "that: adapt other linears, or train it whole",
                    module->path);
    else
        s->status = wf_nn_linear_adapt(m, s->options->rank, &s->like);
    s->like.site++;
}

static wf_status check(wf_context *ctx, const wf_nn_lora_options *o)
{
    if (o->rank < 1 || !(o->alpha > 0) || !isfinite(o->alpha))
        return wf_fail(
            ctx, WF_EINVAL,
            "adapters of rank %lld and alpha %g: the rank must be at least 1 and alpha "
            "above 0",
            (long long)o->rank, o->alpha);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return wf_fail(ctx, WF_EINVAL, "dropout %g of adapters must be at least 0 and below 1",
                       (double)o->dropout);
    return WF_OK;
}

static wf_status adapt_all(wf_nn_module *root, const wf_nn_lora_options *o)
{
    const char *list = o->targets ? o->targets : "";
    double by = o->rank_stabilized ? sqrt((double)o->rank) : (double)o->rank;
    search s = {
        .options = o,
        .like = {.scale = (float)(o->alpha / by), .dropout = o->dropout, .site = o->site},
        .status = WF_OK};
    char name[NAME];

    while (s.status == WF_OK && next_name(&list, name, sizeof name)) {
        bool experts = strcmp(name, WF_NN_EXPERTS) == 0;

        s.target = strcmp(name, WF_NN_ALL_LINEAR) == 0 ? NULL : name;
        s.found = 0;
        wf_nn_visit(root, experts ? adapt_experts : adapt, NULL, &s);
        if (s.status == WF_OK && !s.found && experts)
            return wf_fail(root->ctx, WF_EINVAL,
                           "adapters are for %s, and the model has no mixture of them: name "
                           "linears",
                           name);
        if (s.status == WF_OK && !s.found)
            return wf_fail(
                root->ctx, WF_EINVAL,
                "no linear of the model is called %s, so there is nothing to adapt: its "
                "linears are %s; %s takes all but heads",
                name, s.names, WF_NN_ALL_LINEAR);
    }
    if (s.status == WF_OK && !(o->targets && *o->targets))
        return wf_fail(root->ctx, WF_EINVAL,
                       "adapters need targets: names of linears, as in q,v, %s or %s",
                       WF_NN_ALL_LINEAR, WF_NN_EXPERTS);
    return s.status;
}

typedef struct training {
    const char *patterns;
    const char *pattern; /* the one that is looked for */
    int64_t found;
} training;

static void freeze(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    const training *t = arg;
    const char *list = t->patterns;
    char pattern[WF_NN_PATH];
    bool trained = p->adapter || wf_nn_is_counts(p);

    (void)m, (void)name;
    while (!trained && next_name(&list, pattern, sizeof pattern))
        trained = wf_nn_path_covers(pattern, p->path);
    p->frozen = p->frozen || !trained;
}

static void look(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    training *t = arg;

    (void)m, (void)name;
    t->found += wf_nn_path_covers(t->pattern, p->path);
}

wf_status wf_nn_lora(wf_nn_module *root, const wf_nn_lora_options *o)
{
    training t = {.patterns = o ? o->train : NULL};
    const char *list = t.patterns;
    char pattern[WF_NN_PATH];

    if (!o)
        return WF_EINVAL;
    if (!root || check(root->ctx, o) != WF_OK || adapt_all(root, o) != WF_OK)
        return root ? wf_context_status(root->ctx) : WF_EINVAL;
    if (wf_nn_name_tree(root) != WF_OK)
        return wf_context_status(root->ctx);
    while (next_name(&list, pattern, sizeof pattern)) {
        t.pattern = pattern;
        t.found = 0;
        wf_nn_visit(root, NULL, look, &t);
        if (!t.found)
            return wf_fail(root->ctx, WF_EINVAL,
                           "no parameter of the model is at %s or below it, so it cannot be "
                           "trained beside the adapters: paths are like block.0.norm1, and * "
                           "matches one name",
                           pattern);
    }
    wf_nn_visit(root, NULL, freeze, &t);
    return wf_context_status(root->ctx);
}
