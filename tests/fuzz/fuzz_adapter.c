/* tests/fuzz/fuzz_adapter.c - adapter_config.json: what is accepted are adapters that a model
   can have. */
#include "parallel/models/gpt/lora_names_internal.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wf_error error = {WF_OK, ""};
    wf_par_lora lora;
    wf_status status = wf_peft_config_parse(&lora, "a", (const char *)data, size, &error);
    const char *names = lora.targets;
    char name[WF_HF_NAME];

    ANSWERED(status, error);
    if (status != WF_OK)
        return 0;
    PROMISE(lora.rank >= 1 && lora.rank <= 65536);
    PROMISE(lora.alpha > 0 && lora.dropout >= 0 && lora.dropout < 1);
    PROMISE(wf_peft_next(&names, name, sizeof name) && *name);
    return 0;
}
