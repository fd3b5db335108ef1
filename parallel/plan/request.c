/* parallel/plan/request.c - settings as words and as a job's options; see the header. */
#include "parallel/plan/request_internal.h"
#include "core/dtype.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Words of an enumeration, by its values. */
static const char *const reshards[] = {[WF_PAR_RESHARD_DEFAULT] = "default",
                                       [WF_PAR_RESHARD_ALWAYS] = "always",
                                       [WF_PAR_RESHARD_NEVER] = "never"};
static const char *const accumulates[] = {
    [WF_PAR_AUTO] = "auto", [WF_PAR_LOCAL] = "local", [WF_PAR_REDUCED] = "reduced"};
static const char *const forms[] = {"auto", "heads", "gather"};
#define LIST(list, text)                                                                       \
    (words)                                                                                    \
    {                                                                                          \
        list, (int)(sizeof(list) / sizeof *(list)), text                                       \
    }

/* The values of a setting: words, by the values of an enumeration, and how people read the
   list; no list: words of other tables. */
typedef struct words {
    const char *const *word;
    int count;
    const char *text;
} words;

static words words_of(wf_setting s)
{
    switch (s) {
    case WF_SETTING_reshard_after_forward:
        return LIST(reshards, "default, always or never");
    case WF_SETTING_accumulate:
        return LIST(accumulates, "auto, local, reduced or group:N, N a power of two");
    case WF_SETTING_cp_form:
        return LIST(forms, "auto, heads or gather");
    case WF_SETTING_dtype:
    case WF_SETTING_compute:
    case WF_SETTING_param_dtype:
    case WF_SETTING_reduce_dtype:
        return (words){NULL, WF_DTYPES, "fp32 or bf16"};
    default:
        return (words){NULL, 0, "a word of less than 24 bytes"};
    }
}

static int index_of(const words *w, const char *word)
{
    for (int i = 0; w->word && i < w->count; i++)
        if (strcmp(w->word[i], word) == 0)
            return i;
    return -1;
}

int wf_plan_group(const char *word)
{
    char *end;
    long n = strncmp(word, "group:", 6) == 0 ? strtol(word + 6, &end, 10) : 0;

    return n > 0 && n < 1 << 20 && !*end && (n & (n - 1)) == 0 ? (int)n : 0;
}

int wf_plan_word_value(wf_setting s, const char *word)
{
    const words w = words_of(s);
    int i = s == WF_SETTING_optimizer ? (int)wf_nn_method_find(word) : index_of(&w, word);

    if (s == WF_SETTING_accumulate && wf_plan_group(word))
        return WF_PAR_GROUP;
    return i < 0 ? 0 : i;
}

const char *wf_plan_words(wf_setting s, char *text, size_t size)
{
    if (s == WF_SETTING_optimizer)
        return wf_nn_method_names(text, size);
    snprintf(text, size, "%s", words_of(s).text);
    return text;
}

bool wf_plan_has_word(wf_setting s, const char *word)
{
    const words w = words_of(s);

    if (strlen(word) >= WF_WORD)
        return false;
    if (s == WF_SETTING_optimizer)
        return wf_nn_method_find(word) != WF_NN_NO_METHOD;
    if (w.word)
        return index_of(&w, word) >= 0 || (s == WF_SETTING_accumulate && wf_plan_group(word));
    return !w.count ||
           (wf_dtype_find(word) != WF_DTYPES && wf_dtype_is_stored(wf_dtype_find(word)));
}

const char *wf_plan_flag_name(wf_setting s, char name[WF_PLAN_FLAG])
{
    static const char *const names[] = {
#define SETTING(kind, field, help) [WF_SETTING_##field] = #field,
#include "parallel/plan/settings.def"
#undef SETTING
    };

    snprintf(name, WF_PLAN_FLAG, "%s", names[s]);
    for (char *c = name; *c; c++)
        if (*c == '_')
            *c = '-';
    return name;
}

