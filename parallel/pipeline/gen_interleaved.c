/* parallel/pipeline/gen_interleaved.c - 1F1B over several stages a rank: a bubble smaller by
   their number, for more live activations and messages (Narayanan et al., 2104.04473). */
#include "parallel/pipeline/table_internal.h"

wf_status wf_pipe_gen_interleaved(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    return wf_pipe_rounds(shape, t, 2, false);
}
