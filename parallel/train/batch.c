/* parallel/train/batch.c - what a loss function asks of its batch. */
#include "parallel/train/batch.h"
#include "parallel/parallel_internal.h"
#include <string.h>

/* The names of a batch's fields, with commas between them. */
static const char *names_of(const wf_par_batch *batch, char *text, size_t size)
{
    *text = '\0';
    for (int i = 0; i < batch->fields; i++)
        wf_par_add_name(text, size, batch->field[i].name);
    return batch->fields ? text : "none";
}

wf_tensor *wf_par_batch_tensor(const wf_par_batch *batch, const char *name)
{
    char names[256];
    int i = 0;

    if (!batch)
        return NULL;
    while (i < batch->fields && strcmp(batch->field[i].name, name) != 0)
        i++;
    if (i == batch->fields) {
        wf_fail(batch->ctx, WF_EINVAL,
                "a batch has no field %s; the trainer's options name these: %s", name,
                names_of(batch, names, sizeof names));
        return NULL;
    }
    if (!batch->tensor[i])
        wf_fail(batch->ctx, WF_EINVAL,
                "field %s of the batch was not read: the micro-step began without data", name);
    return batch->tensor[i];
}

float wf_par_batch_weight(const wf_par_batch *batch, const wf_tensor *like)
{
    int64_t elements = 1;

    if (!batch || !like)
        return 0;
    if (batch->counted >= 0)
        return batch->counted ? 1.0f / (float)batch->counted : 0;
    for (int d = 1; d < like->ndim; d++)
        elements *= like->dim[d].size;
    return 1.0f / (float)(batch->global_batch * elements);
}
