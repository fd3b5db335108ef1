/* apps/tools/gpt_check.c - the gradients, losses and updates of another trainer beside Weft's:
   see gpt_check --help. */
#include "apps/program.h"
#include "parallel/flag_names.h"
#include "parallel/program/recipe.h"
#include <string.h>
#include <weft/parallel/check/check.h>
#include <weft/weft.h>

enum { SAME = 0, DIFFERENT = 1, USAGE = 2 };

static const char usage[] =
    "gpt_check - find what is wrong with another trainer's gradients\n\n"
    "Usage: gpt_check MODEL --batch FILE --gradients DUMP [flags]\n"
    "       gpt_check MODEL --batch FILE --write FILE\n\n"
    "MODEL is a folder of Hugging Face, or a GGUF file: the weights before the step. FILE has "
    "the batch\n"
    "of the step as safetensors: input_ids [sequences, tokens], and labels (of each token "
    "itself, -100:\n"
    "not predicted) or loss_mask, position_ids or documents (of packed sequences), "
    "attention_mask,\n"
    "and of a mixture routed_experts. DUMP\n"
    "is a safetensors file, or a folder of such, with the gradient of each parameter by its "
    "Hugging Face\n"
    "name, and maybe \"loss\" and \"token_losses\". Weft computes the same in fp32 on one "
    "rank. "
    "A table\n"
    "shows what differs; where a known fault explains it, the fault is named. The hooks of\n"
    "weft_hooks (Python) write batch and dump.\n\n";

static const char examples[] =
    "\n  --help, --version\n\n"
    "Examples\n"
    "  weft check smollm2 --batch batch.safetensors --gradients dump.safetensors\n"
    "  weft check smollm2 --batch batch.safetensors --gradients dump --precision bf16 --tp 2 "
    "--dp "
    "4\n"
    "  weft check smollm2 --batch batch.safetensors --gradients dump.safetensors --clip 1 \\\n"
    "      --updated after.safetensors --lr 1e-4 --weight-decay 0.1\n"
    "  weft check smollm2 --batch batch.safetensors --write weft.safetensors\n\n"
    "Exit status: 0 equal, 1 different, 2 usage or bad input (a missing or an unknown name, a "
    "shape),\n"
    "3 a file that cannot be read or written\n";

typedef struct request {
    wf_check_options o;
    const char *precision, *decay;
    int64_t threads;
    bool json, all, partial, asks;
} request;

/* The flags, with their help. */
static int add_flags(request *q, wf_flag *f)
{
    const wf_flag flags[] = {
        {"batch", WF_FLAG_TEXT, &q->o.batch, 0, 0, NULL, NULL, "FILE the batch of the step"},
        {"gradients", WF_FLAG_TEXT, &q->o.gradients, 0, 0, NULL, NULL,
         "DUMP their gradients, before the optimizer's step"},
        {"updated", WF_FLAG_TEXT, &q->o.updated, 0, 0, NULL, NULL,
         "DUMP their weights after a first step, by the same names"},
        {"write", WF_FLAG_TEXT, &q->o.write, 0, 0, NULL, NULL,
         "FILE write Weft's gradients and losses"},
        {"precision", WF_FLAG_TEXT, &q->precision, 0, 0, NULL, NULL,
         "fp32|bf16|fp16 what they compute in: equal is within 1e-4, 0.06 or 0.02"},
        {"tolerance", WF_FLAG_REAL, &q->o.tolerance, 1e-7, 0.5, NULL, NULL,
         "X relative error of a gradient that counts as equal, instead of that; 0: that"},
        {"dp", WF_FLAG_COUNT, &q->o.dp, 1, 1 << 20, NULL, NULL,
         "N their data-parallel ranks, by which factors are named; 0: not known"},
        {"tp", WF_FLAG_COUNT, &q->o.tp, 1, 1 << 20, NULL, NULL,
         "N their tensor-parallel ranks"},
        {"micro-batches", WF_FLAG_COUNT, &q->o.micro_batches, 1, 1 << 20, NULL, NULL,
         "N their micro-batches of a step"},
        {"clip", WF_FLAG_REAL, &q->o.clip, 0, 1e30, NULL, NULL,
         "X the norm that the dumped gradients have been clipped to; 0: they have not"},
        {"optimizer", WF_FLAG_TEXT, &q->o.optimizer, 0, 0, NULL, NULL,
         "adamw|sgd of --updated"},
        wf_recipe_flag(WF_RECIPE_lr, &q->o.lr),
        wf_recipe_flag(WF_RECIPE_beta1, &q->o.beta1),
        wf_recipe_flag(WF_RECIPE_beta2, &q->o.beta2),
        wf_recipe_flag(WF_RECIPE_eps, &q->o.eps),
        wf_recipe_flag(WF_RECIPE_weight_decay, &q->o.weight_decay),
        {"decay", WF_FLAG_TEXT, &q->decay, 0, 0, NULL, NULL,
         "matrices|all|none parameters that decay"},
        {"partial", WF_FLAG_SWITCH, &q->partial, 0, 0, NULL, NULL,
         "compare what the dump has, and leave out what it has not"},
        {"threads", WF_FLAG_COUNT, &q->threads, 1, 4096, NULL, NULL,
         "N threads; 0: the machine's cores"},
        {"all", WF_FLAG_SWITCH, &q->all, 0, 0, NULL, NULL, "list equal parameters, too"},
        {"json", WF_FLAG_SWITCH, &q->json, 0, 0, NULL, NULL, "a line of JSON"},
        {"help", WF_FLAG_SWITCH, &q->asks, 0, 0, NULL, NULL, NULL},
        {NULL, WF_FLAG_TEXT, NULL, 0, 0, NULL, NULL, NULL}};

    memcpy(f, flags, sizeof flags);
    return (int)(sizeof flags / sizeof *flags);
}

