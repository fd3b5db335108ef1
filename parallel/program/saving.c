/* parallel/program/saving.c - checkpoints of a training loop; see the header. */
#include "parallel/program/saving.h"
#include "parallel/main.h"
#include "parallel/program/saving_internal.h"
#include "parallel/recovery/signal_requests.h"
#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Texts that checkpoints keep after the program's. */
static const char numerics_key[] = "numerics", best_key[] = "best_val_loss";

enum { OWN_TEXTS = 2 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool wf_saving_first(const wf_saving *s)
{
    return wf_context_rank(wf_par_context(s->par)) == 0;
}

/* Returns whether the rank honours the signals of its process, as one of its ranks does. */
static bool first_of_process(const wf_saving *s)
{
    int ranks = wf_mesh_ranks(wf_par_mesh(s->par)) / wf_launcher_detected().processes;

    return wf_context_rank(wf_par_context(s->par)) % ranks == 0;
}

static wf_status open_savers(wf_saving *s)
{
    wf_par_save_options options = s->options.save;
    char best[4096];
    struct stat is;

    options.option = s->texts;
    options.option_count += OWN_TEXTS;
    options.remake = wf_saving_remake;
    options.remake_arg = s;
    s->saver = wf_par_saver_open(s->trainer, &options);
    if (s->saver && s->options.best) {
        snprintf(best, sizeof best, "%.4000s/best", options.dir);
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

wf_status wf_saving_open(wf_saving *s, const wf_saving_options *options, wf_par *par,
                         wf_nn_module *model, wf_par_trainer *trainer, wf_saving_result *result)
{
    const wf_par_save_options *save = &options->save;
    size_t count = 2 * (size_t)save->option_count;
    const char *const own[] = {numerics_key, s->numerics, best_key, s->best_text};

    *s = (wf_saving){.options = *options,
                     .par = par,
                     .trainer = trainer,
                     .model = model,
                     .best_loss = FLT_MAX,
                     .started = now(),
                     .result = result};
    snprintf(s->numerics, sizeof s->numerics, "%s", options->numerics ? options->numerics : "");
    if (!trainer || !save->dir || wf_context_status(wf_par_context(par)) != WF_OK)
        return wf_context_status(wf_par_context(par));
    s->texts = malloc((count + 2 * OWN_TEXTS) * sizeof *s->texts);
    if (!s->texts)
        return wf_fail(wf_par_context(par), WF_ENOMEM, "no memory for texts of checkpoints");
    if (count)
        memcpy((void *)s->texts, (const void *)save->option, count * sizeof *s->texts);
    memcpy((void *)(s->texts + count), (const void *)own, sizeof own);
    return open_savers(s);
}

void wf_saving_close(wf_saving *s)
{
    wf_par_saver_close(s->best);
    wf_par_saver_close(s->saver);
    free((void *)s->texts);
    *s = (wf_saving){.saver = NULL};
}

/* Reports another build, device or type of storage: the state is the same, later bits are not
   what they would have been. */
static void report_numerics(const wf_saving *s, const wf_par_checkpoint *c)
{
    const char *saved = wf_par_checkpoint_option(c, numerics_key);
    char *visible = saved ? strdup(saved) : NULL;

    if (visible && *visible && *s->numerics && strcmp(visible, s->numerics) != 0)
        wf_par_report_line(
            NULL,
            "from here on numbers are computed by other rules (numerics %s; the checkpoint "
            "was made with %s): another version, device or dtype; the bits are not those of a "
            "run that continues where it began",
            s->numerics, wf_text_visible(visible));
    free(visible);
}

static void loaded(wf_saving *s, const wf_par_checkpoint *c)
{
    const char *best = wf_par_checkpoint_option(c, best_key);

    if (best && *best) {
        snprintf(s->best_text, sizeof s->best_text, "%s", best);
        s->best_loss = strtof(best, NULL);
    }
    if (!wf_saving_first(s))
        return;
    wf_comm_at_files(wf_mesh_world(wf_par_mesh(s->par)), true);
    fprintf(s->options.out, "continuing from %s, after step %lld%s\n",
            wf_par_checkpoint_path(c), (long long)wf_par_checkpoint_step(c),
            s->options.fresh ? ", with a new optimizer" : "");
    fflush(s->options.out);
    wf_comm_at_files(wf_mesh_world(wf_par_mesh(s->par)), false);
    if (s->options.loaded)
        s->options.loaded(s->options.arg, c);
    report_numerics(s, c);
}

static wf_status load(wf_saving *s, const wf_par_checkpoint *c, wf_error *error)
{
    if (s->options.fits && s->options.fits(s->options.arg, c, error) != WF_OK)
        return error->code;
    if (s->trainer && s->options.fresh)
        return wf_par_checkpoint_load_fresh(s->trainer, c, error);
    return s->trainer ? wf_par_checkpoint_load(s->trainer, c, error)
                      : wf_par_checkpoint_load_model(s->par, s->model, c, error);
}

/* Checkpoints that a rank's process has opened: not all need to see the same files, and one may
   fail to read one. */
typedef struct opened {
    int64_t count, step[WF_RESUME_MOST];
    bool lacks; /* one whose error is not reported */
} opened;

static bool has_opened(const opened *o, int64_t step)
{
    for (int64_t i = 0; i < o->count; i++)
        if (o->step[i] == step)
            return true;
    return false;
}

/* Leaves out checkpoints that another rank has not; the lowest rank that could not open one
   reports why. */
static wf_status take_common(const wf_saving *s, wf_resume *r)
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
        wf_par_report_line(s->options.program, "rank %d: %s", rank, r->unopened.text);
    if (some && !count)
        return wf_fail(ctx, WF_EDATA,
                       "no checkpoint can be used by all processes: the directory has to be "
                       "the same on all hosts; --resume none begins anew");
    return wf_context_status(ctx);
}

/* Adds to the error of a checkpoint what the program knows of it, which goes to a terminal. */
static void explain(const wf_saving *s, const wf_par_checkpoint *c, wf_error *error)
{
    if (s->options.explain)
        s->options.explain(s->options.arg, c, error);
    wf_text_visible(error->text);
}

/* Loads the first of these that is valid; *step is what it has done. */
static wf_status load_first(wf_saving *s, const wf_resume *resume, int64_t *step)
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
        explain(s, c, &error);
        if (wf_context_status(ctx) != WF_OK || (error.code != WF_EDATA && error.code != WF_EIO))
            break;
        if (wf_saving_first(s) && i + 1 < resume->count)
            wf_par_report_line(s->options.program, "%s; trying %s", error.text,
                               wf_par_checkpoint_path(resume->checkpoint[i + 1]));
    }
    wf_saving_failed(
        s->result,
        true); /* maybe by a peer: the run's status says whether a file is to blame */
    return wf_fail(ctx, error.code, "%s", error.text);
}

