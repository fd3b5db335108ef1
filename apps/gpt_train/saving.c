/* apps/gpt_train/saving.c - see the header. */
#include "apps/gpt_train/saving.h"
#include "core/dtype.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BASE_TEXTS = 2 };

static wf_par_checkpoint_kind kind_of(const app_options *o)
{
    return strcmp(o->checkpoint, "full") == 0    ? WF_PAR_SAVE_FULL
           : strcmp(o->checkpoint, "local") == 0 ? WF_PAR_SAVE_LOCAL
                                                 : WF_PAR_SAVE_SHARDED;
}

/* Makes the texts of checkpoints: the flags, followed by the base. */
static wf_status make_texts(app_saving *s, wf_context *ctx)
{
    const char *folder =
        s->options->lora_rank && s->options->init_from ? s->options->init_from : "";
    const char *const after[] = {WF_PAR_SAVED_BASE_DIGEST, s->base, WF_PAR_SAVED_BASE, folder};
    size_t flags;

    s->flags = app_resume_texts(s->options, &s->flag_count);
    flags = 2 * (size_t)s->flag_count;
    s->texts = s->flags ? malloc((flags + 2 * BASE_TEXTS) * sizeof *s->texts) : NULL;
    if (!s->texts)
        return wf_fail(ctx, WF_ENOMEM, "no memory for the flags");
    memcpy((void *)s->texts, s->flags, flags * sizeof *s->texts);
    memcpy((void *)(s->texts + flags), (const void *)after, sizeof after);
    return WF_OK;
}

/* Finds which base these adapters are for; nothing without adapters, or in a plan, which has no
   values. */
static wf_status know_base(app_saving *s, wf_par *par, wf_nn_gpt *model)
{
    wf_context *ctx = wf_par_context(par);
    uint64_t digest;

    if (!s->options->lora_rank || wf_context_dry_run(ctx))
        return wf_context_status(ctx);
    if (wf_par_lora_base(par, model, wf_dtype_find(s->options->param_dtype), &digest) == WF_OK)
        snprintf(s->base, sizeof s->base, "%016" PRIx64, digest);
    return wf_context_status(ctx);
}

/* Refuses adapters of another base, which would be added to this one without a word. */
static wf_status check_base(void *arg, const wf_par_checkpoint *c, wf_error *error)
{
    const app_saving *s = arg;
    const char *saved = wf_par_checkpoint_option(c, WF_PAR_SAVED_BASE_DIGEST), *type, *folder;
    const char *base = wf_par_checkpoint_option(c, "base_dtype");
    char mine[32];

    snprintf(mine, sizeof mine, "\"%s\"", s->options->param_dtype);
    type = wf_par_checkpoint_option(c, "param_dtype");
    if ((base && strcmp(base, "\"nf4\"") == 0) != (strcmp(s->options->base_dtype, "nf4") == 0))
        return WF_OK; /* other numbers, which is reported as any flag that differs */
    folder = wf_par_checkpoint_option(c, WF_PAR_SAVED_BASE);
    if (!saved || !*saved || !*s->base || !type || strcmp(type, mine) != 0 ||
        strcmp(saved, s->base) == 0)
        return WF_OK;
    return wf_error_set(
        error, WF_EINVAL,
        "%s has adapters of a base with checksum %.16s, and this one has %s: give "
        "the --init-from that they were trained with%s%.300s",
        wf_par_checkpoint_path(c), saved, s->base, folder && *folder ? ", " : "",
        folder ? folder : "");
}

static void report_flags(void *arg, const wf_par_checkpoint *c)
{
    const app_saving *s = arg;

    if (s->options->steps)
        app_resume_warn(s->options, c);
}

static void explain(void *arg, const wf_par_checkpoint *c, wf_error *error)
{
    app_resume_explain(((const app_saving *)arg)->options, c, error);
}

wf_saving_options app_saving_options(const app_options *o)
{
    return (wf_saving_options){.program = "gpt_train",
                               .out = stdout,
                               .save = {.dir = o->steps ? o->save : NULL,
                                        .kind = kind_of(o),
                                        .keep = (int)o->keep,
                                        .async = o->async_save},
                               .best = o->save_best,
                               .fresh = o->reset_optimizer,
                               .interval = o->save_interval,
                               .seconds = o->exit_duration_in_mins * 60,
                               .fits = check_base,
                               .loaded = report_flags,
                               .explain = explain};
}

wf_status app_saving_open(app_saving *s, const app_options *options, wf_par *par,
                          wf_nn_gpt *model, wf_saving_options *saving)
{
    wf_context *ctx = wf_par_context(par);

    *s = (app_saving){.options = options};
    saving->arg = s;
    if (!options->steps)
        return wf_context_status(ctx);
    if (know_base(s, par, model) != WF_OK || (options->save && make_texts(s, ctx) != WF_OK))
        return wf_context_status(ctx);
    saving->save.option = s->texts;
    saving->save.option_count = s->texts ? s->flag_count + BASE_TEXTS : 0;
    return WF_OK;
}

void app_saving_close(app_saving *s)
{
    free((void *)s->texts);
    if (s->flags)
        app_resume_free_texts(s->flags, s->flag_count);
    *s = (app_saving){.options = NULL};
}
