/* parallel/pipeline/gen_1f1b.c - one forward, one backward: as many live activations as there
   are ranks from here to the last one (Narayanan et al., 1806.03377). */
#include "parallel/pipeline/table_internal.h"

wf_status wf_pipe_gen_1f1b(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    wf_status status = wf_pipe_one_stage("1f1b", t, "interleaved");

    return status == WF_OK ? wf_pipe_rounds(shape, t, 1, false) : status;
}