wf_status wf_saving_resume(wf_saving *s, const wf_resume *resume, int64_t *step)
{
    wf_context *ctx = wf_par_context(s->par);
    wf_resume common = *resume;

    *step = 0;
    if (wf_context_status(ctx) == WF_OK && wf_launcher_detected().processes > 1 &&
        s->options.looks)
        take_common(s, &common);
    if (!common.count || wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    return load_first(s, &common, step);
}

unsigned wf_saving_requests(const wf_saving *s)
{
    double limit = s->options.seconds;
    bool late = limit > 0 && wf_saving_first(s) && now() - s->started >= limit;

    return (s->options.save.dir ? wf_signal_requests_now() : 0) |
           (late ? WF_SIGNAL_SAVE | WF_SIGNAL_STOP : 0);
}

void wf_saving_best(wf_saving *s, float loss)
{
    s->best_loss = loss;
    if (loss < FLT_MAX)
        snprintf(s->best_text, sizeof s->best_text, "%.9g", (double)loss);
}

void wf_saving_validated(wf_saving *s, float loss)
{
    if (!(loss < s->best_loss))
        return;
    wf_saving_best(s, loss);
    s->new_best = true;
}

/* Takes how a save has ended. An error of the communication is in the context. */
static wf_status heed(wf_saving *s, wf_status status, const wf_error *error)
{
    if (wf_saving_first(s) && status != WF_OK &&
        wf_context_status(wf_par_context(s->par)) == WF_OK)
        wf_par_report_line(s->options.program,
                           "no checkpoint was saved: %s; those from before stay", error->text);
    if (wf_context_status(wf_par_context(s->par)) == WF_OK) /* else by a peer, maybe */
        wf_saving_failed(s->result, status != WF_OK);
    return wf_context_status(wf_par_context(s->par));
}

/* Ends what is being written; then saves this step, and waits for it in the end. */
static wf_status save(wf_saving *s, wf_par_saver *saver, int64_t step, bool wait)
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

void wf_saving_finish(wf_saving *s)
{
    wf_error error = {WF_OK, ""};

    if (s->saver && wf_par_saver_busy(s->saver) &&
        wf_par_saver_finish(s->saver, &error) != WF_OK && wf_saving_first(s))
        wf_par_report_line(s->options.program,
                           "no checkpoint was saved: %s; those from before stay", error.text);
}

bool wf_saving_due(const wf_saving *s, int64_t step)
{
    const wf_saving_options *o = &s->options;

    return s->saver && ((o->interval && step % o->interval == 0) || step == o->steps);
}

wf_status wf_saving_step(wf_saving *s, int64_t step, unsigned requests, bool *stop)
{
    const wf_saving_options *o = &s->options;
    bool last = step == o->steps, leave = (requests & WF_SIGNAL_STOP) && !last;
    wf_error error = {WF_OK, ""};
    wf_status status = WF_OK;

    *stop = leave;
    if (s->best && s->new_best)
        status = save(s, s->best, step, true);
    s->new_best = false;
    if (s->saver && status == WF_OK && wf_par_saver_busy(s->saver) &&
        wf_par_saver_poll(s->saver, &error) != WF_OK)
        status = heed(s, error.code, &error);
    if (s->saver && status == WF_OK && (wf_saving_due(s, step) || (requests & WF_SIGNAL_SAVE)))
        status = save(s, s->saver, step, last || leave);
    if (first_of_process(s))
        wf_signal_requests_honoured(requests);
    wf_saving_preempted(s->result, leave);
    return status;
}
