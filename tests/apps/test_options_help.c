/* tests/apps/test_options_help.c - help and completion scripts know every flag, and work. */
#include "apps/options/options_table.h"
#include "tests/harness.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *printed(void (*print)(FILE *, const char *), const char *argument)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    print(out, argument);
    fclose(out);
    return text;
}

static void print_help(FILE *out, const char *argument)
{
    (void)argument;
    app_options_help(out);
}

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = text; (at = strstr(at, word)); at += length)
        if (strchr(" \"[])=*:;.,\n'", at[length]))
            return true;
    return false;
}

static void help_and_completion_know_all(void)
{
    char *texts[] = {printed(print_help, NULL), printed(app_options_completion, "bash"),
                     printed(app_options_completion, "zsh")};

    for (size_t t = 0; t < 3; t++) {
        for (int i = 0; i < APP_OPTION_COUNT; i++)
            if (app_option_rows[i].kind != APP_KIND_GROUP)
                CU_ASSERT_TRUE(has_word(texts[t], app_option_flag(&app_option_rows[i]).text));
        CU_ASSERT_FALSE(has_word(texts[t], "--no-such-flag"));
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(texts[0], "[auto, threads, mpi, nccl, fake]"));
    CU_ASSERT_PTR_NOT_NULL(strstr(texts[0], "(default: 384)"));
    CU_ASSERT_PTR_NOT_NULL(strstr(texts[0], "Examples"));
    for (char *line = strtok(texts[0], "\n"); line; line = strtok(NULL, "\n"))
        CU_ASSERT_TRUE(strlen(line) <= 88);
    for (size_t t = 0; t < 3; t++)
        free(texts[t]);
}

/* Asks the bash script itself, where there is a bash. */
static void bash_completes(void)
{
    static const struct {
        const char *words, *answer;
    } cases[] = {
        {"gpt_train --arch l", "llama llama4_text"},
        {"gpt_train --n-em", "--n-embd"},
        {"gpt_train --strategy d", "ddp"},
        {"gpt_train --exact o", "on off"},
        {"gpt_train --data /etc/passwd /etc/hostna", "/etc/hostname"},
        {"gpt_train --data /etc/passwd --wei", "--weight-decay"},
        {"gpt_train --tp ", ""},
    };
    char *script = printed(app_options_completion, "bash"),
         path[] = "/tmp/weft-completion-XXXXXX";
    int file = mkstemp(path);

    CU_ASSERT_FATAL(file >= 0);
    CU_ASSERT_EQUAL_FATAL(write(file, script, strlen(script)), (ssize_t)strlen(script));
    close(file);

    if (system("command -v bash > /dev/null && [ -e /etc/hostname ]") == 0) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char command[512], answer[256] = "";
            bool open_word = cases[i].words[strlen(cases[i].words) - 1] == ' ';
            FILE *pipe;

            snprintf(command, sizeof command,
                     "bash -c 'compopt() { :; }; . %s; COMP_WORDS=(%s %s); "
                     "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _gpt_train; echo ${COMPREPLY[*]}'",
                     path, cases[i].words, open_word ? "\"\"" : "");
            pipe = popen(command, "r");
            CU_ASSERT_PTR_NOT_NULL_FATAL(pipe);
            CU_ASSERT_PTR_NOT_NULL(fgets(answer, sizeof answer, pipe));
            CU_ASSERT_EQUAL(pclose(pipe), 0);
            answer[strcspn(answer, "\n")] = 0;
            CU_ASSERT_STRING_EQUAL(answer, cases[i].answer);
        }
    } else {
        printf("(bash or /etc/hostname is missing: the script was not run) ");
    }
    unlink(path);
    free(script);
}

static const wf_test tests[] = {
    {"help and completion know all flags", help_and_completion_know_all},
    {"bash completes", bash_completes},
    {NULL, NULL},
};

int main(void)
{
    return wf_test_main("options_help", tests);
}
