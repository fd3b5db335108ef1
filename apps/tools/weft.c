/*
 * apps/tools/weft.c - weft COMMAND ARGUMENTS: one name for all programs. A command is a row:
 * the program beside this one that it becomes, and what it gets before the arguments. So
 * launchers and signals reach the program itself.
 */
#include "apps/program.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { USAGE = 2, NOT_STARTED = 3 };

static const struct command {
    const char *name, *program, *first, *help;
} commands[] = {
    {"train", "gpt_train", NULL, "train a model, or continue training"},
    {"plan", "gpt_train", "--plan", "say what a run would take of memory and traffic"},
    {"data", "gpt_data", NULL, "write text as token ids; make a vocabulary"},
    {"generate", "gpt_generate", NULL, "continue texts"},
    {"eval", "gpt_eval", NULL, "perplexity, and choices among answers"},
    {"export", "gpt_export", NULL, "write a model for transformers or llama.cpp"},
    {"ckpt", "ckpt", NULL, "list, verify and show checkpoints"},
    {"diff", "gpt_diff", NULL, "find where two runs or checkpoints differ"},
    {"check", "gpt_check", NULL, "compare another trainer's gradients with Weft's"},
    {"mesh", "mesh_info", NULL, "say which rank would sit where"},
    {"schedule", "schedule", NULL, "make, prove and draw pipeline schedules"},
    {"recorder", "recorder_diff", NULL, "find where ranks diverged"},
};
static const size_t command_count = sizeof commands / sizeof *commands;

static void print_help(void)
{
    printf(
        "weft - the programs of Weft under one name\n\n"
        "Usage: weft COMMAND ARGUMENTS\n\n"
        "A command is one of Weft's programs, which takes the arguments: weft train --tp 2 is\n"
        "gpt_train --tp 2, and weft train --help lists its flags.\n\nCommands\n");
    for (size_t i = 0; i < command_count; i++) {
        const struct command *c = &commands[i];

        printf("  %-12s%s: %s%s%s\n", c->name, c->help, c->program, c->first ? " " : "",
               c->first ? c->first : "");
    }
    printf(
        "\n  --completion SHELL  print completion for bash, which asks gpt_train for its own\n"
        "  --help              print this\n"
        "  --version           print the version\n\n"
        "Exit status: that of the program; 2 where there is no such command, 3 where its "
        "program\n"
        "cannot be started.\n");
}

static void print_completion(void)
{
    printf("# bash completion for weft; load it with: source <(weft --completion bash)\n"
           "_weft()\n{\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
           "        COMPREPLY=($(compgen -W \"");
    for (size_t i = 0; i < command_count; i++)
        printf("%s ", commands[i].name);
    printf("--help --version\" -- \"${COMP_WORDS[1]}\"))\n"
           "        return\n    fi\n"
           "    case ${COMP_WORDS[1]} in\n"
           "    train | plan)\n"
           "        declare -F _gpt_train >/dev/null || source <(gpt_train --completion bash)\n"
           "        _gpt_train\n        ;;\n"
           "    *) COMPREPLY=($(compgen -f -- \"${COMP_WORDS[COMP_CWORD]}\")) ;;\n"
           "    esac\n}\n\ncomplete -o filenames -F _weft weft\n");
}

/* The program lies where this one does. */
static int become(const struct command *c, int argc, char **argv)
{
    char path[PATH_MAX], **arguments = calloc((size_t)argc + 2, sizeof *arguments), *slash;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    int count = 0;

    path[n > 0 ? n : 0] = '\0';
    slash = strrchr(path, '/');
    if (!arguments || !slash ||
        (size_t)(slash + 1 - path) + strlen(c->program) >= sizeof path) {
        fprintf(stderr, "weft: cannot find where %s lies\n", c->program);
        free(arguments);
        return NOT_STARTED;
    }
    strcpy(slash + 1, c->program);
    arguments[count++] = (char *)c->program;
    if (c->first)
        arguments[count++] = (char *)c->first;
    for (int i = 2; i < argc; i++)
        arguments[count++] = argv[i];
    execv(path, arguments);
    fprintf(stderr, "weft: cannot start %s: %s\n", path, strerror(errno));
    free(arguments);
    return NOT_STARTED;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "--help";

    if (strcmp(word, "--help") == 0 || strcmp(word, "--completion") == 0) {
        if (strcmp(word, "--help") == 0)
            print_help();
        else if (argc == 3 && strcmp(argv[2], "bash") == 0)
            print_completion();
        else {
            fprintf(stderr, "weft: --completion takes bash\n");
            return USAGE;
        }
        return app_program_end("weft", argc > 1 ? 0 : USAGE);
    }
    if (app_program_version_asked("weft", argc, argv))
        return app_program_end("weft", 0);
    for (size_t i = 0; i < command_count; i++)
        if (strcmp(word, commands[i].name) == 0)
            return become(&commands[i], argc, argv);
    fprintf(stderr, "weft: there is no command %s; the commands are", word);
    for (size_t i = 0; i < command_count; i++)
        fprintf(stderr, "%s %s", i ? "," : "", commands[i].name);
    fprintf(stderr, ": see weft --help\n");
    return USAGE;
}
