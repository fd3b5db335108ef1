/* parallel/pipeline/gen_gpipe.c - all forwards, then all backwards (Huang et al.,
   1811.06965). */
#include "parallel/pipeline/table_internal.h"

wf_status wf_pipe_gen_gpipe(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    wf_status status = wf_pipe_one_stage("gpipe", t, "looped-bfs");

    return status == WF_OK ? wf_pipe_all_forward(shape, t) : status;
}