static void set_word(wf_setting_WORD to, const char *word)
{
    snprintf(to, WF_WORD, "%s", word);
}

/* ---- axes by name ---- */

static int64_t axis_of(const wf_par_options *o, const char *name, int size)
{
    if (!o->axes)
        return size ? size : 1;
    for (const wf_axis *a = o->axes; a->name; a++)
        if (strcmp(a->name, name) == 0)
            return a->size;
    return 1;
}

/* Returns whether an axis has a name that planners give a size to; one of cp splits tokens, or
   it is any other one. */
static bool is_set(const wf_par_options *o, const char *name)
{
    return strcmp(name, "pp") == 0 || strcmp(name, "tp") == 0 || strcmp(name, "dp") == 0 ||
           (strcmp(name, "cp") == 0 && !wf_par_splits_batch(o, name));
}

/* Returns the ranks of a mesh's other axes, which planners leave as they are: all, or those
   that split the batch. */
static int64_t other_axes(const wf_par_options *o, bool batch)
{
    int64_t ranks = 1;

    for (const wf_axis *a = o->axes; a && a->name; a++)
        if (!is_set(o, a->name) && (!batch || wf_par_splits_batch(o, a->name)))
            ranks *= a->size;
    return ranks;
}

int64_t wf_plan_data_ranks(const wf_plan_request *r)
{
    return r->dp * other_axes(&r->job.mesh, true);
}

int64_t wf_plan_ep(const wf_plan_request *r)
{
    const int64_t ranks = r->ep * (r->etp > 1 ? r->etp : 1);

    return ranks > r->tp ? ranks / r->tp : 1;
}

void wf_plan_set_ep(wf_plan_request *r, int64_t part)
{
    const int64_t before = r->ep;

    r->ep = part * (r->etp > 1 ? 1 : r->tp);
    if (part == 1 && (before == 0 || before > r->ep))
        r->ep = 0;
}

static void set_axes(const wf_plan_request *r, wf_plan_job *made)
{
    wf_par_options *o = &made->job.mesh;
    int n = 0;

    if (!o->axes) {
        o->pp = (int)r->pp;
        o->tp = (int)r->tp;
        o->dp = (int)r->dp;
        o->ep = (int)r->ep;
        o->etp = (int)r->etp;
        o->cp = (int)r->cp;
        return;
    }
    for (; n < WF_MAX_AXES && o->axes[n].name; n++) {
        wf_axis *a = &made->axes[n];

        *a = o->axes[n];
        a->size = (int)(strcmp(a->name, "pp") == 0   ? r->pp
                        : strcmp(a->name, "tp") == 0 ? r->tp
                        : strcmp(a->name, "dp") == 0 ? r->dp
                        : is_set(o, a->name)         ? r->cp
                                                     : a->size);
    }
    made->axes[n] = (wf_axis){NULL, 0};
    o->axes = made->axes;
}

/* ---- a job as a request ---- */

static void take_mesh(const wf_par_options *o, wf_plan_request *r)
{
    r->pp = axis_of(o, "pp", o->pp);
    r->tp = axis_of(o, "tp", o->tp);
    r->dp = axis_of(o, "dp", o->dp);
    r->ep = o->axes ? 0 : o->ep;
    r->etp = o->axes || !o->etp ? 1 : o->etp;
    r->cp = o->axes && wf_par_splits_batch(o, "cp") ? 1 : axis_of(o, "cp", o->cp);
    set_word(r->cp_form, o->cp_form ? o->cp_form : forms[0]);
    set_word(r->strategy, o->strategy ? o->strategy : WF_PAR_STRATEGY);
    r->dp_replicate = o->dp_replicate;
    r->shard_group_size = o->shard_group_size;
    set_word(r->wrap_type, o->wrap_type ? o->wrap_type : "block");
    r->prefetch = o->prefetch;
    set_word(r->reshard_after_forward, reshards[o->reshard]);
    if (o->accumulate == WF_PAR_GROUP)
        snprintf(r->accumulate, WF_WORD, "group:%d", o->accumulate_group);
    else
        set_word(r->accumulate, accumulates[o->accumulate]);
    set_word(r->dtype, wf_dtype_word(o->dtype));
    set_word(r->compute, wf_dtype_word(o->compute_fp32 ? WF_F32 : o->dtype));
    set_word(r->param_dtype, wf_dtype_word(o->param_dtype));
    set_word(r->reduce_dtype, wf_dtype_word(o->reduce_dtype));
    r->sequence_parallel = o->sequence_parallel;
    r->cuda_graph = o->cuda_graph;
    r->threads_per_rank = o->threads;
}

