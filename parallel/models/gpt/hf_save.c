/* parallel/models/gpt/hf_save.c - a model as a folder of Hugging Face, written by all ranks. */
#include "core/host_data.h"
#include "mesh/comm/collective.h"
#include "parallel/agree_internal.h"
#include "parallel/checkpoint/parts_internal.h"
#include "parallel/models/gpt/hf_writer_internal.h"
#include "parallel/models/gpt/pretrained.h"
#include "parallel/parallel_internal.h"
#include <stdlib.h>

/* Returns true where this rank, of those that hold the same part, writes it; they alternate by
   parameter. */
static bool writes_here(const wf_par *par, const wf_hf_writer *w, int64_t i)
{
    const wf_saved_mesh mesh = wf_saved_mesh_of(wf_par_mesh(par));
    const wf_saved_layout layout = wf_saved_layout_of(
        w->parameter[i]->tensor->layout, wf_par_state_of(w->parameter[i])->owning_rank);
    int64_t rank = wf_context_rank(wf_par_context(par));
    int coordinate[WF_MAX_AXES];

    wf_saved_mesh_coordinates(&mesh, rank, coordinate);
    return wf_saved_writer(&mesh, &layout, w->parameter[i]->tensor->ndim, i, coordinate) ==
           rank;
}

static void write_parameter(const wf_par *par, wf_hf_writer *w, int64_t i)
{
    const wf_part part = wf_hf_part(&w->location[i], w->parameter[i]->tensor);
    wf_host_data view;

    if (wf_part_count(&part) == 0 || !writes_here(par, w, i))
        return;
    wf_hf_writer_write(w, i, &part, wf_data_read_f32(w->parameter[i]->tensor, &view));
    wf_data_close(&view);
}

/* Makes all ranks continue, or stop with the first error among them. */
static wf_status agree(wf_par *par, wf_hf_writer *w)
{
    bool first = wf_context_rank(wf_par_context(par)) == 0;
    uint64_t mark = first ? w->mark : 0;
    wf_error error = w->error;

    if (wf_agree(par, 1, &mark, &error) == WF_OK) {
        w->mark = mark; /* the first one's */
        return WF_OK;
    }
    return wf_fail(wf_par_context(par), error.code, "%s", error.text);
}

static void write_parts(const wf_par *par, wf_hf_writer *w, const char *path)
{
    if (wf_hf_writer_open(w, path) != WF_OK)
        return;
    for (int64_t i = 0; i < w->count && w->error.code == WF_OK; i++)
        write_parameter(par, w, i);
    wf_hf_writer_close(w);
}

wf_status wf_par_pretrained_save(wf_par *par, wf_nn_gpt *model, const char *folder,
                                 const char *dtype, const char *like)
{
    wf_context *ctx = wf_par_context(par);
    wf_comm *world = wf_mesh_world(wf_par_mesh(par));
    wf_hf_writer *w;
    bool first = wf_context_rank(ctx) == 0;
    wf_status status;

    if (!model || wf_context_status(ctx) != WF_OK || wf_context_dry_run(ctx))
        return wf_context_status(ctx);
    w = calloc(1, sizeof *w);
    if (!w)
        return wf_fail(ctx, WF_ENOMEM, "no memory to save a model");
    w->model = model;
    w->like = like;
    wf_comm_at_files(world, true);
    if (wf_hf_writer_prepare(w, dtype) == WF_OK && first)
        wf_hf_writer_create(w, folder);
    wf_comm_at_files(world, false);
    status = agree(par, w);
    if (status == WF_OK) {
        wf_comm_at_files(world, true);
        write_parts(par, w, folder);
        wf_comm_at_files(world, false);
        status = agree(par, w);
    }
    if (status == WF_OK) {
        wf_comm_at_files(world, true);
        if (first)
            wf_hf_writer_publish(w, folder);
        wf_comm_at_files(world, false);
        status = agree(par, w);
    }
    wf_hf_writer_free(w);
    free(w);
    return status;
}
