/* tests/fuzz/fuzz_machine.c - machine files: what is accepted has every figure in its range,
   and a name that can be printed. */
#include "core/shape.h"
#include "parallel/formats/json_internal.h"
#include "parallel/simulate/machine_internal.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wf_error error = {WF_OK, ""};
    wf_sim_machine m;
    wf_status status = wf_sim_machine_parse("m", (const char *)data, size, &m, &error);

    ANSWERED(status, error);
    if (status != WF_OK)
        return 0;
    PROMISE(memchr(m.name, 0, sizeof m.name) && wf_json_printable(m.name));
    PROMISE(m.rate[WF_BF16] >= 1e6 && (m.rate[WF_F32] >= 1e6 || m.rate[WF_F32] == 0));
    PROMISE(m.bandwidth >= 1e6 && m.inside.bandwidth >= 1e6 && m.network.bandwidth >= 1e6);
    PROMISE(m.devices >= 1 && m.cores >= 0 && m.products > 0 && m.attention > 0);
    PROMISE(m.inside.latency >= 0 && m.network.latency <= 1 && m.launch <= 1);
    PROMISE(wf_sim_collective(&m, WF_SIM_ALL_REDUCE, 1e9, 64, 1) < 1e5);
    return 0;
}