void wf_plan_request_of(const wf_par_job *job, wf_plan_request *r)
{
    const wf_par_pipeline_options *pipeline = job->pipeline;
    const wf_nn_method_row *optimizer;

    *r = (wf_plan_request){.job = *job, .planned = true};
    take_mesh(&job->mesh, r);
    set_word(r->recompute, job->recompute                    ? job->recompute
                           : pipeline && pipeline->recompute ? "stage"
                                                             : "none");
    r->pp_schedule = pipeline && pipeline->schedule ? pipeline->schedule : WF_PIPE_SCHEDULE;
    r->pp_virtual = pipeline ? pipeline->stages_per_rank : 0;
    r->no_pipeline = !pipeline;
    r->global_batch_size = job->train.global_batch;
    r->micro_batch_size = job->train.micro_batch
                              ? job->train.micro_batch
                              : job->train.global_batch / wf_plan_data_ranks(r);
    r->whole_batches = !job->train.micro_batch;
    optimizer = wf_nn_method_row_of(job->train.optimizer.method);
    set_word(r->optimizer, optimizer ? optimizer->name : "");
    r->async_save = job->async_save;
    set_word(r->search, "off");
    r->rank = wf_plan_ranks(r) - 1;
}

/* ---- a request as a job ---- */

static void give_mesh(const wf_plan_request *r, wf_plan_job *made)
{
    wf_par_options *o = &made->job.mesh;

    set_axes(r, made);
    o->cp_form = r->cp_form;
    o->strategy = r->strategy;
    o->dp_replicate = (int)r->dp_replicate;
    o->shard_group_size = (int)r->shard_group_size;
    /* its default gives way to a number of parameters */
    o->wrap_type = o->wrap_min_params ? NULL : r->wrap_type;
    o->prefetch = (int)r->prefetch;
    o->reshard = (wf_par_reshard)wf_plan_word_value(WF_SETTING_reshard_after_forward,
                                                    r->reshard_after_forward);
    o->accumulate = (wf_par_accumulate)wf_plan_word_value(WF_SETTING_accumulate, r->accumulate);
    o->accumulate_group = wf_plan_group(r->accumulate);
    o->dtype = wf_dtype_find(r->dtype);
    o->compute_fp32 = wf_dtype_find(r->compute) == WF_F32;
    o->param_dtype = wf_dtype_find(r->param_dtype);
    o->reduce_dtype = wf_dtype_find(r->reduce_dtype);
    o->sequence_parallel = r->sequence_parallel;
    o->cuda_graph = r->cuda_graph;
    o->threads = (int)r->threads_per_rank;
}

bool wf_plan_pipelined(int64_t pp, const wf_par_pipeline_options *stages, const char *recompute)
{
    return pp > 1 || (stages->schedule && strcmp(stages->schedule, WF_PIPE_SCHEDULE) != 0) ||
           stages->stages_per_rank > 1 ||
           (stages->split && strcmp(stages->split, "auto") != 0) || stages->resident ||
           strcmp(recompute, "stage") == 0;
}

