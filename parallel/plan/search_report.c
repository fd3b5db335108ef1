/* parallel/plan/search_report.c - what a search has found, and why the first of the list
   wins. */
#include "parallel/plan/tunables_internal.h"
#include "core/numerics/tree.h"
#include "parallel/flag_names.h"
#include "parallel/report/layout.h"
#include "parallel/plan/search_internal.h"
#include "parallel/formats/json_number.h"
#include "parallel/report/step_report_internal.h"
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

enum { NAME = 96 };

static void print_counts(const wf_plan_list *list, FILE *out)
{
    fprintf(out,
            "%" PRId64 " layouts of %" PRId64 " ranks on %s, looked at in %.2f s of one core\n",
            list->considered, list->ranks, list->machine, list->work);
    for (const wf_plan_refused *r = list->refused; r->words; r++)
        if (r->count)
            wf_flags_print(out, "  %10" PRId64 " %s\n", r->count, r->words);
    fprintf(out, "  %10" PRId64 " were simulated, and %" PRId64 " ranks planned\n\n",
            list->simulated, list->planned);
    if (list->refusal.code != WF_OK)
        wf_flags_print(out,
                       "the first layout that was refused for another reason than memory: "
                       "%s\n\n",
                       list->refusal.text);
}

static void print_layout(const wf_plan_list *list, const wf_plan_layout *l, int rank, FILE *out)
{
    char peak[32] = "";

    wf_size_text(peak, (double)l->peak);
    fprintf(out, "  %2d  %9.4f s %11.0f tokens/s  %5.1f %%  %6.3f  %10s on pp %-3d ", rank,
            l->seconds, (double)list->tokens / l->seconds, 100 * l->utilisation, l->bubble,
            peak, l->stage);
    fprintf(out, "%s\n", *l->flags ? l->flags : "as asked for");
}

void wf_search_print_path(const wf_sim_cost *path, double seconds, FILE *out)
{
    fprintf(out,
            "  of its %.4f s, along the critical path (1 %% less of it is 1 %% of this):\n",
            seconds);
    for (int t = 0; t < WF_SIM_TERMS; t++)
        if (path->of[t] > 0)
            fprintf(out, "    %9.4f s %5.1f %%  %s\n", path->of[t], 100 * path->of[t] / seconds,
                    wf_sim_term_name((wf_sim_term)t));
    fputc('\n', out);
}

/* Which term grew most. */
static wf_sim_term grown(const wf_search_found *winner, const wf_search_found *other)
{
    wf_sim_term most = WF_SIM_PRODUCTS;

    for (int t = 1; t < WF_SIM_TERMS; t++)
        if (other->path.of[t] - winner->path.of[t] >
            other->path.of[most] - winner->path.of[most])
            most = (wf_sim_term)t;
    return most;
}

static void print_other(wf_search *s, const char *name, const wf_search_candidate *c, FILE *out)
{
    const wf_search_found *winner = &s->top[0];
    wf_search_found other;
    wf_sim_term term;
    double more, grew;

    if (!wf_search_may_run(s, c)) {
        fprintf(out, "  %-28s is refused\n", name);
        return;
    }
    if (!wf_search_simulate(s, c, WF_SIM_PATH, &other))
        return;
    more = other.seconds - winner->seconds;
    term = grown(winner, &other);
    grew = other.path.of[term] - winner->path.of[term];
    fprintf(out, "  %-28s ", name);
    if (!wf_search_may_fit(s, other.estimate) || !wf_search_plan_fullest(s, &other))
        fprintf(out, "%s (%+.4f s)\n", other.refused ? "is refused" : "does not fit", more);
    else if (more <= 0)
        fprintf(out, "%+.4f s: as fast\n", more);
    else
        fprintf(out, "%+.4f s: %+.4f s %s%s\n", more, grew, wf_sim_term_name(term),
                other.bubble > winner->bubble + .01 ? ", and a larger bubble" : "");
}

/* Sizes of an axis; dp takes what is left, and micro-batches are as many as the batch has
   then. */
