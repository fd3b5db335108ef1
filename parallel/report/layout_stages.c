/* parallel/report/layout_stages.c - the stages of a pipeline, printed; see layout.h. */
#include "parallel/report/layout.h"
#include <inttypes.h>
#include <stdlib.h>

/* The first and the last module of a stage; its head is step number `end` of a chain of `end`
   steps. */
typedef struct span {
    const wf_nn_module *first, *last;
    int64_t parameters;
} span;

static void add_step(span *s, const wf_nn_module *model, int64_t step)
{
    wf_nn_module *m;

    for (int k = 0; (m = wf_nn_chain_module(model, step, k)); k++) {
        int64_t count = 0;
        wf_nn_parameter **p = wf_nn_parameters(m, &count);

        for (int64_t i = 0; p && i < count; i++)
            s->parameters += wf_tensor_count(p[i]->tensor);
        free(p);
        s->first = s->first ? s->first : m;
        s->last = m;
    }
}

void wf_par_print_stages(FILE *out, const wf_par_pipeline *pipeline, wf_nn_module *model)
{
    const wf_pipe_table *table = wf_par_pipeline_table(pipeline);
    int stages = wf_par_pipeline_stages(pipeline);

    fprintf(out, "  %-6s %4s %14s  %s\n", "stage", "pp", "parameters", "modules");
    for (int s = 0; s < stages; s++) {
        int64_t end = wf_par_pipeline_first(pipeline, s + 1);
        span of = {.parameters = 0};

        for (int64_t i = wf_par_pipeline_first(pipeline, s); i < end; i++)
            add_step(&of, model, i);
        if (s == stages - 1)
            add_step(&of, model, end);
        fprintf(out, "  %-6d %4d %14" PRId64 "  ", s, wf_pipe_table_rank(table, s),
                of.parameters);
        if (of.first == of.last)
            fprintf(out, "%s\n", of.first ? of.first->path : "none: it hands on what it gets");
        else
            fprintf(out, "%s to %s\n", of.first->path, of.last->path);
    }
    fputc('\n', out);
}
