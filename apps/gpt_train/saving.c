/* apps/gpt_train/saving.c - checkpoints of a rank's training loop; see the header. */
#include "apps/gpt_train/saving.h"
#include "apps/gpt_train/signal_requests.h"
#include "core/dtype.h"
#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* What checkpoints keep behind the flags. */
static char numerics_key[] = "numerics", best_key[] = "best_val_loss";
static char digest_key[] = WF_PAR_SAVED_BASE_DIGEST, base_key[] = WF_PAR_SAVED_BASE;
static char no_folder[] = "";

enum { BEHIND_FLAGS = 4 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool first(const app_saving *s)
{
    return wf_context_rank(wf_par_context(s->par)) == 0;
}

/* Every process has signals of its own, and one of its ranks honours them. */
static bool first_of_process(const app_saving *s)
{
    int64_t ranks = app_options_ranks(s->options) / wf_launcher_detected().processes;

    return wf_context_rank(wf_par_context(s->par)) % ranks == 0;
}

static wf_par_checkpoint_kind kind_of(const app_options *o)
{
    return strcmp(o->checkpoint, "full") == 0    ? WF_PAR_SAVE_FULL
           : strcmp(o->checkpoint, "local") == 0 ? WF_PAR_SAVE_LOCAL
                                                 : WF_PAR_SAVE_SHARDED;
}

static wf_status open_savers(app_saving *s)
{
    const app_options *o = s->options;
    char best[4096];
    struct stat is;
    wf_par_save_options options = {.dir = o->save,
                                   .kind = kind_of(o),
                                   .keep = (int)o->keep,
                                   .async = o->async_save,
                                   .option_count = s->text_count,
                                   .option = (const char *const *)s->texts,
                                   .remake = app_saving_remake,
                                   .remake_arg = s};

    s->saver = wf_par_saver_open(s->trainer, &options);
    if (s->saver && o->save_best) {
        snprintf(best, sizeof best, "%.4000s/best", o->save);
        if (lstat(best, &is) == 0 && S_ISLNK(is.st_mode))
            return wf_fail(wf_par_context(s->par), WF_EIO,
                           "%s is a symbolic link, and what it leads to would be written to: "
                           "remove it",
                           best);
        options.dir = best;
        options.keep = 2;
        options.async = false; /* seldom, and without a second copy */
        s->best = wf_par_saver_open(s->trainer, &options);
    }
    return wf_context_status(wf_par_context(s->par));
}

/* The flags, and behind them what is not allocated: the numerics, and the best loss, whose text changes. */
static char **make_texts(app_saving *s)
{
    char *folder =
        s->options->lora_rank && s->options->init_from ? s->options->init_from : no_folder;
    char *behind[2 * BEHIND_FLAGS] = {numerics_key, s->numerics, best_key, s->best_text,
                                      digest_key,   s->base,     base_key, folder};
    char **texts = app_resume_texts(s->options, &s->text_count), **longer;
    size_t flags = 2 * (size_t)s->text_count;

    longer = texts ? realloc(texts, (flags + 2 * BEHIND_FLAGS) * sizeof *texts) : NULL;
    if (!longer) {
        app_resume_free_texts(texts, s->text_count);
        return NULL;
    }
    memcpy(longer + flags, behind, sizeof behind);
    s->text_count += BEHIND_FLAGS;
    return longer;
}

/* Which base these adapters are for; nothing without adapters, or in a plan, which has no values. */
static wf_status know_base(app_saving *s, wf_nn_gpt *model)
{
    wf_context *ctx = wf_par_context(s->par);
    uint64_t digest;

    if (!s->options->lora_rank || wf_context_dry_run(ctx))
        return wf_context_status(ctx);
    if (wf_par_lora_base(s->par, model, wf_dtype_find(s->options->param_dtype), &digest) ==
        WF_OK)
        snprintf(s->base, sizeof s->base, "%016" PRIx64, digest);
    return wf_context_status(ctx);
}

wf_status app_saving_open(app_saving *s, const app_options *options, wf_par *par,
                          wf_nn_gpt *model, wf_par_trainer *trainer, const char *numerics,
                          app_saving_result *result)
{
    *s = (app_saving){.options = options,
                      .par = par,
                      .trainer = trainer,
                      .best_loss = FLT_MAX,
                      .best_text = "",
                      .started = now(),
                      .result = result};
    snprintf(s->numerics, sizeof s->numerics, "%s", numerics);
    if (know_base(s, model) != WF_OK || !options->save)
        return wf_context_status(wf_par_context(par));
    s->texts = make_texts(s);
    if (!s->texts)
        return wf_fail(wf_par_context(par), WF_ENOMEM, "no memory for the flags");
    return open_savers(s);
}

void app_saving_close(app_saving *s)
{
    wf_par_saver_close(s->best);
    wf_par_saver_close(s->saver);
    if (s->texts)
        app_resume_free_texts(s->texts, s->text_count - BEHIND_FLAGS);
    *s = (app_saving){.saver = NULL};
}

/* Another build, device or type of storage: the state goes on, its bits are not what they would have been. */
static void tell_numerics(const app_saving *s, const wf_par_checkpoint *c)
{
    const char *saved = wf_par_checkpoint_option(c, numerics_key);
    char *visible = saved ? strdup(saved) : NULL;

    if (visible && *visible && *s->numerics && strcmp(visible, s->numerics) != 0)
        fprintf(
            stderr,
            "from here on numbers are computed by other rules (numerics %s; the checkpoint "
            "was made with %s): another version, device or dtype; the bits are not those of "
            "a run that goes on where it began\n",
            s->numerics, wf_text_visible(visible));
    free(visible);
}

static void loaded(app_saving *s, const wf_par_checkpoint *c)
{
    const char *best = wf_par_checkpoint_option(c, best_key);

    if (best && *best) {
        snprintf(s->best_text, sizeof s->best_text, "%s", best);
        s->best_loss = strtof(best, NULL);
    }
    if (!first(s))
        return;
    wf_comm_at_files(wf_mesh_world(wf_par_mesh(s->par)), true);
    printf("going on from %s, after step %lld\n", wf_par_checkpoint_path(c),
           (long long)wf_par_checkpoint_step(c));
    fflush(stdout);
    wf_comm_at_files(wf_mesh_world(wf_par_mesh(s->par)), false);
    if (s->options->steps)
        app_resume_tell(s->options, c);
    tell_numerics(s, c);
}

/* Adapters of another base would be added to this one without a word. */
static wf_status check_base(const app_saving *s, const wf_par_checkpoint *c, wf_error *error)
{
    const char *saved = wf_par_checkpoint_option(c, digest_key), *type, *folder;
    const char *base = wf_par_checkpoint_option(c, "base_dtype");
    char mine[32];

    snprintf(mine, sizeof mine, "\"%s\"", s->options->param_dtype);
    type = wf_par_checkpoint_option(c, "param_dtype");
    if ((base && strcmp(base, "\"nf4\"") == 0) != (strcmp(s->options->base_dtype, "nf4") == 0))
        return WF_OK; /* other numbers, which is told as any flag that differs */
    folder = wf_par_checkpoint_option(c, base_key);
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

static wf_status load(app_saving *s, const wf_par_checkpoint *c, wf_error *error)
{
    if (check_base(s, c, error) != WF_OK)
        return error->code;
    return s->trainer ? wf_par_checkpoint_load(s->trainer, c, error)
                      : wf_par_checkpoint_load_model(s->par, s->model, c, error);
}

/* What a rank's process has opened: not all need to see the same files, and one may fail to read one. */
typedef struct opened {
    int64_t count, step[APP_RESUME_MOST];
    bool lacks; /* one whose error nobody has told */
} opened;

static bool has_opened(const opened *o, int64_t step)
{
    for (int64_t i = 0; i < o->count; i++)
        if (o->step[i] == step)
            return true;
    return false;
}

/* This rank's checkpoints, but those which another one has not; the lowest rank that could not open one tells why. */
static wf_status take_common(const app_saving *s, app_resume *r)
{
    wf_mesh *mesh = wf_par_mesh(s->par);
    wf_context *ctx = wf_par_context(s->par);
    int rank = wf_context_rank(ctx), count = 0, reporter = -1;
    opened mine = {.count = r->count, .lacks = r->unopened.code != WF_OK};
    const opened *all;
    bool some = false;

    for (int i = 0; i < r->count; i++)
        mine.step[i] = wf_par_checkpoint_step(r->checkpoint[i]);
    all = wf_mesh_gather(mesh, &mine, sizeof mine);
    for (int i = 0; all && i < r->count; i++) {
        bool common = true;

        for (int k = 0; k < wf_mesh_ranks(mesh); k++)
            common &= has_opened(&all[k], mine.step[i]);
        if (common)
            r->checkpoint[count++] = r->checkpoint[i];
    }
    for (int k = 0; all && k < wf_mesh_ranks(mesh); k++) {
        some |= all[k].count > 0;
        reporter = reporter < 0 && all[k].lacks ? k : reporter;
    }
    r->count = count;
    if (reporter == rank)
        fprintf(stderr, "gpt_train: rank %d: %s\n", rank, r->unopened.text);
    if (some && !count)
        return wf_fail(ctx, WF_EDATA,
                       "no checkpoint can be used by all processes: the directory has to be "
                       "the same on all hosts; --resume none begins anew");
    return wf_context_status(ctx);
}

/* The first of these that is valid; *step is what it has done. */
static wf_status load_first(app_saving *s, const app_resume *resume, int64_t *step)
{
    wf_context *ctx = wf_par_context(s->par);
    wf_error error = {WF_OK, ""};

    for (int i = 0; i < resume->count; i++) {
        const wf_par_checkpoint *c = resume->checkpoint[i];

        error = (wf_error){WF_OK, ""};
        if (load(s, c, &error) == WF_OK) {
            loaded(s, c);
            *step = wf_par_checkpoint_step(c);
            return WF_OK;
        }
        app_resume_explain(s->options, c, &error);
        if (wf_context_status(ctx) != WF_OK || (error.code != WF_EDATA && error.code != WF_EIO))
            break;
        if (first(s) && i + 1 < resume->count)
            fprintf(stderr, "gpt_train: %s; trying %s\n", error.text,
                    wf_par_checkpoint_path(resume->checkpoint[i + 1]));
    }
    s->result->failed =
        true; /* whether by a file, the run's status says: here it may be by a peer */
    return wf_fail(ctx, error.code, "%s", error.text);
}

wf_status app_saving_resume(app_saving *s, const app_resume *resume, int64_t *step)
{
    wf_context *ctx = wf_par_context(s->par);
    app_resume common = *resume;

    *step = 0;
    if (wf_context_status(ctx) == WF_OK && wf_launcher_detected().processes > 1 &&
        app_resume_looks(s->options))
        take_common(s, &common);
    if (!common.count || wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    return load_first(s, &common, step);
}

unsigned app_saving_requests(const app_saving *s)
{
    double limit = s->options->exit_duration_in_mins * 60;
    bool late = limit > 0 && first(s) && now() - s->started >= limit;

    return (s->options->save ? signal_requests_now() : 0) |
           (late ? APP_SIGNAL_SAVE | APP_SIGNAL_STOP : 0);
}

void app_saving_best(app_saving *s, float loss)
{
    s->best_loss = loss;
    if (loss < FLT_MAX)
        snprintf(s->best_text, sizeof s->best_text, "%.9g", (double)loss);
}

void app_saving_validated(app_saving *s, float loss)
{
    if (!(loss < s->best_loss))
        return;
    app_saving_best(s, loss);
    s->new_best = true;
}

/* What a save came to. One of the communication is in the context. */
static wf_status heed(app_saving *s, wf_status status, const wf_error *error)
{
    if (first(s) && status != WF_OK && wf_context_status(wf_par_context(s->par)) == WF_OK)
        fprintf(stderr, "gpt_train: no checkpoint was saved: %s; those from before stay\n",
                error->text);
    if (wf_context_status(wf_par_context(s->par)) == WF_OK) /* else by a peer, maybe */
        s->result->failed = status != WF_OK;
    return wf_context_status(wf_par_context(s->par));
}

/* End what is being written; then this step, and in the end wait for it. */
static wf_status save(app_saving *s, wf_par_saver *saver, int64_t step, bool wait)
{
    wf_error error = {WF_OK, ""};

    if (wf_par_saver_busy(saver) &&
        heed(s, wf_par_saver_finish(saver, &error), &error) != WF_OK)
        return wf_context_status(wf_par_context(s->par));
    error = (wf_error){WF_OK, ""};
    if (wf_par_saver_saved(saver) == step)
        return WF_OK;
    if (wf_par_saver_save(saver, step, &error) == WF_OK && wait)
        wf_par_saver_finish(saver, &error);
    return heed(s, error.code, &error);
}

void app_saving_finish(app_saving *s)
{
    wf_error error = {WF_OK, ""};

    if (s->saver && wf_par_saver_busy(s->saver) &&
        wf_par_saver_finish(s->saver, &error) != WF_OK && first(s))
        fprintf(stderr, "gpt_train: no checkpoint was saved: %s; those from before stay\n",
                error.text);
}

wf_status app_saving_step(app_saving *s, int64_t step, unsigned requests, bool *stop)
{
    const app_options *o = s->options;
    bool last = step == o->steps, leave = (requests & APP_SIGNAL_STOP) && !last;
    bool due = o->save_interval && step % o->save_interval == 0;
    wf_error error = {WF_OK, ""};
    wf_status status = WF_OK;

    *stop = leave;
    if (s->best && s->new_best)
        status = save(s, s->best, step, true);
    s->new_best = false;
    if (s->saver && status == WF_OK && wf_par_saver_busy(s->saver) &&
        wf_par_saver_poll(s->saver, &error) != WF_OK)
        status = heed(s, error.code, &error);
    if (s->saver && status == WF_OK && (due || last || (requests & APP_SIGNAL_SAVE)))
        status = save(s, s->saver, step, last || leave);
    if (first_of_process(s))
        signal_requests_honoured(requests);
    s->result->preempted = leave;
    return status;
}