static bool with_axes(const wf_search *s, wf_search_candidate *c, int64_t pp, int64_t tp,
                      int64_t cp)
{
    int64_t dp = s->ranks / (pp * tp * cp);

    if (s->ranks % (pp * tp * cp) || dp < 1 || wf_search_strategy(c)->groups ||
        dp % wf_search_ep(c) || (s->options->etp > 1 && tp != c->tp) ||
        (c->ep > 1 && (c->features ? 1 : tp) * c->ep > s->model.experts) ||
        tp > s->model.heads || s->options->global_batch_size % (dp * c->micro) ||
        pp > s->model.layers + 1)
        return false;
    c->pp = (int32_t)pp;
    c->tp = (int32_t)tp;
    c->features = (int8_t)(c->features && tp > 1);
    c->cp = (int32_t)cp;
    c->shard = (int32_t)dp;
    c->replicate = 1;
    c->micros = (int32_t)(s->options->global_batch_size / (dp * c->micro));
    c->sequence_parallel =
        (int8_t)(s->options->given[WF_SETTING_sequence_parallel]
                     ? s->options->sequence_parallel
                     : tp > 1 && (c->sequence_parallel || s->top[0].candidate.tp == 1));
    c->gather_keys = (int8_t)(cp > 1 && (c->gather_keys || wf_search_must_gather(s, c)));
    if (pp > 1 && !c->per_rank)
        c->per_rank = 1;
    if (c->micros == 1 || dp == 1)
        c->accumulate = 0;
    return true;
}

static void other_axes(wf_search *s, FILE *out)
{
    const wf_search_candidate *w = &s->top[0].candidate;
    const wf_plan_request *o = s->options;

    for (int64_t n = 1; n <= 64; n *= 2) {
        wf_search_candidate c = *w;
        char name[NAME];

        snprintf(name, sizeof name, "tp %" PRId64, n);
        if (n != w->tp && !o->given[WF_SETTING_tp] && n <= s->machine.devices && n <= 8 &&
            with_axes(s, &c, w->pp, n, wf_search_cp(w)))
            print_other(s, name, &c, out);
        c = *w;
        snprintf(name, sizeof name, "pp %" PRId64, n);
        if (n != w->pp && !o->given[WF_SETTING_pp] &&
            with_axes(s, &c, n, w->tp, wf_search_cp(w)))
            print_other(s, name, &c, out);
        c = *w;
        snprintf(name, sizeof name, "cp %" PRId64, n);
        if (n != wf_search_cp(w) && !o->given[WF_SETTING_cp] && !s->timed &&
            n <= wf_token_chunks(s->model.seq) && with_axes(s, &c, w->pp, w->tp, n))
            print_other(s, name, &c, out);
    }
}

/* The same with experts on other ranks; without ep each rank gathers all of them. */
static void other_ep(wf_search *s, FILE *out)
{
    const wf_search_candidate *w = &s->top[0].candidate;

    for (int64_t n = 1; n <= w->shard && !s->options->given[WF_SETTING_ep] && !s->timed;
         n *= 2) {
        wf_search_candidate c = *w;
        char name[NAME];

        c.ep = (int32_t)n;
        c.accumulate = (int8_t)(n > 1 && c.accumulate == 1 ? 2 : c.accumulate);
        snprintf(name, sizeof name, "ep %" PRId64, wf_search_owners(&c));
        if (n != wf_search_ep(w) && w->shard % n == 0 &&
            wf_search_owners(&c) <= s->model.experts)
            print_other(s, name, &c, out);
    }
    if (w->tp > 1 && s->model.experts && !s->options->given[WF_SETTING_etp] && !s->timed) {
        wf_search_candidate c = *w;
        char name[NAME];

        c.features = !w->features;
        snprintf(name, sizeof name, "etp %d", c.features ? c.tp : 1);
        if (wf_search_owners(&c) <= s->model.experts)
            print_other(s, name, &c, out);
    }
}

