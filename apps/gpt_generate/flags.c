/* apps/gpt_generate/flags.c - the command line of gpt_generate. */
#include "apps/gpt_generate/flags.h"
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char app_generate_help[] =
    "gpt_generate - text that goes on from prompts, by a model on any mesh of ranks\n"
    "\n"
    "Usage: gpt_generate MODEL --prompt TEXT [flags]\n"
    "\n"
    "MODEL is a folder of Hugging Face, a checkpoint of gpt_train, or a directory of these, of "
    "which\n"
    "the newest is taken. A text is the same, bit by bit, whatever the batch, the chunks of "
    "its\n"
    "prompt, threads, --tp and --dp; its log probabilities are those that gpt_train has of "
    "it.\n"
    "\n"
    "  --prompt TEXT            what is continued\n"
    "  --prompts FILE           or a file of JSON lines: {\"prompt\": TEXT}, {\"ids\": [..]}\n"
    "  --chat                   prompts are what a user says, and the model answers: by its "
    "chat template;\n"
    "                           lines may be {\"messages\": [{\"role\": .., \"content\": ..}, "
    "..]} too\n"
    "  --system TEXT            with --chat: what the system says first\n"
    "  --chat-template NAME     not the one beside the model: chatml, llama3, .. (see gpt_data "
    "--help)\n"
    "  --tokenizer PATH         not the tokenizer beside the model (see gpt_data --help)\n"
    "  --max-new-tokens N       tokens of each text, at most (default: 128)\n"
    "  --n N                    texts of each prompt (default: 1)\n"
    "\n"
    "Sampling\n"
    "  --temperature X          0 takes the likeliest token; larger is more varied (default: "
    "0)\n"
    "  --top-k N                of the N likeliest tokens only; 0: of all (default: 0)\n"
    "  --top-p X                of the likeliest that have probability X together (default: "
    "1)\n"
    "  --min-p X                of those at least X times as likely as the likeliest (default: "
    "0)\n"
    "  --repetition-penalty X   divides logits of tokens that the text has (default: 1)\n"
    "  --presence-penalty X     taken from logits of tokens that were generated (default: 0)\n"
    "  --frequency-penalty X    and that for each time that they were (default: 0)\n"
    "  --seed N                 all random numbers follow from it, and from the number of the "
    "text\n"
    "                           (default: 1)\n"
    "  --stop TEXT              ends a text, and is no part of it; may be given 16 times\n"
    "  --ignore-eos             the model's end of text does not end one\n"
    "\n"
    "What is printed\n"
    "  --json                   a line of JSON for each text\n"
    "  --logprobs N             with --json: log probabilities, and those of the N likeliest "
    "tokens\n"
    "  --echo                   the prompt too, with --logprobs its log probabilities\n"
    "  --plan                   memory of a rank, and nothing is loaded\n"
    "\n"
    "Ranks\n"
    "  --tp N                   ranks that share a model (default: 1)\n"
    "  --dp N                   copies of the model that share out the prompts (default: 1)\n"
    "  --threads-per-rank N     (default: the machine's cores, shared out)\n"
    "  --batch-size N           texts at once, of each copy (default: 8)\n"
    "  --prefill-chunk N        tokens of a prompt that are computed together (default: 512)\n"
    "  --dtype fp32|bf16        what parameters and results are stored as (default: fp32)\n"
    "  --help, --version\n"
    "\n"
    "Examples\n"
    "  gpt_generate smollm2 --prompt \"The capital of France is\" --max-new-tokens 8\n"
    "  gpt_generate smollm2 --chat --prompt \"What is the capital of France?\"\n"
    "  gpt_generate run --prompt \"Once\" --temperature 0.8 --top-p 0.95 --seed 3\n"
    "  gpt_generate smollm2 --prompts p.jsonl --json --logprobs 0 --tp 2 --batch-size 16\n"
    "\n"
    "Exit status: 0; 1 out of memory, 2 for a mistake in the flags, 3 for a file.\n";

typedef enum kind { TEXT, COUNT, REAL, SWITCH } kind;

/* A flag: where its value goes, and which it may be. */
typedef struct flag {
    const char *name;
    kind kind;
    void *value;
    double least, most;
} flag;

static wf_status take(const flag *f, const char *text, wf_error *error)
{
    char *end = NULL;
    double real;
    long long count;

    switch (f->kind) {
    case TEXT:
        *(const char **)f->value = text;
        return WF_OK;
    case SWITCH:
        *(bool *)f->value = true;
        return WF_OK;
    case COUNT:
        count = strtoll(text, &end, 10);
        if (end == text || *end || (double)count < f->least || (double)count > f->most)
            return wf_error_set(error, WF_EINVAL, "--%s %s: a whole number from %.0f to %.0f",
                                f->name, text, f->least, f->most);
        *(int64_t *)f->value = count;
        return WF_OK;
    default:
        real = strtod(text, &end);
        if (end == text || *end || !(real >= f->least && real <= f->most))
            return wf_error_set(error, WF_EINVAL, "--%s %s: a number from %g to %g", f->name,
                                text, f->least, f->most);
        *(double *)f->value = real;
        return WF_OK;
    }
}

