/* apps/gpt_export.c - writes a model as transformers load it: see gpt_export --help. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

typedef struct job {
    const char *from, *to, *dtype;
    wf_nn_gpt_config config;
} job;

static void help(FILE *out)
{
    fputs(
        "gpt_export - write a model as transformers load it\n\n"
        "Usage: gpt_export FROM TO [--dtype f32|bf16|f16]\n\n"
        "  FROM   a folder with config.json and model.safetensors, or several files and their\n"
        "         index\n"
        "  TO     a folder, made where it is missing: config.json and one model.safetensors\n"
        "  --dtype NAME  type of the numbers (default: f32); rounded to the nearest, even in "
        "a\n"
        "                tie\n"
        "  --help        print this help\n\n"
        "Exit status: 0 done; 1 out of memory; 2 flags; 3 a file that cannot be read or\n"
        "written, or is damaged\n",
        out);
}

static wf_status export_rank(wf_rank *rank, void *arg)
{
    const job *j = arg;
    const wf_par_options options = {.tp = 1, .dp = 1};
    wf_par *par = wf_par_open(rank, &options, &rank->error);
    wf_nn_gpt *model;
    wf_status status;

    if (!par)
        return rank->error.code;
    model = wf_nn_gpt_new(wf_par_context(par), &j->config);
    if (model && wf_par_plan(par, &model->base, wf_par_gpt_plan) == WF_OK &&
        wf_par_materialize(par, &model->base) == WF_OK &&
        wf_par_pretrained_load(par, model, j->from) == WF_OK)
        wf_par_pretrained_save(par, model, j->to, j->dtype);
    status = wf_context_status(wf_par_context(par));
    if (status != WF_OK)
        wf_error_set(&rank->error, status, "%s", wf_context_error(wf_par_context(par))->text);
    if (model)
        wf_nn_free(&model->base);
    wf_par_close(par);
    return status;
}

/* The exit status where there is nothing more to do, or -1. */
static int read_command_line(int argc, char **argv, job *j)
{
    static const struct option flags[] = {{"dtype", required_argument, NULL, 'd'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", flags, NULL)) != -1) {
        if (c == 'h') {
            help(stdout);
            return 0;
        }
        if (c != 'd')
            return 2;
        j->dtype = optarg;
    }
    if (argc - optind != 2) {
        help(stderr);
        return 2;
    }
    j->from = argv[optind];
    j->to = argv[optind + 1];
    return -1;
}

static int exit_status(wf_status status)
{
    if (status == WF_OK)
        return 0;
    if (status == WF_EINVAL || status == WF_EUNSUPPORTED)
        return 2;
    return status == WF_EIO || status == WF_EDATA ? 3 : 1;
}

int main(int argc, char **argv)
{
    wf_error error = {WF_OK, ""};
    job j = {.dtype = "f32"};
    int done = read_command_line(argc, argv, &j);
    wf_status status;

    if (done >= 0)
        return done;
    status = wf_par_pretrained_config(j.from, &j.config, &error);
    if (status == WF_OK)
        status = wf_launch(&(wf_launch_options){.ranks = 1}, export_rank, &j, &error);
    if (status != WF_OK)
        fprintf(stderr, "gpt_export: %s\n", error.text);
    return exit_status(status);
}
