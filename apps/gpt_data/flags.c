/* apps/gpt_data/flags.c - the command line of gpt_data. */
#include "apps/gpt_data/flags.h"
#include "parallel/program/unknown_flag.h"
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

const char app_gpt_data_help[] =
    "gpt_data - text as token ids for training, and tokenizers of one's own\n"
    "\n"
    "Usage: gpt_data tokenize FILES --output PREFIX [--tokenizer PATH] | chat FILES --output "
    "PREFIX --tokenizer PATH |\n"
    "                pack PREFIX --output PREFIX --seq-len N | show PREFIX | train-bpe FILES "
    "--output DIR\n"
    "\n"
    "FILES with rows of JSON, by their name (.jsonl, .ndjson) or what they have, are a "
    "document "
    "a row; each other\n"
    "file is a document, and what is compressed or in columns is refused. Token ids are\n"
    "written as PREFIX.bin and PREFIX.idx, as Megatron-LM has them, which --data of gpt_train "
    "reads, with\n"
    "PREFIX.dataset.json, by which it knows files of another writing beside them. Neither\n"
    "the number of threads nor that of the files' blocks changes a byte of what is written.\n"
    "\n"
    "  tokenize              write the token ids of FILES\n"
    "  chat                  write conversations as token ids, and PREFIX.loss.bin and "
    "PREFIX.loss.idx, which say\n"
    "                        what of them is trained: FILES.jsonl have a line of "
    "{\"messages\": "
    "[{\"role\", \"content\"}, ..]}\n"
    "                        or {\"prompt\", \"completion\"} each\n"
    "  pack                  write the documents of PREFIX.idx, with their loss mask where "
    "there is one, in "
    "windows of\n"
    "                        --seq-len tokens, with as little padding as best fit decreasing "
    "finds: for "
    "--documents mask\n"
    "                        of gpt_train with the same --seq-len\n"
    "  show                  say what PREFIX.idx has, or print one of its documents\n"
    "  train-bpe             make a vocabulary of byte-level BPE of FILES: DIR/tokenizer.json\n"
    "\n"
    "  --tokenizer PATH      a folder of Hugging Face, tokenizer.json, vocab.json with "
    "merges.txt, "
    "a rank\n"
    "                        file of tiktoken, tekken.json, a BPE model of SentencePiece, or "
    "bytes "
    "(default: bytes)\n"
    "  --output NAME         PREFIX or DIR\n"
    "  --jsonl-key KEY       the key of a line's text (default: text)\n"
    "  --on-bad-row WHAT     what comes of a row that is no JSON or has no text: stop, or skip "
    "it, and say how many\n"
    "                        were (default: stop)\n"
    "  --append-eod          tokenize: end each document with the tokenizer's end of text\n"
    "  --special-tokens      tokenize: special tokens in texts become their ids; "
    "else "
    "they are text\n"
    "  --chat-template NAME|FILE  chat: how turns are written: a name or a file of Jinja "
    "(default: the\n"
    "                        template beside the tokenizer); a wrong name prints the names\n"
    "  --chat-template-kwargs JSON  chat: variables of the template, such as "
    "'{\"enable_thinking\": false}'\n"
    "  --ignore-fields NAMES chat: fields of rows and messages to leave out, with commas "
    "between; others that\n"
    "                        are not known, or that the template does not write, are refused\n"
    "  --train WHAT          chat: what is trained: assistant, all that assistants say, with "
    "the "
    "end of each turn;\n"
    "                        last, of that the last turn; each, a text of each turn, which "
    "ends with it and\n"
    "                        of which it is trained; all (default: assistant)\n"
    "  --seq-len N           pack: tokens of a window\n"
    "  --long WHAT           pack: documents that are longer than a window: refuse, or cut "
    "them into "
    "several (default: refuse)\n"
    "  --document N          show: print document N, from 0 on, as ids, or as text with "
    "--tokenizer\n"
    "  --vocab-size N        train-bpe: tokens, with the 256 bytes and <|endoftext|> (default: "
    "32000)\n"
    "  --threads N           threads that encode or count (default: 1)\n"
    "  --help, --version\n"
    "\n"
    "Examples\n"
    "  gpt_data tokenize book.txt --tokenizer smollm2 --output book --append-eod\n"
    "  gpt_data tokenize web-*.jsonl --tokenizer tokenizer.json --output web --threads 8\n"
    "  gpt_data chat chats.jsonl --tokenizer smollm2 --output chats\n"
    "  gpt_data pack chats --seq-len 512 --output packed\n"
    "  gpt_data show web --document 3 --tokenizer tokenizer.json\n"
    "  gpt_data train-bpe web-*.jsonl --vocab-size 8192 --output mine --threads 8\n"
    "\n"
    "Exit status: 0; 1 out of memory, 2 for a mistake in the flags, 3 for a file.\n";

