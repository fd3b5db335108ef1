/* parallel/program/recipe.c - rows of a recipe as flags, and as a job's training; see the
   header. */
#include "parallel/program/recipe.h"
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_INT = WF_FLAG_COUNT, KIND_FLOAT = WF_FLAG_REAL, KIND_TEXT = WF_FLAG_TEXT };

static const struct row {
    wf_flag_kind kind;
    const char *name, *domain, *help;
    size_t offset;
} rows[WF_RECIPES] = {
#define RECIPE(kind, field, flag, standard, domain, metavar, help)                             \
    {(wf_flag_kind)KIND_##kind, flag, domain, metavar " " help, offsetof(wf_recipe, field)},
#include "parallel/program/recipe.def"
#undef RECIPE
};

/* Sets the bounds of an interval, "(0, 1]" or "[0, inf)": numbers are used as floats, so an
   open end is the next float. */
static void set_bounds(const char *domain, wf_flag *flag)
{
    flag->least = strtod(domain + 1, NULL);
    flag->most = strtod(strchr(domain, ',') + 1, NULL);
    if (*domain == '(')
        flag->least = flag->least == 0 ? (double)FLT_MIN
                                       : (double)nextafterf((float)flag->least, INFINITY);
    if (domain[strlen(domain) - 1] == ')' && isfinite(flag->most))
        flag->most = (double)nextafterf((float)flag->most, -INFINITY);
}

wf_flag wf_recipe_flag(wf_recipe_id id, void *value)
{
    const struct row *r = &rows[id];
    wf_flag flag = {.name = r->name, .kind = r->kind, .value = value, .help = r->help};

    if (r->domain)
        set_bounds(r->domain, &flag);
    return flag;
}

void *wf_recipe_field(wf_recipe *recipe, wf_recipe_id id)
{
    return (char *)recipe + rows[id].offset;
}

/* Returns a float as the number that people write for it: 0.9 of 0.9f. */
static double written(float x)
{
    char text[32];

    snprintf(text, sizeof text, "%.7g", (double)x);
    return strtof(text, NULL) == x ? strtod(text, NULL) : (double)x;
}

void wf_recipe_of(const wf_par_train_options *t, wf_recipe *r)
{
    *r = (wf_recipe){.lr = t->schedule.lr,
                     .min_lr = t->schedule.min_lr,
                     .lr_decay_steps = t->schedule.decay,
                     .warmup_steps = t->schedule.warmup,
                     .param_groups = t->optimizer.groups,
                     .ema = written(t->optimizer.ema),
                     .weight_decay = written(t->optimizer.weight_decay),
                     .beta1 = written(t->optimizer.beta1),
                     .beta2 = written(t->optimizer.beta2),
                     .eps = written(t->optimizer.eps),
                     .clip_grad = written(t->clip)};
}

wf_status wf_recipe_give(const wf_recipe *r, wf_par_train_options *t, wf_error *error)
{
    t->optimizer.groups = r->param_groups;
    t->optimizer.ema = (float)r->ema;
    t->optimizer.weight_decay = (float)r->weight_decay;
    t->optimizer.beta1 = (float)r->beta1;
    t->optimizer.beta2 = (float)r->beta2;
    t->optimizer.eps = (float)r->eps;
    t->clip = (float)r->clip_grad;
    return r->skip_steps ? wf_par_skip_read(r->skip_steps, &t->skip, error) : WF_OK;
}

wf_status wf_recipe_give_schedule(const wf_recipe *r, wf_nn_schedule *s, wf_error *error)
{
    s->lr = r->lr;
    s->min_lr = r->min_lr;
    s->decay = r->lr_decay_steps;
    s->warmup = r->warmup_steps;
    if (s->steps && s->warmup > s->steps)
        return wf_error_set(error, WF_EINVAL,
                            "--warmup-steps %lld is more than the %lld steps of the schedule: "
                            "give fewer of the one, or more --steps",
                            (long long)s->warmup, (long long)s->steps);
    return r->lr_schedule ? wf_nn_schedule_read(r->lr_schedule, s, error) : WF_OK;
}
