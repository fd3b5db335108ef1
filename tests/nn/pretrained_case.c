/* tests/nn/pretrained_case.c - see the header. */
#include "tests/nn/pretrained_case.h"
#include "parallel/formats/hf_files_internal.h"
#include <math.h>
#include <unistd.h>

wf_status compare_logits(model_rank *r, pretrained *p)
{
    wf_rank *rank = r->rank;
    safetensors_entry tokens, logits;
    double off = 0, largest = 0;
    wf_tensor *x, *y;

    NEED(safetensors_find(p->file, "tokens", "I32", &tokens));
    NEED(safetensors_find(p->file, "logits", "F32", &logits));
    wf_scope_open(r->ctx);
    x = wf_distribute(r->ctx, tokens.data, WF_I32, 2,
                      (wf_dim[]){wf_dim_batch(tokens.dim[0]), wf_dim_chunked(tokens.dim[1])},
                      wf_par_batch_layout(r->par));
    y = wf_whole(wf_nn_gpt_logits(r->model, x));
    NEED(y && wf_tensor_count(y) == logits.count);
    for (int64_t i = 0; i < logits.count; i++) {
        double theirs = (double)((const float *)logits.data)[i];
        double d = fabs((double)((float *)y->data)[i] - theirs);

        off = d > off || isnan(d) ? d : off;
        largest = fabs(theirs) > largest ? fabs(theirs) : largest;
    }
    wf_scope_close(r->ctx);
    NEED(off < 2e-5 * largest);
    if (rank->index == 0)
        p->off = off / largest;
    return WF_OK;
}

wf_status load_and_compare(model_rank *r, void *arg)
{
    pretrained *p = arg;

    GOOD(wf_par_pretrained_load(r->par, r->model, p->folder));
    return compare_logits(r, p);
}

bool same_tensors(const char *a, const char *b)
{
    wf_error error = {WF_OK, ""};
    wf_hf_files files[2];
    int64_t count[2] = {0, 0};
    bool same = true;

    CU_ASSERT_EQUAL(wf_hf_files_open(&files[0], &wf_system_files, a, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_hf_files_open(&files[1], &wf_system_files, b, &error), WF_OK);
    for (int i = 0; i < 2; i++)
        for (int64_t f = 0; f < files[i].count; f++)
            count[i] += files[i].file[f].header.count;
    same = count[0] == count[1] && count[0] > 0;
    for (int64_t f = 0; f < files[0].count; f++)
        for (int64_t k = 0; k < files[0].file[f].header.count && same; k++) {
            const wf_safetensors_entry *x = &files[0].file[f].header.entry[k];
            int64_t other;
            const wf_safetensors_entry *y = wf_hf_find(&files[1], x->name, &other);
            size_t n = (size_t)(x->end - x->begin);
            char *read[2] = {malloc(n + 1), malloc(n + 1)};
            const wf_file *file;

            same = y && x->dtype == y->dtype && x->ndim == y->ndim &&
                   memcmp(x->shape, y->shape, sizeof x->shape) == 0 && read[0] && read[1];
            same = same && wf_hf_reader(&files[0], f, &file, &error) == WF_OK &&
                   wf_file_read(file, read[0], n, files[0].file[f].header.data + x->begin,
                                &error) == WF_OK;
            same = same && wf_hf_reader(&files[1], other, &file, &error) == WF_OK &&
                   wf_file_read(file, read[1], n, files[1].file[other].header.data + y->begin,
                                &error) == WF_OK;
            same = same && memcmp(read[0], read[1], n) == 0;
            if (!same)
                printf("\n    %s differs: %s\n", x->name, error.text);
            free(read[0]);
            free(read[1]);
        }
    wf_hf_files_close(&files[0]);
    wf_hf_files_close(&files[1]);
    return same;
}

wf_status load_and_save(model_rank *r, void *arg)
{
    pretrained *p = arg;
    wf_error error = {WF_OK, ""};

    GOOD(wf_par_pretrained_fits(r->par, r->model, p->folder, &error));
    GOOD(wf_par_pretrained_load(r->par, r->model, p->folder));
    return wf_par_pretrained_save(r->par, r->model, p->saved, p->dtype, p->like);
}

void remove_folder(const char *folder)
{
    CU_ASSERT_EQUAL(access(folder, F_OK), 0);
    wf_test_remove(folder);
}