static void other_words(wf_search *s, FILE *out)
{
    const wf_search_candidate *w = &s->top[0].candidate;
    const wf_plan_request *o = s->options;
    wf_search_candidate c;
    char name[NAME];

    for (int n = 0; wf_strategy_to_search(n) && !wf_strategy_to_search(n)->groups; n++) {
        c = *w;
        c.strategy = (int8_t)n;
        c.accumulate = (int8_t)(wf_search_strategy(&c)->split_gradients ? c.accumulate : 0);
        snprintf(name, sizeof name, "strategy %s", wf_strategy_to_search(n)->name);
        if (n != w->strategy && w->shard > 1 && !wf_search_strategy(w)->groups &&
            !o->given[WF_SETTING_strategy] && !o->job.mesh.axes)
            print_other(s, name, &c, out);
    }
    for (int n = 0; wf_search_recompute[n] && !s->timed; n++) {
        c = *w;
        c.recompute = (int8_t)n;
        snprintf(name, sizeof name, "recompute %s", wf_search_recompute[n]);
        if (n != w->recompute && (n < 3 || w->pp > 1) && !o->given[WF_SETTING_recompute])
            print_other(s, name, &c, out);
    }
    for (int n = 0; wf_pipe_schedule_at(n).name && w->pp > 1; n++) {
        c = *w;
        c.schedule = (int8_t)n;
        c.per_rank = (int16_t)wf_search_schedule(&c).per_rank;
        snprintf(name, sizeof name, "schedule %s", wf_search_schedule(&c).name);
        if (wf_search_schedule(&c).searched && n != w->schedule &&
            !o->given[WF_SETTING_pp_schedule] && c.pp * c.per_rank <= s->model.layers + 1)
            print_other(s, name, &c, out);
    }
}

static void other_numbers(wf_search *s, FILE *out)
{
    const wf_search_candidate *w = &s->top[0].candidate;
    const wf_plan_request *o = s->options;
    int64_t each = (int64_t)w->micro * w->micros;
    wf_search_candidate c;
    char name[NAME];

    for (int64_t n = 1; n <= 16 && n <= each && !o->given[WF_SETTING_micro_batch_size];
         n *= 2) {
        c = *w;
        c.micro = (int32_t)n;
        c.micros = (int32_t)(each / n);
        snprintf(name, sizeof name, "micro-batches of %" PRId64, n);
        if (n != w->micro && each % n == 0)
            print_other(s, name, &c, out);
    }
    c = *w;
    c.sequence_parallel = !w->sequence_parallel;
    if (w->tp > 1 && !o->given[WF_SETTING_sequence_parallel])
        print_other(s,
                    w->sequence_parallel ? "without sequence parallelism"
                                         : "with sequence parallelism",
                    &c, out);
    for (int n = WF_DTYPES - 1; n >= 0 && !s->timed && !o->given[WF_SETTING_dtype]; n--) {
        c = *w;
        c.dtype = (int8_t)n;
        snprintf(name, sizeof name, "dtype %s", wf_dtype_word((wf_dtype)n));
        if (n != w->dtype && wf_dtype_is_stored((wf_dtype)n) && s->machine.rate[n] > 0)
            print_other(s, name, &c, out);
    }
}

static void print_why(wf_search *s, FILE *out)
{
    fputs("why: the same with one thing changed\n", out);
    other_axes(s, out);
    other_ep(s, out);
    other_words(s, out);
    other_numbers(s, out);
    fputc('\n', out);
}

static void print_data_parallel(const wf_plan_list *list, FILE *out)
{
    const wf_plan_layout *l = &list->data_parallel;

    if (!list->has_data_parallel) {
        fprintf(out, "data parallelism alone %s\n",
                list->data_parallel_absent    ? "is no layout of what was asked for"
                : list->data_parallel_refused ? "is refused, by any strategy"
                                              : "does not fit, by any strategy");
        return;
    }
    fprintf(out, "data parallelism alone takes %.4f s at best%s: %s\n", l->seconds,
            list->count && l->seconds <= list->layout[0].seconds ? ", which is the first line"
                                                                 : "",
            *l->flags ? l->flags : "as asked for");
}

