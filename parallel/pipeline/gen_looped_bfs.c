/* parallel/pipeline/gen_looped_bfs.c - all micro-batches through a stage before the next stage
   of the rank (breadth first; Lamy-Poirier, 2211.05953). */
#include "parallel/pipeline/table_internal.h"

wf_status wf_pipe_all_forward(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    wf_pipe_assign_loop(t);
    for (int s = 0; s < shape->stages; s++)
        for (int m = 0; m < shape->micro; m++)
            wf_pipe_table_add(t, t->stage_rank[s], WF_PIPE_F, s, m);
    for (int s = shape->stages - 1; s >= 0; s--)
        for (int m = 0; m < shape->micro; m++)
            wf_pipe_table_add(t, t->stage_rank[s], WF_PIPE_B, s, m);
    return t->error.code;
}

wf_status wf_pipe_gen_looped_bfs(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    return wf_pipe_all_forward(shape, t);
}