static wf_status take_words(request *q, wf_error *error)
{
    static const char *const decay[] = {"matrices", "all", "none"};
    static const struct {
        const char *name;
        double tolerance;
    } precision[] = {{"fp32", 1e-4}, {"bf16", 0.06}, {"fp16", 0.02}};
    bool known = false, knows = false;

    for (int i = 0; i < 3; i++) {
        if (strcmp(q->precision, precision[i].name) == 0) {
            q->o.tolerance = q->o.tolerance > 0 ? q->o.tolerance : precision[i].tolerance;
            known = true;
        }
        if (strcmp(q->decay, decay[i]) == 0) {
            q->o.decay = (wf_check_decay)i;
            knows = true;
        }
    }
    if (!known)
        return wf_error_set(error, WF_EINVAL, "--precision %s is none of fp32, bf16 and fp16",
                            q->precision);
    if (!knows)
        return wf_error_set(error, WF_EINVAL, "--decay %s is none of matrices, all and none",
                            q->decay);
    if (q->o.optimizer && strcmp(q->o.optimizer, "adamw") != 0 &&
        strcmp(q->o.optimizer, "sgd") != 0)
        return wf_error_set(error, WF_EINVAL, "--optimizer %s is none of adamw and sgd",
                            q->o.optimizer);
    return WF_OK;
}

static wf_status check(request *q, int argc, char **argv, int at, wf_error *error)
{
    wf_topology machine;

    if (argc - at != 1)
        return wf_error_set(error, WF_EINVAL, "%s: it takes one MODEL; see gpt_check --help",
                            argc - at > 1 ? argv[at + 1] : "no MODEL");
    q->o.model = argv[at];
    if (!q->o.batch)
        return wf_error_set(error, WF_EINVAL, "no batch: give --batch FILE");
    if (!q->o.gradients && !q->o.write)
        return wf_error_set(error, WF_EINVAL,
                            "nothing to compare: give --gradients DUMP, or --write FILE");
    if (q->o.updated && (!q->o.gradients || q->o.lr <= 0))
        return wf_error_set(
            error, WF_EINVAL,
            "--updated needs --gradients, of which the update is made, and --lr");
    q->o.partial = q->partial;
    if (take_words(q, error) != WF_OK)
        return error->code;
    if (!q->threads && wf_topology_read(NULL, &machine, error) == WF_OK)
        q->threads = machine.cores > 0 ? machine.cores : 1;
    q->o.threads = (int)q->threads;
    return error->code;
}

static int run(const request *q, wf_error *error)
{
    wf_check_report report;
    int status = USAGE;

    if (wf_check_run(&q->o, &report, error) == WF_OK) {
        status = report.equal ? SAME : DIFFERENT;
        if (q->json)
            wf_check_json(stdout, &report, error);
        else
            wf_check_print(stdout, &report, q->all);
    }
    wf_check_free(&report);
    return status;
}

int main(int argc, char **argv)
{
    request q = {.o = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
                 .precision = "fp32",
                 .decay = "matrices"};
    wf_error error = {WF_OK, ""};
    wf_flag flags[32];
    int at, status = USAGE;

    app_program_begin();
    if (app_program_version_asked("gpt_check", argc, argv))
        return app_program_end("gpt_check", SAME);
    add_flags(&q, flags);
    wf_flags_report(wf_flags_find, flags);
    if (wf_flags_read("gpt_check", argc, argv, flags, &at, &error) == WF_OK && q.asks) {
        fputs(usage, stdout);
        wf_flags_help(stdout, flags);
        fputs(examples, stdout);
        return app_program_end("gpt_check", SAME);
    }
    if (error.code == WF_OK && check(&q, argc, argv, at, &error) == WF_OK)
        status = run(&q, &error);
    if (error.code == WF_OK)
        return app_program_end("gpt_check", status);
    fflush(stdout);
    wf_par_report_line("gpt_check", "%s", error.text);
    return error.code == WF_EIO ? 3 : USAGE;
}