void wf_search_print_accuracy(bool timed, FILE *out)
{
    if (timed) {
        fputs("  these times are sums of a plan's ops and transfers by the machine's figures; "
              "of transformers they are\n  within 8 % of those by sizes, which runs are held "
              "beside (docs/planning.md)\n\n",
              out);
        return;
    }
    fprintf(
        out,
        "  these times are known to be off by %.1f %% in the median, %.1f %% at most, beside "
        "runs at a machine's pace,\n  and their tokens/s by %d %% in the median, %+d to %+d "
        "%%, beside %d published runs (docs/planning.md)\n\n",
        WF_SEARCH_PACED_MEDIAN, WF_SEARCH_PACED_WORST, WF_SEARCH_PUBLISHED_MEDIAN,
        WF_SEARCH_PUBLISHED_LEAST, WF_SEARCH_PUBLISHED_MOST, WF_SEARCH_PUBLISHED_RUNS);
}

void wf_search_print(wf_search *s, const wf_plan_list *list, FILE *out)
{
    print_counts(list, out);
    if (!list->count) {
        wf_flags_print(out, list->refusal.code != WF_OK
                                ? "no layout can be planned, for the reason above\n"
                                : "no layout fits: take more ranks, more .device_memory, or a "
                                  "smaller .global_batch_size\n");
        wf_search_print_baselines(s, out);
        return;
    }
    fputs("        step                              MFU  bubble        peak        flags\n",
          out);
    for (int i = 0; i < list->count; i++)
        print_layout(list, &list->layout[i], i + 1, out);
    wf_search_print_accuracy(s->timed, out);
    print_data_parallel(list, out);
    wf_search_print_baselines(s, out);
    wf_search_print_path(&list->layout[0].path, list->layout[0].seconds, out);
    print_why(s, out);
}

static json_t *layout_json(const wf_plan_layout *l)
{
    json_t *path = json_object();

    for (int t = 0; path && t < WF_SIM_TERMS; t++)
        json_object_set_new(path, wf_sim_term_name((wf_sim_term)t),
                            wf_json_number(wf_sim_term_name((wf_sim_term)t), l->path.of[t]));
    return json_pack("{s:s, s:o?, s:o?, s:o?, s:I, s:i, s:o?}", "flags", l->flags, "seconds",
                     wf_json_number("seconds", l->seconds), "utilisation",
                     wf_json_number("utilisation", l->utilisation), "bubble",
                     wf_json_number("bubble", l->bubble), "peak", (json_int_t)l->peak, "rank",
                     l->stage, "path", path);
}

wf_status wf_search_write_json(const wf_plan_list *list, const char *path, wf_error *error)
{
    json_t *top = json_array(), *left = json_object(), *json;
    char words[256], refusal[WF_ERROR_TEXT];

    for (int64_t i = 0; top && i < list->count; i++)
        json_array_append_new(top, layout_json(&list->layout[i]));
    for (const wf_plan_refused *r = list->refused; left && r->words; r++)
        json_object_set_new(left, wf_flags_reported(r->words, words, sizeof words),
                            json_integer(r->count));
    json = json_pack(
        "{s:s, s:{s:f, s:f, s:i, s:i, s:i, s:i}, s:I, s:I, s:I, s:I, s:f, s:o?, s:s?, s:o?, "
        "s:o}",
        "machine", list->machine, "known_error_percent", "paced_median", WF_SEARCH_PACED_MEDIAN,
        "paced_worst", WF_SEARCH_PACED_WORST, "published_runs", WF_SEARCH_PUBLISHED_RUNS,
        "published_median", WF_SEARCH_PUBLISHED_MEDIAN, "published_least",
        WF_SEARCH_PUBLISHED_LEAST, "published_most", WF_SEARCH_PUBLISHED_MOST, "ranks",
        (json_int_t)list->ranks, "considered", (json_int_t)list->considered, "simulated",
        (json_int_t)list->simulated, "planned", (json_int_t)list->planned, "work", list->work,
        "left_out", left, "refusal",
        list->refusal.code ? wf_flags_reported(list->refusal.text, refusal, sizeof refusal)
                           : NULL,
        "top", top, "plain",
        list->has_data_parallel ? layout_json(&list->data_parallel) : json_null());
    return wf_step_report_publish(json, path, error);
}
