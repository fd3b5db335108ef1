/* parallel/models/gpt/lora_base.c - the checksum of what adapters are for: the digest of all
   that is frozen. */
#include "core/host_data.h"
#include "core/numerics/bf16.h"
#include "core/numerics/digest.h"
#include "parallel/agree_internal.h"
#include "core/files/part_internal.h"
#include "parallel/models/gpt/lora.h"
#include "parallel/parallel_internal.h"
#include <stdlib.h>

/* Adds the digest of the part of a parameter here, its values as the type would store them. */
static wf_status add_part(const wf_par *par, const wf_nn_parameter *p, wf_dtype as,
                          uint64_t *sum)
{
    wf_part part = wf_part_of_tensor(p->tensor);
    int64_t size[WF_MAX_DIMS], n = wf_part_count(&part);
    wf_host_data view;
    const float *data;
    float *rounded = NULL;

    if (wf_tensor_is_fake(p->tensor) || !n || !wf_par_counts_here(par, p, p->tensor))
        return WF_OK;
    for (int d = 0; d < p->tensor->ndim; d++)
        size[d] = p->tensor->dim[d].size;
    data = wf_data_read_f32(p->tensor, &view);
    if (data && as == WF_BF16 && (rounded = malloc((size_t)n * sizeof *rounded)))
        for (int64_t i = 0; i < n; i++)
            rounded[i] = wf_bf16_value(wf_bf16_of(data[i]));
    if (data && as == WF_BF16 && !rounded)
        wf_fail(par->ctx, WF_ENOMEM, "no memory for the checksum of %s", p->path);
    else if (data)
        *sum += wf_digest_part(wf_digest_path(p->path), 0, part.ndim, size, part.start,
                               part.local, rounded ? rounded : data);
    free(rounded);
    wf_data_close(&view);
    return wf_context_status(par->ctx);
}

wf_status wf_par_lora_base(wf_par *par, wf_nn_gpt *model, wf_dtype as, uint64_t *digest)
{
    wf_error error = *wf_context_error(par->ctx);
    uint64_t sum = 0;
    int64_t count;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &count);

    if (!p)
        wf_error_set(&error, WF_ENOMEM, "no memory for a list of parameters");
    for (int64_t i = 0; p && i < count && error.code == WF_OK; i++)
        if (p[i]->frozen && add_part(par, p[i], as, &sum) != WF_OK)
            error = *wf_context_error(par->ctx);
    free(p);
    if (wf_agree(par, 1, &sum, &error) != WF_OK)
        return wf_context_status(par->ctx) != WF_OK
                   ? wf_context_status(par->ctx)
                   : wf_fail(par->ctx, error.code, "%s", error.text);
    *digest = sum;
    return WF_OK;
}
