/* tests/fuzz/fuzz_config.c - config.json: what is accepted describes a model that can be
   built. */
#include "parallel/models/gpt/hf_config_internal.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wf_error error = {WF_OK, ""};
    wf_hf_config c, again;
    wf_status status = wf_hf_config_parse(&c, "c", (const char *)data, size, &error);
    char *text;

    ANSWERED(status, error);
    if (status != WF_OK)
        return 0;
    PROMISE(c.model.head_dim > 0 || c.model.width % c.model.heads == 0);
    PROMISE(c.model.heads % c.model.kv_heads == 0);
    PROMISE(c.model.eps > 0 && c.model.layers > 0 && c.model.vocabulary > 0);
    PROMISE(wf_hf_config_format(&c.model, WF_ST_F32, NULL, &text, &error) == WF_OK);
    PROMISE(wf_hf_config_parse(&again, "a", text, strlen(text), &error) == WF_OK);
    PROMISE(wf_nn_gpt_same(&again.model, &c.model));
    free(text);
    return 0;
}
