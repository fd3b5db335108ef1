/* parallel/models/gpt/hf_convert.c - files of weights as a folder, a parameter at a time; see
   pretrained.h. */
#include "parallel/models/gpt/hf_upcycle_internal.h"
#include "parallel/models/gpt/hf_writer_internal.h"
#include "parallel/models/gpt/pretrained_internal.h"
#include <stdlib.h>

static wf_status convert_parameter(wf_hf_writer *w, const wf_hf_upcycling *u,
                                   wf_hf_weights *from, int64_t i)
{
    const wf_nn_parameter *p = w->parameter[i];
    const wf_part part = wf_hf_part(&w->location[i], p->tensor);
    float *whole = malloc((size_t)wf_tensor_count(p->tensor) * sizeof *whole);

    if (!whole)
        wf_error_set(&w->error, WF_ENOMEM, "no memory to convert %s", p->path);
    else if (wf_hf_upcycling_read(u, from, &w->model->config, p, whole, &w->error) == WF_OK)
        wf_hf_writer_write(w, i, &part, whole);
    free(whole);
    return w->error.code;
}

static void convert_all(wf_hf_writer *w, wf_hf_weights *from, const char *folder)
{
    wf_hf_upcycling u;

    if (wf_hf_writer_open(w, folder) != WF_OK)
        return;
    wf_hf_upcycling_open(&u, w->model, from, &w->error);
    for (int64_t i = 0; i < w->count && w->error.code == WF_OK; i++)
        convert_parameter(w, &u, from, i);
    wf_hf_upcycling_close(&u);
    if (w->error.code == WF_OK)
        wf_hf_weights_check_unused(from, &w->error);
    if (wf_hf_writer_close(w) == WF_OK)
        wf_hf_writer_publish(w, folder);
}

wf_status wf_par_pretrained_convert(wf_nn_gpt *model, const char *from, const char *folder,
                                    const char *dtype, const char *like, wf_error *error)
{
    wf_hf_writer w = {.model = model, .like = like, .whole = true};
    wf_hf_weights weights;

    if (wf_hf_weights_open(&weights, &wf_system_files, from, &model->config, &w.error) ==
            WF_OK &&
        wf_hf_writer_prepare(&w, dtype) == WF_OK && wf_hf_writer_create(&w, folder) == WF_OK)
        convert_all(&w, &weights, folder);
    wf_hf_weights_close(&weights);
    wf_hf_writer_free(&w);
    *error = w.error;
    return error->code;
}
