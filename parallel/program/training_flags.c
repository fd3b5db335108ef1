/* parallel/program/training_flags.c - flags of a job's training, by the rows of recipe.def; see
   services_internal.h. */
#include "parallel/program/services_internal.h"
#include <string.h>

static bool has_own(const wf_services *s, const char *name)
{
    for (const wf_flag *own = s->program->flags; own && own->name; own++)
        if (strcmp(own->name, name) == 0)
            return true;
    return false;
}

void wf_services_list_training(wf_services *s, wf_flag *flags, int *n, int most)
{
    for (int row = 0; row < WF_RECIPES && *n < most; row++) {
        const wf_flag flag =
            wf_recipe_flag((wf_recipe_id)row, wf_recipe_field(&s->recipe, (wf_recipe_id)row));

        if (!has_own(s, flag.name))
            flags[(*n)++] = flag;
    }
    if (*n < most && !has_own(s, "eval-ema"))
        flags[(*n)++] = (wf_flag){.name = "eval-ema",
                                  .kind = WF_FLAG_SWITCH,
                                  .value = &s->program->job.train.evaluate_average,
                                  .help = "with --ema: evaluations compute with that average"};
}

wf_status wf_services_take_training(wf_services *s, wf_error *error)
{
    wf_par_train_options *t = &s->program->job.train;

    if (wf_recipe_give(&s->recipe, t, error) != WF_OK ||
        (s->program->job.steps &&
         wf_recipe_give_schedule(&s->recipe, &t->schedule, error) != WF_OK))
        return error->code;
    if (t->evaluate_average && !(t->optimizer.ema > 0))
        return wf_error_set(error, WF_EINVAL,
                            "--eval-ema needs an average: give --ema X, 0.999 for instance");
    s->schedule_is_read = s->recipe.lr_schedule && t->schedule.kind == WF_NN_POINTS;
    return WF_OK;
}

void wf_services_close_training(wf_services *s)
{
    if (s->schedule_is_read)
        wf_nn_schedule_free(&s->program->job.train.schedule);
    s->schedule_is_read = false;
}
