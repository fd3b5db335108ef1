/*
 * apps/tools/gpt_export.c - writes a model, of Hugging Face or of a checkpoint, as transformers
 * or llama.cpp load it: see gpt_export --help.
 */
#include "core/files/prepare.h"
#include "parallel/generate/model.h"
#include "apps/options/options.h"
#include "apps/program.h"
#include "apps/tools/export_folder.h"
#include "apps/tools/export_help.h"
#include "apps/tools/gguf_export.h"
#include "apps/tools/gguf_import.h"
#include "parallel/program/unknown_flag.h"
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <weft/weft.h>

enum { MOST_EXPERTS = 65536, USUAL_TOP_K = 2 };

typedef struct job {
    const char *from, *to, *dtype; /* to NULL: no folder is written; dtype NULL: f32 */
    app_gguf_export gguf;
    bool merge;     /* adapters into the weights that they adapt */
    bool average;   /* the moving average of a checkpoint's weights */
    bool overwrite; /* replace a model that is there already */
    int ranks;
    int experts, top_k; /* a dense model becomes a mixture; experts 0: it does not */
    wf_gen_model source;
} job;

/* Files of weights: one process goes through them, a tensor at a time. What a GGUF file says
   beside weights lies in the folder before they do. */
static wf_status convert(wf_context *ctx, const job *j, const char *part, wf_error *error)
{
    const wf_gen_model *source = &j->source;
    bool none = j->gguf.tokenizer && strcmp(j->gguf.tokenizer, "none") == 0;
    wf_nn_gpt_config config = source->config;
    wf_nn_gpt *model;

    if (j->experts && wf_par_pretrained_upcycled(&source->config, j->experts, j->top_k, &config,
                                                 error) != WF_OK)
        return error->code;
    model = wf_nn_gpt_new(ctx, &config);
    if (!model)
        return wf_error_set(error, wf_context_status(ctx), "%s", wf_context_error(ctx)->text);
    if (!source->is_gguf ||
        app_gguf_import(source->path, &source->config, part, !none, error) == WF_OK)
        wf_par_pretrained_convert(model, source->path, part, j->dtype,
                                  source->is_gguf ? part : source->like, error);
    wf_nn_free(&model->base);
    return error->code;
}

/* A checkpoint, by all ranks. */
static wf_status export_checkpoint(wf_par *par, const job *j, const char *part, wf_error *error)
{
    wf_nn_gpt *model = wf_gen_model_load(&j->source, par, false);
    const char *like = *j->source.like ? j->source.like : NULL;
    const char *base = j->source.base
                           ? j->source.base
                           : wf_par_checkpoint_option(j->source.checkpoint, WF_PAR_SAVED_BASE);
    wf_status status;

    if (model && j->source.lora.rank && !j->merge)
        wf_par_lora_save(par, model, &j->source.lora, part, base && *base ? base : NULL, like);
    else if (model && wf_par_lora_merge(par, model) == WF_OK)
        wf_par_pretrained_save(par, model, part, j->dtype, like);
    status = wf_context_status(wf_par_context(par));
    if (status != WF_OK)
        wf_error_set(error, status, "%s", wf_context_error(wf_par_context(par))->text);
    if (model)
        wf_nn_free(&model->base);
    return status;
}

/* Opens the folder to write to: the first rank makes it, and sends its name to all others. */
static wf_status export_folder(wf_par *par, const job *j, bool first, wf_error *error)
{
    app_export_folder folder = {.fd = -1, .above = -1, .part_fd = -1};
    wf_comm *world = wf_mesh_world(wf_par_mesh(par));

    if (first)
        app_export_folder_begin(&folder, j->to, error);
    if (error->code == WF_OK)
        wf_broadcast(world, 1, 0, folder.part, sizeof folder.part, error);
    if (error->code == WF_OK && j->source.checkpoint)
        export_checkpoint(par, j, folder.part, error);
    else if (error->code == WF_OK && first)
        convert(wf_par_context(par), j, folder.part, error);
    if (error->code == WF_OK && first)
        app_export_folder_publish(&folder, error);
    app_export_folder_close(&folder);
    return error->code;
}

static wf_status export_rank(wf_rank *rank, void *arg)
{
    const job *j = arg;
    const wf_par_options options = {
        .dp = j->ranks, .seed = j->source.seed, .base_dtype = j->source.nf4 ? WF_NF4 : WF_F32};
    wf_par *par = wf_par_open(rank, &options, &rank->error);
    wf_status status = WF_OK;

    if (!par)
        return rank->error.code;
    if (j->to)
        status = export_folder(par, j, rank->index == 0, &rank->error);
    if (status == WF_OK && j->gguf.file && rank->index == 0)
        status = app_gguf_export_write(&j->gguf, &j->source, wf_par_context(par), &rank->error);
    wf_par_close(par);
    return status;
}

