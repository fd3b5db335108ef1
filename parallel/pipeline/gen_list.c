/* parallel/pipeline/gen_list.c - list scheduling with stages that go round the ranks. */
#include "parallel/pipeline/table_internal.h"

wf_status wf_pipe_gen_list(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    wf_pipe_assign_loop(t);
    return wf_pipe_table_list(t, &(wf_pipe_list_rule){.cap = shape->cap});
}
