/* parallel/pipeline/gen_naive.c - one micro-batch after the other: one rank at a time has
   work. */
#include "parallel/pipeline/table_internal.h"

wf_status wf_pipe_gen_naive(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    wf_pipe_assign_loop(t);
    for (int m = 0; m < shape->micro; m++) {
        for (int s = 0; s < shape->stages; s++)
            wf_pipe_table_add(t, t->stage_rank[s], WF_PIPE_F, s, m);
        for (int s = shape->stages - 1; s >= 0; s--)
            wf_pipe_table_add(t, t->stage_rank[s], WF_PIPE_B, s, m);
    }
    return t->error.code;
}
