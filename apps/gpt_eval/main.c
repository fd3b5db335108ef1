/* apps/gpt_eval/main.c - how well a model does: see gpt_eval --help. */
#include "apps/gpt_eval/choices.h"
#include "apps/gpt_eval/perplexity.h"
#include "apps/program.h"
#include <string.h>

enum { STANDARD_BATCH = 4 };

static const char help[] =
    "gpt_eval - how well a model foretells a text, on any mesh of ranks\n"
    "\n"
    "Usage: gpt_eval perplexity MODEL --data FILE [flags]\n"
    "       gpt_eval choices MODEL --requests FILE [flags]\n"
    "\n"
    "MODEL is a folder of Hugging Face, a GGUF file, a checkpoint of gpt_train, or a directory "
    "of\n"
    "these, of which the newest is taken. The numbers are the same, bit by bit, on --tp 1, "
    "2, 4\n"
    "or 8 (others say that they are not layout-exact), any --dp, threads and batch. Every "
    "token "
    "but\n"
    "the first is foretold once.\n"
    "\n"
    "  --data FILE              text, which becomes the model's tokens, or token ids (.idx, "
    ".bin);\n"
    "                           of ids with a loss mask those count that are trained on\n"
    "  --seq-length N           tokens of a window (default: the model's positions, at most "
    "1024)\n"
    "  --stride N               a window begins N tokens after the one before, and "
    "counts the\n"
    "                           tokens that are new: with less than --seq-length each has "
    "more before\n"
    "                           it, and it takes longer (default: --seq-length)\n"
    "  --requests FILE          lines of JSON: {\"request\": {\"context\": TEXT, "
    "\"continuation\": TEXT},\n"
    "                           \"doc_id\": N, \"label\": N}; those of one doc_id are the "
    "choices "
    "of a\n"
    "                           question, label (from 0) is the right one\n"
    "  --tokenizer PATH         not the tokenizer beside the model (see gpt_data --help)\n"
    "  --batch-size N           windows at once, of each copy (default: 4), or questions\n"
    "                           (default: 8, at most 64)\n"
    "  --dp N                   copies of the model that share out the windows (default: "
    "1)\n" APP_MODEL_RUN_HELP
    "  --json                   a line of JSON; of choices one for each request, too\n"
    "  --help, --version\n"
    "\n"
    "Of a text it prints nats a token, perplexity (e to them), and bits a byte of text, which "
    "alone can "
    "be\n"
    "compared between tokenizers. Of choices it prints how often the likeliest one is the "
    "right "
    "one (acc),\n"
    "how often the likeliest by its bytes is (acc_norm), and bits a byte of right ones.\n"
    "\n"
    "Examples\n"
    "  gpt_eval perplexity smollm2 --data book.txt\n"
    "  gpt_eval perplexity run --data ids.idx --seq-length 512 --stride 256 --tp 2 --json\n"
    "  gpt_eval choices smollm2 --requests arc_easy.jsonl --dp 2\n"
    "\n"
    "Exit status: 0; 1 out of memory, 2 for a mistake in the flags, 3 for a file.\n";

/* Holds both requests; is_choices says which one was made. */
typedef struct request {
    app_model_run run;
    app_perplexity_request perplexity;
    app_choices_request choices;
    bool asks, json, is_choices;
} request;

/* The command and its model. */
static wf_status take_command(request *q, int argc, char **argv, int at, wf_error *error)
{
    const char *command = at == argc ? "" : argv[at];

    q->is_choices = strcmp(command, "choices") == 0;
    if (!q->is_choices && strcmp(command, "perplexity") != 0)
        return wf_error_set(error, WF_EINVAL,
                            "%s: what there is to evaluate is perplexity and choices; see "
                            "gpt_eval --help",
                            at == argc ? "no command" : command);
    if (argc - at != 2)
        return wf_error_set(error, WF_EINVAL,
                            "%s: it takes one MODEL, a folder of Hugging Face or a checkpoint",
                            argc - at > 2 ? argv[at + 2] : "no MODEL");
    q->run.of.model = argv[at + 1];
    return WF_OK;
}

/* Flags of the one command beside the other would have no effect. */
static wf_status check(const request *q, wf_error *error)
{
    const app_perplexity_request *p = &q->perplexity;

    if (q->is_choices ? !q->choices.requests : !p->data)
        return wf_error_set(error, WF_EINVAL, "nothing to foretell: give --%s FILE",
                            q->is_choices ? "requests" : "data");
    if (!q->is_choices && q->choices.requests)
        return wf_error_set(error, WF_EINVAL, "--requests is of gpt_eval choices");
    if (q->is_choices && (p->data || p->seq_length || p->stride))
        return wf_error_set(error, WF_EINVAL,
                            "--data, --seq-length and --stride are of gpt_eval perplexity");
    return WF_OK;
}

static wf_status parse(int argc, char **argv, request *q, wf_error *error)
{
    app_perplexity_request *p = &q->perplexity;
    const wf_flag flags[] = {
        {"data", WF_FLAG_TEXT, &p->data, 0, 0, NULL, NULL, NULL},
        {"seq-length", WF_FLAG_COUNT, &p->seq_length, 1, 1 << 24, NULL, NULL, NULL},
        {"stride", WF_FLAG_COUNT, &p->stride, 1, 1 << 24, NULL, NULL, NULL},
        {"batch-size", WF_FLAG_COUNT, &p->batch, 1, 65536, NULL, NULL, NULL},
        {"requests", WF_FLAG_TEXT, &q->choices.requests, 0, 0, NULL, NULL, NULL},
        {"json", WF_FLAG_SWITCH, &q->json, 0, 0, NULL, NULL, NULL},
        {"help", WF_FLAG_SWITCH, &q->asks, 0, 0, NULL, NULL, NULL},
        APP_MODEL_RUN_FLAGS(&q->run),
        {NULL, WF_FLAG_TEXT, NULL, 0, 0, NULL, NULL, NULL}};
    int at;

    *q = (request){.run = APP_MODEL_RUN_STANDARD};
    if (wf_flags_read("gpt_eval", argc, argv, flags, &at, error) != WF_OK)
        return error->code;
    app_model_run_job(&q->run, flags);
    if (q->asks || take_command(q, argc, argv, at, error) != WF_OK || check(q, error) != WF_OK)
        return error->code;
    wf_job_add(q->run.job, "command", "%s", q->is_choices ? "choices" : "perplexity");
    q->choices.batch = p->batch;
    p->batch = p->batch ? p->batch : STANDARD_BATCH;
    p->run = q->choices.run = q->run;
    p->json = q->choices.json = q->json;
    return WF_OK;
}

int main(int argc, char **argv)
{
    wf_error error = {WF_OK, ""};
    request q;
    wf_status status;

    app_program_begin();
    if (app_program_version_asked("gpt_eval", argc, argv))
        return app_program_end("gpt_eval", 0);
    status = parse(argc, argv, &q, &error);
    if (status != WF_OK || q.asks)
        wf_launch_meet(q.run.job, &error);
    status = error.code;
    if (status == WF_OK && q.asks) {
        if (wf_launcher_detected().process <= 0)
            fputs(help, stdout);
        return app_program_end("gpt_eval", 0);
    }
    if (status == WF_OK)
        status = q.is_choices ? app_choices(&q.choices, &error)
                              : app_perplexity(&q.perplexity, &error);
    wf_job_free(q.run.job);
    fflush(stdout);
    if (status != WF_OK && wf_launcher_detected().process <= 0)
        app_program_error("gpt_eval", &error);
    return status == WF_OK ? app_program_end("gpt_eval", 0) : wf_par_exit_status(status);
}
