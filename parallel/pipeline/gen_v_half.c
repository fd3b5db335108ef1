/* parallel/pipeline/gen_v_half.c - half the live activations of 1F1B (Qi et al.,
   2405.15362). */
#include "parallel/pipeline/table_internal.h"

wf_status wf_pipe_gen_v_half(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    (void)shape;
    return wf_pipe_repeat_block("v-half", (wf_pipe_block){2, 1, 2, 1}, t);
}
