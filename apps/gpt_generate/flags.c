/* apps/gpt_generate/flags.c - the command line of gpt_generate. */
#include "apps/gpt_generate/flags.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const app_generate_help[] = {
    "gpt_generate - text generated from prompts, by a model on any mesh of ranks\n"
    "\n"
    "Usage: gpt_generate MODEL --prompt TEXT [flags]\n"
    "\n"
    "MODEL is a folder of Hugging Face, a checkpoint of gpt_train, or a directory of these, of "
    "which\n"
    "the newest is taken. A text is the same, bit by bit, whatever the batch, the chunks of "
    "its\n"
    "prompt, threads, --dp, and --tp 1, 2, 4 or 8 (others say that they are not "
    "layout-exact);\n"
    "its log probabilities are those that gpt_train has of it.\n"
    "\n"
    "  --prompt TEXT            what is continued\n"
    "  --prompts FILE           or a file of JSON lines: {\"prompt\": TEXT}, {\"ids\": [..]}\n"
    "  --chat                   prompts are what a user says, and the model answers: by its "
    "chat template;\n"
    "                           lines may be {\"messages\": [{\"role\": .., \"content\": ..}, "
    "..]} too\n"
    "  --system TEXT            with --chat: what the system says first\n"
    "  --chat-template NAME     not the one beside the model: chatml, llama3, .., or a file of "
    "Jinja\n"
    "  --chat-template-kwargs JSON  variables of the template: '{\"enable_thinking\": false}'\n"
    "  --ignore-fields NAMES    with --chat: fields of lines and messages to leave out, with "
    "commas between\n"
    "  --tokenizer PATH         not the tokenizer beside the model (see gpt_data --help)\n"
    "  --max-new-tokens N       tokens of each text, at most (default: 128)\n"
    "  --n N                    texts of each prompt (default: 1)\n"
    "\n",
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
    "  --dp N                   copies of the model that share out the prompts (default: 1)\n"
    "  --batch-size N           texts at once, of each copy (default: 8)\n"
    "  --prefill-chunk N        tokens of a prompt that are computed together (default: "
    "512)\n"
    "  --cuda-graph on|off      with --device cuda: launch all ops of a token at once "
    "(default: on\n"
    "                           with --tp 1)\n" APP_MODEL_RUN_HELP "  --help, --version\n"
    "\n"
    "Examples\n"
    "  gpt_generate smollm2 --prompt \"The capital of France is\" --max-new-tokens 8\n"
    "  gpt_generate smollm2 --chat --prompt \"What is the capital of France?\"\n"
    "  gpt_generate run --prompt \"Once\" --temperature 0.8 --top-p 0.95 --seed 3\n"
    "  gpt_generate smollm2 --prompts p.jsonl --json --logprobs 0 --tp 2 --batch-size 16\n"
    "\n"
    "Exit status: 0; 1 out of memory, 2 for a mistake in the flags, 3 for a file.\n",
    NULL};

static wf_status check(const app_generate_request *q, wf_error *error)
{
    if (!q->run.of.model)
        return wf_error_set(error, WF_EINVAL,
                            "no MODEL was given: a folder of Hugging Face or a checkpoint; see "
                            "gpt_generate --help");
    if (!q->plan && !q->prompt == !q->prompts)
        return wf_error_set(error, WF_EINVAL, "%s",
                            q->prompt
                                ? "--prompt and --prompts: give one of them"
                                : "nothing to continue: give --prompt TEXT or --prompts FILE");
    if ((q->system || q->chat_template || q->chat_variables || q->ignored_fields) && !q->chat)
        return wf_error_set(error, WF_EINVAL, "--%s is for conversations: give --chat too",
                            q->system           ? "system"
                            : q->chat_template  ? "chat-template"
                            : q->chat_variables ? "chat-template-kwargs"
                                                : "ignore-fields");
    if (q->logprobs >= 0 && !q->json)
        return wf_error_set(error, WF_EINVAL,
                            "--logprobs are printed as JSON: give --json too");
    if (q->sampling.temperature == 0 &&
        (q->sampling.top_k || q->sampling.top_p < 1 || q->sampling.min_p > 0))
        return wf_error_set(
            error, WF_EINVAL,
            "--temperature 0 takes the likeliest token, so --top-k, --top-p and "
            "--min-p have no effect: give a --temperature above 0");
    if (q->cuda_graph && strcmp(q->cuda_graph, "on") != 0 && strcmp(q->cuda_graph, "off") != 0)
        return wf_error_set(error, WF_EINVAL, "--cuda-graph %.20s is none of on and off",
                            q->cuda_graph);
    if (q->n > 1 && q->sampling.temperature == 0)
        return wf_error_set(error, WF_EINVAL,
                            "--temperature 0 makes %lld times the same text: give a "
                            "--temperature above 0, or drop --n",
                            (long long)q->n);
    return WF_OK;
}