static int count_of(const char *text, long most)
{
    char *end;
    long n = strtol(text, &end, 10);

    return end == text || *end || n < 1 || n > most ? 0 : (int)n;
}

/* Returns a number of experts, -1 where the text is none. */
static int expert_count(const char *text)
{
    int n = count_of(text, MOST_EXPERTS);

    return n ? n : -1;
}

/* The exit status, 2, of flags that cannot be. */
static int refuse(const char *format, ...) WF_PRINTF(1, 2);

static int refuse(const char *format, ...)
{
    va_list more;

    va_start(more, format);
    fputs("gpt_export: ", stderr);
    vfprintf(stderr, format, more);
    fputc('\n', stderr);
    va_end(more);
    return 2;
}

/* 0, or the exit status of folders and flags that do not go together. */
static int check(const job *j)
{
    wf_error error = {WF_OK, ""};

    if (j->from && j->to && !j->gguf.file && j->gguf.tokenizer && wf_par_gguf_there(j->from)) {
        if (strcmp(j->gguf.tokenizer, "none") != 0)
            return refuse(
                "--tokenizer %s: a folder that is made of a GGUF file gets the file's "
                "own, or with --tokenizer none no one",
                j->gguf.tokenizer);
    } else if (app_gguf_export_check(&j->gguf, &error) != WF_OK) {
        return refuse("%s", error.text);
    }
    if (!j->from || !(j->to || j->gguf.file))
        return refuse(
            "it takes a model, FROM, and a folder, TO, or FROM and --gguf FILE; see gpt_export "
            "--help");
    if (j->to && wf_gen_model_named_gguf(j->to))
        return refuse("%s is the name of a GGUF file, and TO is a folder: give --gguf %s",
                      j->to, j->to);
    if (!*j->from || (j->to && !*j->to))
        return refuse("the name of folder %s is empty", *j->from ? "TO" : "FROM");
    if (j->dtype && !j->to)
        return refuse("--dtype is of folder TO, and there is none: --gguf-type is of the file");
    if (j->dtype && !app_export_has_type(j->dtype))
        return refuse("--dtype %s is none of%s and nf4", j->dtype, app_export_types(", ").text);
    return 0;
}

