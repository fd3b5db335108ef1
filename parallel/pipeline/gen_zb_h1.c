/* parallel/pipeline/gen_zb_h1.c - 1F1B whose gradients of weights wait for idle time, with no
   more live activations than its first rank has (Qi et al., 2401.10241). */
#include "parallel/pipeline/table_internal.h"

wf_status wf_pipe_gen_zb_h1(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    return wf_pipe_rounds(shape, t, 1, true);
}
