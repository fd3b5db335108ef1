/*
 * tests/fuzz/fuzz_table.c - 1 byte: whether it is a CSV; then a pipeline table from strangers.
 * What is read is printed, and read back as the same text; it is proved, or refused in words.
 */
#include "parallel/pipeline/lower.h"
#include "parallel/pipeline/text.h"
#include "tests/fuzz/fuzz.h"

static char *printed(const wf_pipe_table *table)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    PROMISE(out && wf_pipe_table_print(table, out) == WF_OK);
    fclose(out);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wf_pipe_table *table = NULL, *again = NULL;
    wf_error error = {WF_OK, ""};
    wf_pipe_proof proof;
    wf_status status;
    char *text, *first, *second;

    if (size < 1 || !(text = strndup((const char *)data + 1, size - 1)))
        return 0;
    status = wf_pipe_table_parse(data[0] & 1 ? "t.csv" : "t", text, &table, &error);
    ANSWERED(status, error);
    PROMISE((status == WF_OK) == (table != NULL));
    free(text);
    if (!table)
        return 0;
    first = printed(table);
    PROMISE(wf_pipe_table_parse("t", first, &again, &error) == WF_OK);
    second = printed(again);
    PROMISE(strcmp(first, second) == 0);
    status = wf_pipe_prove(table, &proof, &error);
    ANSWERED(status, error);
    free(first);
    free(second);
    wf_pipe_table_free(again);
    wf_pipe_table_free(table);
    return 0;
}
