/* tests/fuzz/fuzz_weight_map.c - model.safetensors.index.json: no name leaves the folder. */
#include "parallel/formats/hf_files_internal.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wf_error error = {WF_OK, ""};
    char **files;
    int64_t count;
    wf_status status = wf_hf_index_parse("m", (const char *)data, size, &files, &count, &error);

    ANSWERED(status, error);
    PROMISE((status == WF_OK) == (count > 0));
    for (int64_t i = 0; i < count; i++) {
        PROMISE(!strchr(files[i], '/') && files[i][0] != '.');
        PROMISE(i == 0 || strcmp(files[i - 1], files[i]) < 0);
    }
    for (int64_t i = 0; i < count; i++)
        free(files[i]);
    free(files);
    return 0;
}
