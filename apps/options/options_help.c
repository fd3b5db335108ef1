/* apps/options/options_help.c - the help text and the completion scripts, from
   apps/options/options.def. */
#include "apps/options/options_table.h"
#include "apps/program.h"
#include <string.h>

enum { HELP_INDENT = 28, HELP_WIDTH = 88 };

/* Prints words from column `column` on, each further line indented; returns the new column. A
 * tab is a space that no line breaks at. */
static int wrap(FILE *out, int column, const char *words)
{
    while (*(words += strspn(words, " "))) {
        int length = (int)strcspn(words, " ");
        bool first = column == HELP_INDENT;

        if (!first && column + 1 + length > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_INDENT, "");
            column = HELP_INDENT;
            first = true;
        }
        if (!first)
            fputc(' ', out);
        for (int i = 0; i < length; i++)
            fputc(words[i] == '\t' ? ' ' : words[i], out);
        column += length + !first;
        words += length;
    }
    return column;
}

static void append(char *to, size_t size, const char *between, const char *word)
{
    size_t used = strlen(to);

    snprintf(to + used, size - used, "%s%s", used ? between : "", word);
}

/* "[gpt2, llama]" for a row of words; an alias as ddp=no_shard. */
static int help_choices(FILE *out, int column, const app_option_row *row)
{
    const char *cursor = row->domain;
    char all[512] = "", line[640];
    app_choice choice;

    while (app_choice_next(&cursor, &choice)) {
        char word[3 * APP_CHOICE_LENGTH];

        snprintf(word, sizeof word, "%s%s%s", choice.name, choice.alias ? "=" : "",
                 choice.alias ? choice.means : "");
        append(all, sizeof all, ", ", word);
    }
    snprintf(line, sizeof line, "[%s]", all);
    return wrap(out, column, line);
}

/* A TEXT row has words where some texts are names. */
static bool has_words(const app_option_row *row)
{
    return row->kind == APP_KIND_CHOICE || row->kind == APP_KIND_LEVEL ||
           (row->kind == APP_KIND_TEXT && row->domain);
}

static void help_row(FILE *out, const app_option_row *row)
{
    char left[80], standard[96];
    int column = HELP_INDENT;

    snprintf(left, sizeof left, "  %s%s%s%s", app_option_flag(row).text,
             row->kind == APP_KIND_LEVEL ? "[="
             : row->metavar              ? " "
                                         : "",
             row->metavar ? row->metavar : "", row->kind == APP_KIND_LEVEL ? "]" : "");
    fprintf(out, "%-*s", HELP_INDENT, left);
    if (strlen(left) >= HELP_INDENT)
        fprintf(out, "\n%*s", HELP_INDENT, "");
    column = wrap(out, column, row->help);
    column = wrap(out, column, app_families_with(row).text);
    if (has_words(row))
        column = help_choices(out, column, row);
    if (row->standard && row->kind != APP_KIND_BOOL) {
        const char *text = row->standard + (*row->standard == '=');
        const char *quote = row->kind == APP_KIND_TEXT ? "\"" : "";

        snprintf(standard, sizeof standard, "(default:\t%s%s%s)", quote, text, quote);
        wrap(out, column, standard);
    }
    fputc('\n', out);
}

void app_options_help(FILE *out)
{
    fputs("gpt_train - train a GPT on text or token ids, its tensors spread over pp x tp x dp "
          "x cp\nranks\n\n"
          "Usage: gpt_train --data FILE... [flags]\n\n"
          "Ranks are threads of this process. The layout decides where numbers are computed,\n"
          "never what they are: any --pp, --tp, --dp, --cp and --micro-batch-size give the\n"
          "same bits.\n",
          out);
    for (int i = 0; i < APP_OPTION_COUNT; i++) {
        const app_option_row *row = &app_option_rows[i];

        if (row->kind == APP_KIND_GROUP)
            fprintf(out, "\n%s\n", row->name);
        else
            help_row(out, row);
    }
    fputs(
        "\nExamples\n"
        "  Train a small model on one rank, and read what it learned:\n"
        "      gpt_train --data book.txt --steps 300 --sample 400\n"
        "  The same numbers on 2 x 2 ranks, with a log to compare:\n"
        "      gpt_train --data book.txt --steps 300 --tp 2 --dp 2 --log-jsonl run.jsonl\n"
        "  32 ranks, four sequences per step and group, activations split by tokens:\n"
        "      gpt_train --data book.txt --tp 8 --dp 4 --sequence-parallel\n"
        "  Four pipeline ranks that hold two stages each, with hardly an idle moment:\n"
        "      gpt_train --data book.txt --pp 4 --pp-schedule zb-v --micro-batch-size 1\n"
        "  A Llama with grouped-query attention:\n"
        "      gpt_train --data *.txt --arch llama --n-head 12 --n-kv-head 4\n"
        "  See who would hold what, without training:\n"
        "      gpt_train --tp 4 --dp 2 --steps 0 --show-layout\n"
        "  What a rank of 2048 would need for a model of 70 billion parameters:\n"
        "      gpt_train --plan --arch llama --n-layer 80 --n-embd 8192 --n-head 64 "
        "--n-kv-head 8\n"
        "          --ffn 28672 --vocab-size 128256 --seq-len 8192 --tp 8 --dp 256\n"
        "          --global-batch-size 256 --device-memory 80GiB\n"
        "  Repeat a run from a file, with another learning rate:\n"
        "      gpt_train --config run.json --lr 3e-4\n"
        "  Save every 100 steps; run it again to continue, also on another mesh:\n"
        "      gpt_train --data book.txt --save run --save-interval 100\n"
        "  Read what it has learned so far:\n"
        "      gpt_train --steps 0 --resume run --sample 400\n"
        "\nExit status\n"
        "  0 done; 1 out of memory, or an error of ours; 2 flags or data that don't fit; 3 a\n"
        "  file that cannot be read or written, or is damaged; 4 a rank was lost; 5 ranks\n"
        "  disagree on a collective; 6 a rank stalls, all wait for each other, or a process\n"
        "  does not exit; 7 a loss or gradient that is not finite, which is not saved; 8 a\n"
        "  checkpoint that cannot be saved or loaded; 75 saved and stopped early, by SIGTERM,\n"
        "  SIGHUP, SIGINT (a second one ends at once) or --exit-duration-in-mins: the same\n"
        "  command continues. A crash ends by its signal\n",
        out);
}