static wf_status count(const char *flag, const char *text, long long least, long long most,
                       int64_t *value, wf_error *error)
{
    char *end;
    long long n = strtoll(text, &end, 10);

    if (end == text || *end || n < least || n > most)
        return wf_error_set(error, WF_EINVAL, "--%s %s: a whole number from %lld to %lld", flag,
                            text, least, most);
    *value = n;
    return WF_OK;
}

static wf_status check_pack(const app_gpt_data_request *q, bool pack, wf_error *error)
{
    if ((q->seq_len || q->longer) && !pack)
        return wf_error_set(error, WF_EINVAL, "--seq-len and --long are of pack");
    if (pack && !q->seq_len)
        return wf_error_set(error, WF_EINVAL, "pack: --seq-len is missing");
    if (pack && q->tokenizer)
        return wf_error_set(error, WF_EINVAL, "pack takes token ids, and no tokenizer");
    if (q->longer && strcmp(q->longer, "cut") != 0 && strcmp(q->longer, "refuse") != 0)
        return wf_error_set(error, WF_EINVAL, "--long %s is none of cut and refuse", q->longer);
    return WF_OK;
}

/* Checks the options of each command beside its files. */
static wf_status check(const app_gpt_data_request *q, wf_error *error)
{
    bool tokenize = strcmp(q->command, "tokenize") == 0, show = strcmp(q->command, "show") == 0,
         train = strcmp(q->command, "train-bpe") == 0, chat = strcmp(q->command, "chat") == 0,
         pack = strcmp(q->command, "pack") == 0;

    if (!tokenize && !show && !train && !chat && !pack)
        return wf_error_set(
            error, WF_EINVAL,
            "%s is no command: there are tokenize, chat, pack, show and train-bpe", q->command);
    if ((q->chat_template || q->train || q->chat_variables || q->ignored_fields) && !chat)
        return wf_error_set(error, WF_EINVAL,
                            "--chat-template, --chat-template-kwargs, --ignore-fields and "
                            "--train are of chat");
    if (chat && q->key)
        return wf_error_set(error, WF_EINVAL,
                            "--jsonl-key is of texts: chat reads messages, or prompt and "
                            "completion");
    if (q->file_count == 0)
        return wf_error_set(error, WF_EINVAL, "%s: no %s was given", q->command,
                            show || pack ? "PREFIX" : "file");
    if ((show || pack) && q->file_count > 1)
        return wf_error_set(error, WF_EINVAL, "%s takes one PREFIX", q->command);
    if (show ? q->output != NULL : !q->output || !*q->output)
        return wf_error_set(error, WF_EINVAL, "%s: %s", q->command,
                            show ? "it writes nothing, so there is no --output"
                                 : "--output is missing");
    if ((q->append_eod || q->special_tokens) && !tokenize)
        return wf_error_set(error, WF_EINVAL,
                            "--append-eod and --special-tokens are of tokenize");
    if (q->document >= 0 && !show)
        return wf_error_set(error, WF_EINVAL, "--document is of show");
    if (train && q->tokenizer)
        return wf_error_set(error, WF_EINVAL, "train-bpe makes a tokenizer and takes none");
    if (q->vocabulary && !train)
        return wf_error_set(error, WF_EINVAL, "--vocab-size is of train-bpe");
    if (q->on_bad_row && (show || pack))
        return wf_error_set(error, WF_EINVAL,
                            "--on-bad-row is of tokenize, chat and train-bpe");
    if (q->on_bad_row && !q->skips && strcmp(q->on_bad_row, "stop") != 0)
        return wf_error_set(error, WF_EINVAL, "--on-bad-row %s is none of stop and skip",
                            q->on_bad_row);
    return check_pack(q, pack, error);
}