static wf_status check(const app_generate_request *q, wf_error *error)
{
    if (!q->model)
        return wf_error_set(error, WF_EINVAL,
                            "no MODEL was given: a folder of Hugging Face or a checkpoint; see "
                            "gpt_generate --help");
    if (!q->plan && !q->prompt == !q->prompts)
        return wf_error_set(
            error, WF_EINVAL, "%s",
            q->prompt ? "--prompt and --prompts: give one of them"
                      : "nothing to go on from: give --prompt TEXT or --prompts FILE");
    if (strcmp(q->dtype, "fp32") != 0 && strcmp(q->dtype, "bf16") != 0)
        return wf_error_set(error, WF_EINVAL, "--dtype %s is none of fp32 and bf16", q->dtype);
    if ((q->system || q->chat_template) && !q->chat)
        return wf_error_set(error, WF_EINVAL, "--%s is for conversations: give --chat too",
                            q->system ? "system" : "chat-template");
    if (q->logprobs >= 0 && !q->json)
        return wf_error_set(error, WF_EINVAL,
                            "--logprobs are printed as JSON: give --json too");
    if (q->sampling.temperature == 0 &&
        (q->sampling.top_k || q->sampling.top_p < 1 || q->sampling.min_p > 0))
        return wf_error_set(
            error, WF_EINVAL,
            "--temperature 0 takes the likeliest token, so --top-k, --top-p and "
            "--min-p have no effect: give a --temperature above 0");
    if (q->n > 1 && q->sampling.temperature == 0)
        return wf_error_set(error, WF_EINVAL,
                            "--temperature 0 makes %lld times the same text: give a "
                            "--temperature above 0, or drop --n",
                            (long long)q->n);
    return WF_OK;
}

enum { FLAGS = 29 };

/* All flags, with places in the request. */
static void list_flags(app_generate_request *q, const char **stop, flag list[FLAGS])
{
    app_sampling *s = &q->sampling;
    const flag flags[FLAGS] = {{"prompt", TEXT, &q->prompt, 0, 0},
                               {"prompts", TEXT, &q->prompts, 0, 0},
                               {"chat", SWITCH, &q->chat, 0, 0},
                               {"system", TEXT, &q->system, 0, 0},
                               {"chat-template", TEXT, &q->chat_template, 0, 0},
                               {"tokenizer", TEXT, &q->tokenizer, 0, 0},
                               {"max-new-tokens", COUNT, &q->most, 1, 1 << 24},
                               {"n", COUNT, &q->n, 1, 1 << 20},
                               {"temperature", REAL, &s->temperature, 0, 100},
                               {"top-k", COUNT, &s->top_k, 0, 1 << 30},
                               {"top-p", REAL, &s->top_p, 1e-9, 1},
                               {"min-p", REAL, &s->min_p, 0, 1},
                               {"repetition-penalty", REAL, &s->repetition_penalty, 1e-3, 1e3},
                               {"presence-penalty", REAL, &s->presence_penalty, -100, 100},
                               {"frequency-penalty", REAL, &s->frequency_penalty, -100, 100},
                               {"seed", COUNT, &q->seed, 0, 9e18},
                               {"stop", TEXT, stop, 0, 0},
                               {"ignore-eos", SWITCH, &q->ignore_eos, 0, 0},
                               {"json", SWITCH, &q->json, 0, 0},
                               {"logprobs", COUNT, &q->logprobs, 0, APP_GENERATE_MOST_TOP},
                               {"echo", SWITCH, &q->echo, 0, 0},
                               {"plan", SWITCH, &q->plan, 0, 0},
                               {"tp", COUNT, &q->tp, 1, 4096},
                               {"dp", COUNT, &q->dp, 1, 4096},
                               {"threads-per-rank", COUNT, &q->threads, 1, 4096},
                               {"batch-size", COUNT, &q->batch, 1, 65536},
                               {"prefill-chunk", COUNT, &q->chunk, 1, 1 << 20},
                               {"dtype", TEXT, &q->dtype, 0, 0},
                               {"help", SWITCH, &q->help, 0, 0}};

    memcpy(list, flags, sizeof flags);
}

static wf_status take_stop(app_generate_request *q, const char *stop, wf_error *error)
{
    if (!*stop || q->n_stops == APP_GENERATE_STOPS)
        return wf_error_set(error, WF_EINVAL, "--stop: %s",
                            *stop ? "16 of them at most" : "the text is empty");
    q->stops[q->n_stops++] = stop;
    return WF_OK;
}

wf_status app_generate_parse(int argc, char **argv, app_generate_request *q, wf_error *error)
{
    const char *stop = NULL;
    flag flags[FLAGS];
    struct option options[FLAGS + 1] = {{NULL, 0, NULL, 0}};
    wf_status status = WF_OK;
    int c, at = 0;

    *q = (app_generate_request){.most = 128,
                                .n = 1,
                                .seed = 1,
                                .logprobs = -1,
                                .batch = 8,
                                .chunk = 512,
                                .tp = 1,
                                .dp = 1,
                                .dtype = "fp32",
                                .sampling = {.repetition_penalty = 1, .top_p = 1}};
    list_flags(q, &stop, flags);
    for (int i = 0; i < FLAGS; i++)
        options[i] = (struct option){
            flags[i].name, flags[i].kind == SWITCH ? no_argument : required_argument, NULL, 0};
    opterr = 0;
    while (status == WF_OK && (c = getopt_long(argc, argv, "", options, &at)) != -1) {
        if (c != 0)
            return wf_error_set(error, WF_EINVAL,
                                "%s is no flag, or lacks its value; see gpt_generate --help",
                                argv[optind - 1]);
        status = take(&flags[at], optarg, error);
        if (status == WF_OK && stop)
            status = take_stop(q, stop, error);
        stop = NULL;
    }
    if (status != WF_OK || q->help)
        return status;
    if (argc - optind > 1)
        return wf_error_set(error, WF_EINVAL, "%s: one MODEL only, which is %s",
                            argv[optind + 1], argv[optind]);
    q->model = optind < argc ? argv[optind] : NULL;
    return check(q, error);
}
