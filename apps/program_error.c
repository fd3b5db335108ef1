/* apps/program_error.c - errors of the library with fields of options as flags; see
   apps/program.h. */
#include "apps/options/options_table.h"
#include "apps/program.h"
#include "parallel/flag_names.h"
#include <string.h>

/* Fields whose flag has another name, and flags that gpt_train has not. */
static const struct {
    const char *field, *flag;
} named[] = {{"exact_off", "exact off"},
             {"tied", "tie-embeddings"},
             {"kv_heads", "n-kv-head"},
             {"eps", "norm-eps"},
             {"window", "sliding-window"},
             {"rotary", "rotary-percent"},
             {"vocabulary", "vocab-size"},
             {"fp32_residual", "fp32-residual-connection"},
             {"ignored", "ignore-fields"},
             {"name", "chat-template"},
             {"type", "gguf-type"},
             {"train", "train"},
             {"base", "base"},
             {"variables", "chat-template-kwargs"},
             {"tokenizer", "tokenizer"}};

/* Writes the flag of a field; returns its length, 0: it is the field of no flag. */
static size_t write_flag(const void *arg, const char *field, size_t length, char *to,
                         size_t size)
{
    const app_option_row *row;

    (void)arg;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strlen(named[i].field) == length && memcmp(named[i].field, field, length) == 0)
            return (size_t)snprintf(to, size, "--%s", named[i].flag);
    row = app_option_find(field, length);
    return row ? (size_t)snprintf(to, size, "%s", app_option_flag(row).text) : 0;
}

void app_program_flags(void)
{
    wf_flags_report(write_flag, NULL);
}

char *app_program_format(const char *text, char *to, size_t size)
{
    return wf_flags_format(text, write_flag, NULL, to, size);
}

void app_program_error(const char *name, const wf_error *error)
{
    char text[2 * sizeof error->text];

    fprintf(stderr, "%s: %s\n", name, app_program_format(error->text, text, sizeof text));
}
