/* tests/apps/test_program.c - errors of the library as programs print them. */
#include "apps/program.h"
#include "tests/harness.h"
#include <string.h>

/* Fields of options become the flags that set them, and nothing else does. */
static void fields_are_flags(void)
{
    static const char *const texts[][2] = {
        {"a sequence of .seq_len 128 needs 129", "a sequence of --seq-len 128 needs 129"},
        {".replay: none (.val_fraction 0.5)", "--replay: none (--val-fraction 0.5)"},
        {"use it with .exact_off", "use it with --exact off"},
        {"its bias (.qkv_bias), nor .kv_heads", "its bias (--qkv-bias), nor --n-kv-head"},
        {"text another ending than .bin; a.data, 1.5 and .data/x", NULL},
        {"ends. .", NULL},
        {"", NULL}};
    char to[128];

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        CU_ASSERT_STRING_EQUAL(app_program_format(texts[i][0], to, sizeof to),
                               texts[i][1] ? texts[i][1] : texts[i][0]);
    for (size_t size = 1; size < 30; size++) { /* cut, and ended */
        memset(to, 'x', sizeof to);
        app_program_format("see .val_fraction, .data", to, size);
        CU_ASSERT(strlen(to) < size);
        CU_ASSERT(strncmp(to, "see --val-fraction, --data", strlen(to)) == 0);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"fields are flags", fields_are_flags}, {NULL, NULL}};

    return wf_test_main("program", tests);
}