static wf_status take(int flag, app_gpt_data_request *q, wf_error *error)
{
    int64_t threads = q->threads;
    wf_status status = WF_OK;

    switch (flag) {
    case 't':
        q->tokenizer = optarg;
        break;
    case 'o':
        q->output = optarg;
        break;
    case 'k':
        q->key = optarg;
        break;
    case 'c':
        q->chat_template = optarg;
        break;
    case 'j':
        q->chat_variables = optarg;
        break;
    case 'i':
        q->ignored_fields = optarg;
        break;
    case 'w':
        q->train = optarg;
        break;
    case 'b':
        q->on_bad_row = optarg;
        q->skips = strcmp(optarg, "skip") == 0;
        break;
    case 'e':
        q->append_eod = true;
        break;
    case 's':
        q->special_tokens = true;
        break;
    case 'l':
        q->longer = optarg;
        q->cuts = strcmp(optarg, "cut") == 0;
        break;
    case 'q':
        return count("seq-len", optarg, 1, 1 << 24, &q->seq_len, error);
    case 'd':
        return count("document", optarg, 0, INT64_MAX, &q->document, error);
    case 'v':
        return count("vocab-size", optarg, 257, 1 << 20, &q->vocabulary, error);
    case 'n':
        status = count("threads", optarg, 1, APP_GPT_DATA_MOST_THREADS, &threads, error);
        q->threads = (int)threads;
        break;
    default:
        q->help = true;
    }
    return status;
}

wf_status app_gpt_data_parse(int argc, char **argv, app_gpt_data_request *q, wf_error *error)
{
    static const struct option flags[] = {
        {"tokenizer", required_argument, NULL, 't'},
        {"output", required_argument, NULL, 'o'},
        {"jsonl-key", required_argument, NULL, 'k'},
        {"chat-template", required_argument, NULL, 'c'},
        {"chat-template-kwargs", required_argument, NULL, 'j'},
        {"ignore-fields", required_argument, NULL, 'i'},
        {"on-bad-row", required_argument, NULL, 'b'},
        {"train", required_argument, NULL, 'w'},
        {"append-eod", no_argument, NULL, 'e'},
        {"special-tokens", no_argument, NULL, 's'},
        {"document", required_argument, NULL, 'd'},
        {"vocab-size", required_argument, NULL, 'v'},
        {"seq-len", required_argument, NULL, 'q'},
        {"long", required_argument, NULL, 'l'},
        {"threads", required_argument, NULL, 'n'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    wf_status status = WF_OK;
    int c;

    *q = (app_gpt_data_request){.threads = 1, .document = -1};
    opterr = 0;
    while (status == WF_OK && (c = getopt_long(argc, argv, "", flags, NULL)) != -1) {
        if (c == '?')
            return wf_flag_refused("gpt_data", argc, argv, flags, error);
        status = take(c, q, error);
    }
    if (status != WF_OK || q->help)
        return status;
    if (optind == argc)
        return wf_error_set(error, WF_EINVAL,
                            "a command is missing: tokenize, chat, pack, show or train-bpe");
    q->command = argv[optind];
    q->files = argv + optind + 1;
    q->file_count = argc - optind - 1;
    return check(q, error);
}
