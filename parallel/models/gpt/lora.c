/* parallel/models/gpt/lora.c - adapters by the names that PEFT gives modules; see the
   header. */
#include "parallel/models/gpt/lora.h"
#include "parallel/models/gpt/hf_config_internal.h"
#include "parallel/models/gpt/lora_names_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool wf_peft_next(const char **list, char *name, size_t size)
{
    const char *at = *list + strspn(*list, " ");
    size_t n = strcspn(at, ","), length = n;

    if (!*at)
        return false;
    while (length && at[length - 1] == ' ')
        length--;
    snprintf(name, size, "%.*s", (int)length, at);
    *list = at + n + (at[n] == ',');
    return true;
}

bool wf_peft_add(char *list, size_t size, const char *name)
{
    const char *at = list;
    char other[WF_HF_NAME];
    size_t used = strlen(list);

    while (wf_peft_next(&at, other, sizeof other))
        if (strcmp(other, name) == 0)
            return true;
    return snprintf(list + used, size - used, "%s%s", used ? "," : "", name) <
           (int)(size - used);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

static const char *last_name(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

/* Renames what transformers 5 calls otherwise than files do: PEFT's names are those of
   modules. */
static void name_module(char name[WF_HF_NAME])
{
    static const char *const renamed[][2] = {
        {".block_sparse_moe.gate.", ".mlp.gate."},
        {".block_sparse_moe.router.layer.", ".block_sparse_moe.router."}};
    char rest[WF_HF_NAME];

    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        char *at = strstr(name, renamed[i][0]);

        if (!at)
            continue;
        snprintf(rest, sizeof rest, "%s%s", renamed[i][1], at + strlen(renamed[i][0]));
        snprintf(at, WF_HF_NAME - (size_t)(at - name), "%s", rest);
    }
}

/* The names of a list in Weft's words. */
typedef struct words {
    const wf_nn_gpt_config *config;
    const wf_hf_family
        *family; /* NULL: transformers have no such model, and only Weft's own names serve */
    const char *name; /* the one that is looked for */
    char text[2 * WF_PAR_LORA_NAMES];
    bool found, fits;
} words;

/* The name of a parameter's module in transformers: that of its tensor without the last
   word. */
static bool module_of(const words *w, const wf_nn_parameter *p, char name[WF_HF_NAME])
{
    wf_hf_location location;
    char *end;

    if (!w->family || !wf_hf_location_of(w->family, w->config, p, &location))
        return false;
    memcpy(name, location.name, WF_HF_NAME);
    name_module(name);
    end = strrchr(name, '.');
    if (end)
        *end = 0;
    return end != NULL;
}

/* Checks a module against the targets; a target matches the whole end of a name after a dot. */
static void look_target(void *arg, wf_nn_module *m)
{
    words *w = arg;
    const wf_nn_linear *linear = wf_nn_as_linear(m);
    char theirs[WF_HF_NAME], dotted[WF_HF_NAME];
    const char *ours = last_name(m->path);

    if (!linear || !linear->weight)
        return;
    snprintf(dotted, sizeof dotted, ".%s", w->name);
    if (strcmp(ours, w->name) != 0 &&
        !(module_of(w, linear->weight, theirs) &&
          (strcmp(theirs, w->name) == 0 || ends_with(theirs, dotted))))
        return;
    w->found = true;
    w->fits = w->fits && wf_peft_add(w->text, sizeof w->text, ours);
}

/* "block.*.norm1.gain" of "block.3.norm1.gain" */
static void path_pattern(const char *path, char pattern[WF_NN_PATH])
{
    size_t n = 0;

    for (const char *at = path; *at; at++)
        if (*at < '0' || *at > '9' || (at > path && at[-1] != '.'))
            pattern[n++] = *at;
        else {
            pattern[n++] = '*';
            while (at[1] >= '0' && at[1] <= '9')
                at++;
        }
    pattern[n] = 0;
}

/* A module to be saved is any end of a name; of a mixture the router alone may be one. */
static void look_module(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    words *w = arg;
    char theirs[WF_HF_NAME], pattern[WF_NN_PATH];

    (void)m, (void)name;
    if (!module_of(w, p, theirs) || !ends_with(theirs, w->name))
        return;
    path_pattern(p->path, pattern);
    w->found = true;
    w->fits = w->fits && wf_peft_add(w->text, sizeof w->text, pattern);
}

/* A list in Weft's words: what transformers have no name for stays as it is. */
static wf_status translate(wf_nn_gpt *model, const char *list, bool modules, words *w)
{
    char name[WF_HF_NAME];

    *w->text = 0;
    w->fits = true;
    while (wf_peft_next(&list, name, sizeof name)) {
        w->name = !modules && strcmp(name, "o") == 0 ? "out" : name;
        w->found = false;
        if (modules)
            wf_nn_visit(&model->base, NULL, look_module, w);
        else
            wf_nn_visit(&model->base, look_target, NULL, w);
        if (!w->found)
            w->fits = w->fits && wf_peft_add(w->text, sizeof w->text, w->name);
    }
    return w->fits ? WF_OK
                   : wf_fail(model->base.ctx, WF_EINVAL,
                             "the names of what adapters are for are too many: %s", list);
}

wf_status wf_par_lora_apply(wf_nn_gpt *model, const wf_par_lora *lora)
{
    wf_error unknown = {WF_OK, ""};
    words targets, modules;
    bool whole = *lora->modules_to_save && strcmp(lora->modules_to_save, "none") != 0;
    wf_nn_gpt_config config;

    if (!lora->rank || !model)
        return model ? wf_context_status(model->base.ctx) : WF_OK;
    config = wf_nn_gpt_complete(&model->config);
    targets = modules = (words){.config = &config};
    if (wf_hf_config_family(&config, NULL, &targets.family, &unknown) == WF_OK)
        modules.family = targets.family;
    else
        targets.family = NULL;
    if (translate(model, lora->targets, false, &targets) != WF_OK ||
        translate(model, whole ? lora->modules_to_save : "", true, &modules) != WF_OK)
        return wf_context_status(model->base.ctx);
    return wf_nn_lora(&model->base,
                      &(wf_nn_lora_options){.rank = lora->rank,
                                            .alpha = lora->alpha,
                                            .rank_stabilized = lora->rank_stabilized,
                                            .dropout = (float)lora->dropout,
                                            .site = wf_nn_gpt_sites(model),
                                            .targets = targets.text,
                                            .train = whole ? modules.text : NULL});
}

/* ---- tensors of PEFT's file ---- */

typedef struct list {
    const wf_nn_gpt_config *config;
    const wf_hf_family *family;
    wf_peft_tensor *tensor;
    int64_t count;
    wf_error *error;
} list;

static void add(list *l, wf_nn_parameter *p, const char *name, const char *end,
                const char *module)
{
    wf_peft_tensor *t = &l->tensor[l->count++];

    t->parameter = p;
    t->ndim = p->tensor->ndim;
    for (int d = 0; d < t->ndim; d++)
        t->shape[d] = p->tensor->dim[d].size;
    snprintf(t->name, sizeof t->name, "base_model.model.%s%s", name, end);
    snprintf(t->module, sizeof t->module, "%s", module);
}

static void refuse(list *l, const char *path, const char *why)
{
    if (l->error->code == WF_OK)
        wf_error_set(l->error, WF_EUNSUPPORTED, "%s cannot be stored in PEFT's files: %s", path,
                     why);
}

/* Both factors of a linear's adapter. */
static void add_adapter(void *arg, wf_nn_module *m)
{
    list *l = arg;
    const wf_nn_linear *linear = wf_nn_as_linear(m);
    char name[WF_HF_NAME];
    wf_hf_location location;

    if (!linear || !linear->lora.a)
        return;
    if (!wf_hf_location_of(l->family, l->config, linear->weight, &location)) {
        refuse(l, linear->weight->path, "transformers have no such linear");
        return;
    }
    if (location.shape[location.transposed ? 1 : 0] != linear->weight->tensor->dim[0].size) {
        refuse(
            l, m->path,
            "transformers keep several linears in one tensor, whose adapter has one factor A "
            "for all, and Weft's have one each");
        return;
    }
    memcpy(name, location.name, sizeof name);
    *strrchr(name, '.') = 0;
    add(l, linear->lora.a, name, ".lora_A.weight",
        location.transposed ? strchr(name, '.') + 1 : last_name(name));
    add(l, linear->lora.b, name, ".lora_B.weight", "");
}

/* The factors of a mixture's experts. */
static void add_experts(void *arg, wf_nn_module *module)
{
    list *l = arg;
    const wf_nn_moe *m = wf_nn_as_moe(module);
    wf_nn_parameter *factor[] = {m ? m->lora_gate_up_a : NULL, m ? m->lora_gate_b : NULL,
                                 m ? m->lora_up_b : NULL, m ? m->lora_down_a : NULL,
                                 m ? m->lora_down_b : NULL};
    wf_hf_location location;

    for (size_t i = 0; i < sizeof factor / sizeof *factor && factor[0]; i++) {
        wf_peft_tensor *t = &l->tensor[l->count];

        if (!wf_hf_location_of(l->family, l->config, factor[i], &location)) {
            refuse(l, factor[i]->path, "transformers have no such experts");
            return;
        }
        add(l, factor[i], location.name, "", "");
        t->of_experts = true;
        t->factor_b = location.factor_b;
        t->swapped = location.factor_swapped;
        t->row = location.factor_row;
        t->column = location.factor_column;
        t->ndim = location.ndim;
        memcpy(t->shape, location.shape, sizeof t->shape);
    }
}

/* The adapters of a module. */
static void add_adapters(void *arg, wf_nn_module *m)
{
    add_adapter(arg, m);
    add_experts(arg, m);
}

static wf_status add_whole(list *l, wf_nn_parameter *p)
{
    wf_hf_location location;

    if (!wf_hf_location_of(l->family, l->config, p, &location))
        refuse(l, p->path, "transformers have no such parameter");
    name_module(location.name);
    if (l->error->code != WF_OK)
        return l->error->code;
    if (location.transposed || location.pieces || location.shape[0] != p->tensor->dim[0].size)
        refuse(l, p->path, "transformers keep it in another shape");
    else
        add(l, p, location.name, "", "");
    if (l->error->code == WF_OK && l->config->tied && strcmp(p->path, "embed.table") == 0) {
        add(l, p, "lm_head.weight", "", "");
        l->tensor[l->count - 1].copy = true;
    }
    return l->error->code;
}

wf_status wf_peft_tensors(wf_nn_gpt *model, const char *like, wf_peft_tensor **tensors,
                          int64_t *count, wf_error *error)
{
    const wf_nn_gpt_config config = wf_nn_gpt_complete(&model->config);
    list l = {.config = &config, .error = error};
    int64_t all = 0;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &all);

    l.tensor = calloc((size_t)all + 2, sizeof *l.tensor); /* a head more */
    if (!p || !l.tensor)
        wf_error_set(error, WF_ENOMEM, "no memory for the names of adapters");
    else if (wf_hf_config_family(&config, like, &l.family, error) == WF_OK)
        wf_nn_visit(&model->base, add_adapters, NULL, &l);
    for (int64_t i = 0; i < all && error->code == WF_OK; i++)
        if (!p[i]->frozen && !p[i]->adapter && !wf_nn_is_counts(p[i]))
            add_whole(&l, p[i]);
    free(p);
    *tensors = l.tensor;
    *count = l.count;
    return error->code;
}