const wf_par_job *wf_plan_request_job(const wf_plan_request *r, wf_plan_job *made)
{
    bool stages = strcmp(r->recompute, "stage") == 0;

    made->job = r->job;
    give_mesh(r, made);
    made->job.recompute = stages || strcmp(r->recompute, "none") == 0 ? NULL : r->recompute;
    made->job.train.global_batch = r->global_batch_size;
    made->job.train.micro_batch = r->micro_batch_size;
    made->job.train.optimizer.method =
        (wf_nn_method)wf_plan_word_value(WF_SETTING_optimizer, r->optimizer);
    made->job.async_save = r->async_save;
    made->job.pipeline = NULL;
    if (!r->job.pipeline)
        return &made->job;
    made->pipeline = *r->job.pipeline;
    made->pipeline.schedule = r->pp_schedule;
    made->pipeline.stages_per_rank = (int)r->pp_virtual;
    made->pipeline.recompute = stages;
    if (wf_plan_pipelined(r->pp, &made->pipeline, r->recompute) || !r->job.train.loss)
        made->job.pipeline = &made->pipeline;
    return &made->job;
}

int64_t wf_plan_ranks(const wf_plan_request *r)
{
    return r->pp * r->tp * r->cp * r->dp * other_axes(&r->job.mesh, false);
}

int64_t wf_plan_micro_steps(const wf_plan_request *r)
{
    int64_t each = wf_plan_data_ranks(r) * r->micro_batch_size;

    return (r->global_batch_size + each - 1) / each;
}

int64_t wf_plan_idle(const wf_plan_request *r)
{
    return wf_plan_micro_steps(r) * wf_plan_data_ranks(r) * r->micro_batch_size -
           r->global_batch_size;
}

/* ---- differences ---- */

static void text_COUNT(const int64_t *value, char text[96])
{
    snprintf(text, 96, " %" PRId64, *value);
}

static void text_WORD(const wf_setting_WORD *value, char text[96])
{
    snprintf(text, 96, " %s", *value);
}

static void text_TEXT(const wf_setting_TEXT *value, char text[96])
{
    snprintf(text, 96, " %s", *value);
}

static void text_SWITCH(const bool *value, char text[96])
{
    snprintf(text, 96, "%s", *value ? "" : "=off");
}

static void value_text(const wf_plan_request *r, wf_setting s, char text[96])
{
    switch (s) {
#define SETTING(kind, field, help)                                                             \
    case WF_SETTING_##field:                                                                   \
        text_##kind(&r->field, text);                                                          \
        break;
#include "parallel/plan/settings.def"
#undef SETTING
    default:
        *text = 0;
    }
}

/* Returns whether a setting follows from others that differ, and has to be said all the
   same. */
static bool must_be_said(const wf_plan_request *from, const wf_plan_request *to, wf_setting s)
{
    if (s == WF_SETTING_micro_batch_size) /* it follows from dp */
        return from->dp != to->dp && !from->given[s];
    if (s == WF_SETTING_param_dtype) /* it follows from dtype */
        return strcmp(from->dtype, to->dtype) != 0 && strcmp(to->dtype, to->param_dtype) != 0 &&
               !from->given[s];
    return false;
}

void wf_plan_changes(const wf_plan_request *from, const wf_plan_request *to, char *text,
                     size_t size)
{
    *text = 0;
    for (int s = 0; s < WF_SETTINGS; s++) {
        char before[96], after[96], name[WF_PLAN_FLAG];
        size_t used = strlen(text);

        value_text(from, (wf_setting)s, before);
        value_text(to, (wf_setting)s, after);
        if ((strcmp(before, after) == 0 ||
             (s == WF_SETTING_compute && !from->given[s])) && /* it follows from dtype */
            !must_be_said(from, to, (wf_setting)s))
            continue;
        snprintf(text + used, size - used, "%s--%s%s", used ? " " : "",
                 wf_plan_flag_name((wf_setting)s, name), after);
    }
}