static wf_status take_stop(void *arg, wf_error *error)
{
    app_generate_request *q = arg;

    if (!*q->stop || q->n_stops == APP_GENERATE_STOPS)
        return wf_error_set(error, WF_EINVAL, "--stop: %s",
                            *q->stop ? "16 of them at most" : "the text is empty");
    q->stops[q->n_stops++] = q->stop;
    return WF_OK;
}

wf_status app_generate_parse(int argc, char **argv, app_generate_request *q, wf_error *error)
{
    wf_gen_sampling *s = &q->sampling;
    const wf_flag flags[] = {
        {"prompt", WF_FLAG_TEXT, &q->prompt, 0, 0, NULL, NULL, NULL},
        {"prompts", WF_FLAG_TEXT, &q->prompts, 0, 0, NULL, NULL, NULL},
        {"chat", WF_FLAG_SWITCH, &q->chat, 0, 0, NULL, NULL, NULL},
        {"system", WF_FLAG_TEXT, &q->system, 0, 0, NULL, NULL, NULL},
        {"chat-template", WF_FLAG_TEXT, &q->chat_template, 0, 0, NULL, NULL, NULL},
        {"chat-template-kwargs", WF_FLAG_TEXT, &q->chat_variables, 0, 0, NULL, NULL, NULL},
        {"ignore-fields", WF_FLAG_TEXT, &q->ignored_fields, 0, 0, NULL, NULL, NULL},
        {"max-new-tokens", WF_FLAG_COUNT, &q->most, 1, 1 << 24, NULL, NULL, NULL},
        {"n", WF_FLAG_COUNT, &q->n, 1, 1 << 20, NULL, NULL, NULL},
        {"temperature", WF_FLAG_REAL, &s->temperature, 0, 100, NULL, NULL, NULL},
        {"top-k", WF_FLAG_COUNT, &s->top_k, 0, 1 << 30, NULL, NULL, NULL},
        {"top-p", WF_FLAG_REAL, &s->top_p, 1e-9, 1, NULL, NULL, NULL},
        {"min-p", WF_FLAG_REAL, &s->min_p, 0, 1, NULL, NULL, NULL},
        {"repetition-penalty", WF_FLAG_REAL, &s->repetition_penalty, 1e-3, 1e3, NULL, NULL,
         NULL},
        {"presence-penalty", WF_FLAG_REAL, &s->presence_penalty, -100, 100, NULL, NULL, NULL},
        {"frequency-penalty", WF_FLAG_REAL, &s->frequency_penalty, -100, 100, NULL, NULL, NULL},
        {"seed", WF_FLAG_COUNT, &q->seed, 0, 9e18, NULL, NULL, NULL},
        {"stop", WF_FLAG_TEXT, &q->stop, 0, 0, take_stop, q, NULL},
        {"ignore-eos", WF_FLAG_SWITCH, &q->ignore_eos, 0, 0, NULL, NULL, NULL},
        {"json", WF_FLAG_SWITCH, &q->json, 0, 0, NULL, NULL, NULL},
        {"logprobs", WF_FLAG_COUNT, &q->logprobs, 0, APP_GENERATE_MOST_TOP, NULL, NULL, NULL},
        {"echo", WF_FLAG_SWITCH, &q->echo, 0, 0, NULL, NULL, NULL},
        {"plan", WF_FLAG_SWITCH, &q->plan, 0, 0, NULL, NULL, NULL},
        {"batch-size", WF_FLAG_COUNT, &q->batch, 1, 65536, NULL, NULL, NULL},
        {"cuda-graph", WF_FLAG_TEXT, &q->cuda_graph, 0, 0, NULL, NULL, NULL},
        {"prefill-chunk", WF_FLAG_COUNT, &q->chunk, 1, 1 << 20, NULL, NULL, NULL},
        {"help", WF_FLAG_SWITCH, &q->help, 0, 0, NULL, NULL, NULL},
        APP_MODEL_RUN_FLAGS(&q->run),
        {NULL, WF_FLAG_TEXT, NULL, 0, 0, NULL, NULL, NULL}};
    int at;

    *q = (app_generate_request){.most = 128,
                                .n = 1,
                                .seed = 1,
                                .logprobs = -1,
                                .batch = 8,
                                .chunk = 512,
                                .run = APP_MODEL_RUN_STANDARD,
                                .sampling = {.repetition_penalty = 1, .top_p = 1}};
    if (wf_flags_read("gpt_generate", argc, argv, flags, &at, error) != WF_OK)
        return error->code;
    app_model_run_job(&q->run, flags);
    if (q->help)
        return WF_OK;
    if (argc - at > 1)
        return wf_error_set(error, WF_EINVAL, "%s: one MODEL only, which is %s", argv[at + 1],
                            argv[at]);
    q->run.of.model = at < argc ? argv[at] : NULL;
    for (int64_t i = 0; i < q->n_stops; i++) {
        char name[24];

        snprintf(name, sizeof name, "--stop[%lld]", (long long)i);
        wf_job_add(q->run.job, name, "%s", q->stops[i]);
    }
    return check(q, error);
}
