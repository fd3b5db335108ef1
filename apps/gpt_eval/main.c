/* apps/gpt_eval/main.c - how well a model does: see gpt_eval --help. */
#include "apps/gpt_eval/perplexity.h"
#include "apps/program.h"
#include <string.h>

static const char help[] =
    "gpt_eval - how well a model foretells a text, on any mesh of ranks\n"
    "\n"
    "Usage: gpt_eval perplexity MODEL --data FILE [flags]\n"
    "\n"
    "MODEL is a folder of Hugging Face, a GGUF file, a checkpoint of gpt_train, or a directory "
    "of\n"
    "these, of which the newest is taken. The numbers are the same, bit by bit, on any --tp, "
    "--dp,\n"
    "threads and batch. Every token but the first is foretold once.\n"
    "\n"
    "  --data FILE              text, which becomes the model's tokens, or token ids (.idx, "
    ".bin);\n"
    "                           of ids with a loss mask those count that are trained on\n"
    "  --seq-length N           tokens of a window (default: the model's positions, at most "
    "1024)\n"
    "  --stride N               a window begins so many tokens behind the one before, and "
    "counts the\n"
    "                           tokens that are new: with less than --seq-length each has "
    "more before\n"
    "                           it, and it takes longer (default: --seq-length)\n"
    "  --tokenizer PATH         not the tokenizer beside the model (see gpt_data --help)\n"
    "  --batch-size N           windows at once, of each copy (default: 4)\n"
    "  --dp N                   copies of the model that share out the windows (default: "
    "1)\n" APP_MODEL_RUN_HELP "  --json                   a line of JSON\n"
    "  --help, --version\n"
    "\n"
    "It prints nats a token, perplexity (e to them), and bits a byte of text, which alone can "
    "be\n"
    "compared between tokenizers.\n"
    "\n"
    "Examples\n"
    "  gpt_eval perplexity smollm2 --data book.txt\n"
    "  gpt_eval perplexity run --data ids.idx --seq-length 512 --stride 256 --tp 2 --json\n"
    "\n"
    "Exit status: 0; 1 out of memory, 2 for a mistake in the flags, 3 for a file.\n";

static wf_status parse(int argc, char **argv, app_perplexity_request *q, bool *asks,
                       wf_error *error)
{
    const app_flag flags[] = {
        {"data", APP_FLAG_TEXT, &q->data, 0, 0, NULL, NULL},
        {"seq-length", APP_FLAG_COUNT, &q->seq_length, 1, 1 << 24, NULL, NULL},
        {"stride", APP_FLAG_COUNT, &q->stride, 1, 1 << 24, NULL, NULL},
        {"batch-size", APP_FLAG_COUNT, &q->batch, 1, 65536, NULL, NULL},
        {"json", APP_FLAG_SWITCH, &q->json, 0, 0, NULL, NULL},
        {"help", APP_FLAG_SWITCH, asks, 0, 0, NULL, NULL},
        APP_MODEL_RUN_FLAGS(&q->run),
        {NULL, APP_FLAG_TEXT, NULL, 0, 0, NULL, NULL}};
    int at;

    *q = (app_perplexity_request){.run = APP_MODEL_RUN_STANDARD, .batch = 4};
    if (app_flags_read("gpt_eval", argc, argv, flags, &at, error) != WF_OK || *asks)
        return error->code;
    if (at == argc || strcmp(argv[at], "perplexity") != 0)
        return wf_error_set(error, WF_EINVAL,
                            "%s: what there is to evaluate is perplexity; see "
                            "gpt_eval --help",
                            at == argc ? "no command" : argv[at]);
    if (argc - at != 2)
        return wf_error_set(error, WF_EINVAL,
                            "%s: it takes one MODEL, a folder of Hugging Face or a checkpoint",
                            argc - at > 2 ? argv[at + 2] : "no MODEL");
    if (!q->data)
        return wf_error_set(error, WF_EINVAL, "nothing to foretell: give --data FILE");
    q->run.model = argv[at + 1];
    return WF_OK;
}

int main(int argc, char **argv)
{
    wf_error error = {WF_OK, ""};
    app_perplexity_request q;
    bool asks = false;
    wf_status status;

    app_program_begin();
    if (app_program_version_asked("gpt_eval", argc, argv))
        return app_program_end("gpt_eval", 0);
    status = parse(argc, argv, &q, &asks, &error);
    if (status == WF_OK && asks) {
        fputs(help, stdout);
        return app_program_end("gpt_eval", 0);
    }
    if (status == WF_OK)
        status = app_perplexity(&q, &error);
    fflush(stdout);
    if (status != WF_OK && wf_launcher_detected().process <= 0)
        fprintf(stderr, "gpt_eval: %s\n", error.text);
    return status == WF_OK ? app_program_end("gpt_eval", 0) : wf_par_exit_status(status);
}
