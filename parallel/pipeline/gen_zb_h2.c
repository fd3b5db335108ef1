/* parallel/pipeline/gen_zb_h2.c - no idle time inside a rank's span, for twice the live
   activations of 1F1B (Qi et al., 2401.10241). */
#include "parallel/pipeline/table_internal.h"

wf_status wf_pipe_gen_zb_h2(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    wf_status status = wf_pipe_one_stage("zb-h2", t, "zb-h1");

    if (status != WF_OK)
        return status;
    return wf_pipe_table_list(t, &(wf_pipe_list_rule){.cap = 2 * shape->ranks - 1});
}
