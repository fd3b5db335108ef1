/* apps/gpt_train/startup_banner.c - what a run says before its first step: model, mesh and
   data. */
#include "apps/gpt_train/startup_banner.h"
#include <inttypes.h>
#include <stdlib.h>

/* All, or those alone that are trained. */
static int64_t count_parameters(wf_nn_module *model, bool trained)
{
    int64_t count, sum = 0;
    wf_nn_parameter **all = wf_nn_parameters(model, &count);

    for (int64_t i = 0; all && i < count; i++) {
        int64_t elements = 1;

        for (int d = 0; d < all[i]->tensor->ndim; d++)
            elements *= all[i]->tensor->dim[d].size;
        sum += trained && (all[i]->frozen || wf_nn_is_counts(all[i])) ? 0 : elements;
    }
    free(all);
    return sum;
}

/* As PEFT counts: adapters, and what is trained beside them, of all that there is. */
static void print_adapters(FILE *out, const app_options *o, wf_nn_module *model)
{
    int64_t trained = count_parameters(model, true), all = count_parameters(model, false);

    if (o->lora_rank)
        fprintf(out,
                "adapters: rank %" PRId64 ", alpha %g%s, on %s; %" PRId64 " of %" PRId64
                " parameters are trained (%.4f %%)\n",
                o->lora_rank, o->lora_alpha, o->rslora ? " over the root of the rank" : "",
                o->lora_targets, trained, all, 100 * (double)trained / (double)all);
}

static void print_data(FILE *out, const app_options *o, const wf_dataset *data)
{
    wf_dataset_print(out, data, o->steps);
    if (wf_dataset_is_text(data) && o->vocab_size > 256)
        fprintf(
            stderr,
            "gpt_train: warning: --vocab-size %" PRId64
            " is more than the 256 bytes that text has: its entries from 256 on never occur\n",
            o->vocab_size);
}

void app_print_banner(FILE *out, const app_options *o, wf_nn_module *model,
                      const wf_par_pipeline *pipeline, const wf_dataset *data)
{
    int processes = wf_launcher_detected().processes;

    fprintf(out,
            "model: %s, layers %" PRId64 ", heads %" PRId64 ", width %" PRId64
            ", vocabulary %" PRId64 "; %" PRId64 " parameters in %s\n",
            o->arch, o->n_layer, o->n_head, o->n_embd, o->vocab_size,
            count_parameters(model, false), o->param_dtype);
    print_adapters(out, o, model);
    fprintf(out, "mesh: ");
    if (app_options_pipelined(o))
        fprintf(out, "pp %" PRId64 " x ", o->pp);
    fprintf(out, "tp %" PRId64 " x dp %" PRId64, o->tp, o->dp);
    if (o->cp > 1)
        fprintf(out, " x cp %" PRId64, o->cp);
    if (o->etp > 1 || o->ep > o->tp)
        fprintf(out, " with ep %" PRId64, o->ep ? o->ep : 1);
    if (o->etp > 1)
        fprintf(out, ", etp %" PRId64, o->etp);
    fprintf(out, " on %s", o->device);
    if (o->dp > 1)
        fprintf(out, ", %s", o->strategy);
    if (processes > 1)
        fprintf(out, ", in %d processes", processes);
    fprintf(out, ", %" PRId64 " thread%s a rank\n", o->threads_per_rank,
            o->threads_per_rank == 1 ? "" : "s");
    if (pipeline)
        fprintf(out, "%s\n", wf_par_pipeline_text(pipeline));
    if (data)
        print_data(out, o, data);
    fflush(out);
}
