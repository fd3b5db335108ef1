/* parallel/plan/search_list.c - what a search has found, as a list; see search.h. */
#include "parallel/plan/search_internal.h"
#include <stdlib.h>
#include <string.h>

/* Names the reasons, with their counts. */
static void take_reasons(const wf_search *s, wf_plan_refused *refused)
{
    static const char *const words[] = {
#define REASON(name, text) [WF_SEARCH_##name] = text,
#include "parallel/plan/search_reasons.def"
#undef REASON
    };

    _Static_assert((int)WF_SEARCH_REASONS < (int)WF_PLAN_REASONS, "a row for the end");
    for (int r = 0; r < WF_SEARCH_REASONS; r++)
        refused[r] = (wf_plan_refused){words[r], s->left_out[r]};
}

/* Writes the flags that make a layout out of what was asked for. */
static void write_flags(const wf_plan_request *asked, const wf_plan_request *o,
                        char text[WF_PLAN_LAYOUT_FLAGS])
{
    wf_plan_request from = *asked;

    if (!from.given[WF_SETTING_param_dtype])
        snprintf(from.param_dtype, sizeof from.param_dtype, "%s", o->param_dtype);
    if (!from.given[WF_SETTING_micro_batch_size])
        from.micro_batch_size = 0; /* without the flag a rank takes all its sequences at once */
    if (!from.given[WF_SETTING_threads_per_rank])
        from.threads_per_rank = o->threads_per_rank;
    wf_plan_changes(&from, o, text, WF_PLAN_LAYOUT_FLAGS);
}

static wf_plan_layout layout_of(const wf_search *s, const wf_search_found *f)
{
    const wf_plan_request *asked = s->options;
    wf_plan_layout l = {.request = wf_search_options(s, &f->candidate),
                        .seconds = f->seconds,
                        .path = f->path,
                        .bubble = f->candidate.pp > 1 ? f->bubble : 0,
                        .utilisation = f->utilisation,
                        .peak = f->peak,
                        .stage = f->rank};

    l.request.job.steps = asked->job.steps; /* a run's, no more a plan's */
    l.request.job.train.schedule.warmup = asked->job.train.schedule.warmup;
    l.request.job.eval_interval = asked->job.eval_interval;
    l.request.rank = (f->rank + 1) * (s->ranks / f->candidate.pp) - 1;
    snprintf(l.request.search, sizeof l.request.search, "off");
    write_flags(asked, &l.request, l.flags);
    return l;
}

wf_status wf_search_list(const wf_search *s, wf_plan_list *list, wf_error *error)
{
    *list = (wf_plan_list){.count = s->n_top,
                           .has_data_parallel = s->plain.fits,
                           .data_parallel_refused = s->plain.refused,
                           .data_parallel_absent = s->no_plain,
                           .ranks = s->ranks,
                           .tokens = s->options->global_batch_size * s->model.seq,
                           .considered = s->considered,
                           .simulated = s->simulated,
                           .planned = s->planned,
                           .work = s->seconds,
                           .refusal = s->refusal};
    snprintf(list->machine, sizeof list->machine, "%s", s->machine.name);
    take_reasons(s, list->refused);
    if (s->plain.fits)
        list->data_parallel = layout_of(s, &s->plain);
    list->layout = calloc((size_t)s->n_top + 1, sizeof *list->layout);
    if (!list->layout) {
        list->count = 0;
        return wf_error_set(error, WF_ENOMEM, "no memory for a list of layouts");
    }
    for (int64_t i = 0; i < s->n_top; i++)
        list->layout[i] = layout_of(s, &s->top[i]);
    return WF_OK;
}

void wf_plan_list_free(wf_plan_list *list)
{
    free(list->layout);
    *list = (wf_plan_list){.layout = NULL};
}

wf_status wf_plan_search(const wf_plan_request *request, wf_plan_list *list, wf_error *error)
{
    wf_search *s;

    *list = (wf_plan_list){.layout = NULL};
    s = wf_search_made(request, error);
    if (s)
        wf_search_list(s, list, error);
    wf_search_close(s);
    return error->code;
}