/* The exit status where there is nothing more to do, or -1. */
static int read_command_line(int argc, char **argv, job *j)
{
    static const struct option flags[] = {{"dtype", required_argument, NULL, 'd'},
                                          {"gguf", required_argument, NULL, 'g'},
                                          {"gguf-type", required_argument, NULL, 'q'},
                                          {"tokenizer", required_argument, NULL, 't'},
                                          {"ranks", required_argument, NULL, 'r'},
                                          {"merge", no_argument, NULL, 'm'},
                                          {"ema", no_argument, NULL, 'e'},
                                          {"base", required_argument, NULL, 'b'},
                                          {"experts", required_argument, NULL, 'x'},
                                          {"top-k", required_argument, NULL, 'k'},
                                          {"overwrite", no_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    wf_error error = {WF_OK, ""};
    int c, wrong;

    opterr = 0;
    while ((c = getopt_long(argc, argv, "", flags, NULL)) != -1) {
        if (c == 'h') {
            app_export_help();
            return 0;
        }
        if (c == 'd')
            j->dtype = optarg;
        else if (c == 'g')
            j->gguf.file = optarg;
        else if (c == 'q')
            j->gguf.type = optarg;
        else if (c == 't')
            j->gguf.tokenizer = optarg;
        else if (c == 'm')
            j->merge = true;
        else if (c == 'e')
            j->average = true;
        else if (c == 'b')
            j->source.base = optarg;
        else if (c == 'o')
            j->overwrite = j->gguf.overwrite = true;
        else if (c == 'x' || c == 'k')
            *(c == 'x' ? &j->experts : &j->top_k) = expert_count(optarg);
        else if (c != 'r') {
            wf_flag_refused("gpt_export", argc, argv, flags, &error);
            return refuse("%s", error.text);
        } else if (!(j->ranks = count_of(optarg, WF_MAX_RANKS)))
            return refuse("--ranks %s is no number from 1 to %d", optarg, WF_MAX_RANKS);
    }
    if (j->experts < 0 || j->top_k < 0)
        return refuse("--experts and --top-k are numbers from 1 to %d", MOST_EXPERTS);
    if (argc - optind > 2)
        return refuse("%s: it takes a model, FROM, and a folder, TO; see gpt_export --help",
                      argv[optind + 2]);
    j->from = argc - optind > 0 ? argv[optind] : NULL;
    j->to = argc - optind > 1 ? argv[optind + 1] : NULL;
    wrong = check(j);
    return wrong ? wrong : -1;
}

static int exit_status(wf_status status)
{
    if (status == WF_OK)
        return 0;
    if (status == WF_EINVAL || status == WF_EUNSUPPORTED)
        return 2;
    return status == WF_EIO || status == WF_EDATA ? 3 : 1;
}

static bool same_folder(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && wf_same_file(&x, &y);
}

/* Checks that the target is neither the source nor another checkpoint. */
static wf_status check_target(const job *j, wf_error *error)
{
    const wf_par_checkpoint *checkpoint = j->source.checkpoint;
    const char *read = checkpoint ? wf_par_checkpoint_path(checkpoint) : j->from;
    char index[4096];
    struct stat s;

    if (!j->to)
        return WF_OK;
    snprintf(index, sizeof index, "%.4000s/index.json", j->to);
    if (same_folder(j->from, j->to) || same_folder(read, j->to))
        return wf_error_set(
            error, WF_EINVAL,
            "%s is what is read, and would be written over: name another folder", j->to);
    if (lstat(index, &s) == 0)
        return wf_error_set(
            error, WF_EINVAL,
            "%s is a checkpoint, and would be written over: name another folder", j->to);
    return app_export_folder_check(j->to, j->overwrite, error);
}

/* Checks flags of adapters, which are for a run that has some; a target that cannot store them
   is refused. */
static wf_status check_adapters(const job *j, wf_error *error)
{
    bool adapted = j->source.lora.rank > 0;

    if (!adapted && (j->merge || j->source.base))
        return wf_error_set(error, WF_EINVAL, "%s has no adapters; drop %s", j->from,
                            j->merge ? "--merge" : "--base");
    if (j->average && (!j->source.checkpoint || j->gguf.file))
        return wf_error_set(error, WF_EINVAL,
                            "--ema is of a checkpoint that becomes a folder: %s",
                            j->gguf.file ? "a GGUF file is made of that folder"
                                         : "FROM is a model's folder or file");
    if (adapted && j->gguf.file)
        return wf_error_set(
            error, WF_EINVAL,
            "%s has adapters alone, and a GGUF file has a whole model: export it "
            "with --merge to a folder, and that with --gguf",
            j->from);
    if (j->experts && (j->source.checkpoint || j->gguf.file))
        return wf_error_set(error, WF_EINVAL,
                            "--experts is of a folder or a GGUF file that becomes a folder: %s",
                            j->gguf.file ? "drop --gguf, and export that folder with it"
                                         : "export the checkpoint to one first");
    if (j->source.checkpoint && j->dtype && strcmp(j->dtype, "nf4") == 0)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "--dtype nf4 is of folders: export %s to one, and that to another",
                            j->from);
    if (adapted && !j->merge && j->dtype)
        return wf_error_set(error, WF_EINVAL,
                            "adapters are written as f32; --dtype is for --merge");
    return WF_OK;
}

static wf_status run(job *j, wf_error *error)
{
    const char *base = j->source.base;
    wf_status status = wf_gen_model_open(j->from, app_options_saved_model, &j->source, error);

    if (j->experts && !j->top_k)
        j->top_k = j->experts < USUAL_TOP_K ? j->experts : USUAL_TOP_K;
    j->source.base = base;
    j->source.average = j->average;
    if (status == WF_OK)
        status = check_adapters(j, error);
    if (status == WF_OK)
        status = check_target(j, error);
    if (status == WF_OK)
        status = wf_launch(&(wf_launch_options){.ranks = j->ranks}, export_rank, j, error);
    wf_gen_model_close(&j->source);
    return status;
}

int main(int argc, char **argv)
{
    const wf_launcher launcher = wf_launcher_detected();
    wf_error error = {WF_OK, ""};
    job j = {.ranks = launcher.processes > 1 ? launcher.processes : 1};
    wf_status status;
    int done;

    app_program_begin();
    if (app_program_version_asked("gpt_export", argc, argv))
        return app_program_end("gpt_export", 0);
    done = read_command_line(argc, argv, &j);
    if (done >= 0)
        return done ? done : app_program_end("gpt_export", 0);
    status = run(&j, &error);
    if (status != WF_OK && launcher.process <= 0)
        app_program_error("gpt_export", &error);
    return exit_status(status);
}