/* The values that may follow a flag: choices, or on and off. Empty for free values. */
static void possible_values(const app_option_row *row, char *out, size_t size)
{
    const char *cursor = row->domain;
    app_choice choice;

    *out = 0;
    if (row->kind == APP_KIND_SWITCH)
        append(out, size, " ", "on off");
    while (row->kind != APP_KIND_LEVEL && has_words(row) && app_choice_next(&cursor, &choice))
        append(out, size, " ", choice.name);
}

static bool is_file(const app_option_row *row)
{
    return row->kind == APP_KIND_FILE || row->kind == APP_KIND_FILES;
}

/* Offers values after a flag that takes one, files as long as the last flag takes several. */
static void complete_bash(FILE *out)
{
    fputs(
        "# bash completion for gpt_train; load it with: source <(gpt_train --completion bash)\n"
        "_gpt_train_files()\n"
        "{\n"
        "    compopt -o filenames\n"
        "    mapfile -t COMPREPLY < <(compgen -f -- \"$1\")\n"
        "}\n\n"
        "_gpt_train()\n"
        "{\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} flag= i\n\n"
        "    COMPREPLY=()\n"
        "    for ((i = COMP_CWORD - 1; i > 0; i--)); do\n"
        "        [[ ${COMP_WORDS[i]} == --* ]] && flag=${COMP_WORDS[i]} && break\n"
        "    done\n"
        "    case $prev in\n",
        out);
    for (int i = 0; i < APP_OPTION_COUNT; i++) {
        const app_option_row *row = &app_option_rows[i];
        char values[256];

        if (row->kind == APP_KIND_GROUP || app_option_is_bare(row))
            continue;
        possible_values(row, values, sizeof values);
        fprintf(out, "    %s) ", app_option_flag(row).text);
        if (*values)
            fprintf(out, "COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); ", values);
        else if (is_file(row))
            fputs("_gpt_train_files \"$cur\"; ", out);
        fputs("return ;;\n", out);
    }
    fputs("    esac\n"
          "    case $flag in\n",
          out);
    for (int i = 0; i < APP_OPTION_COUNT; i++)
        if (app_option_rows[i].kind == APP_KIND_FILES)
            fprintf(out,
                    "    %s) [[ $cur == -* ]] || { _gpt_train_files \"$cur\"; return; } ;;\n",
                    app_option_flag(&app_option_rows[i]).text);
    fputs("    esac\n"
          "    COMPREPLY=($(compgen -W \"",
          out);
    for (int i = 0; i < APP_OPTION_COUNT; i++)
        if (app_option_rows[i].kind != APP_KIND_GROUP)
            fprintf(out, "%s%s", i > 1 ? " " : "", app_option_flag(&app_option_rows[i]).text);
    fputs("\" -- \"$cur\"))\n"
          "}\n\n"
          "complete -F _gpt_train gpt_train\n",
          out);
}

/* Text inside '...[help]:...' of zsh's _arguments. */
static void zsh_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\'", out);
        else if (strchr("[]:\\", *text))
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void complete_zsh(FILE *out)
{
    fputs("#compdef gpt_train\n"
          "# zsh completion for gpt_train; load it with: source <(gpt_train --completion zsh)\n"
          "_gpt_train()\n"
          "{\n"
          "    _arguments",
          out);
    for (int i = 0; i < APP_OPTION_COUNT; i++) {
        const app_option_row *row = &app_option_rows[i];
        char values[256];

        if (row->kind == APP_KIND_GROUP)
            continue;
        fprintf(out, " \\\n        '%s%s[", row->kind == APP_KIND_FILES ? "*" : "",
                app_option_flag(row).text);
        zsh_text(out, row->help);
        fputc(']', out);
        possible_values(row, values, sizeof values);
        if (!app_option_is_bare(row))
            fprintf(out, ":%s:", row->metavar);
        if (*values)
            fprintf(out, "(%s)", values);
        else if (is_file(row))
            fputs("_files", out);
        fputc('\'', out);
    }
    /* Plain words are the further files of a FILES flag. */
    fputs(" \\\n        '*:FILE:_files'\n}\n\n"
          "if [[ ${funcstack[1]} == _gpt_train ]]; then\n"
          "    _gpt_train \"$@\"\n"
          "else\n"
          "    compdef _gpt_train gpt_train\n"
          "fi\n",
          out);
}

void app_options_completion(FILE *out, const char *shell)
{
    if (!strcmp(shell, "zsh"))
        complete_zsh(out);
    else
        complete_bash(out);
}

void app_options_answer(const app_options *options, FILE *out)
{
    if (options->help)
        app_options_help(out);
    else if (options->version)
        app_program_version(out, "gpt_train");
    else
        app_options_completion(out, options->completion);
}
