/* parallel/pipeline/gen_v_min.c - about a third of the live activations of 1F1B, the least that
   a V can do with at no loss in the steady state (Qi et al., 2405.15362). */
#include "parallel/pipeline/table_internal.h"

wf_status wf_pipe_gen_v_min(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    (void)shape;
    return wf_pipe_repeat_block("v-min", (wf_pipe_block){1, 1, 1, 1}, t);
}
