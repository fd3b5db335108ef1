/* parallel/checkpoint/save.c - a save as stages and agreements; see saver.h. */
#include "core/host_data.h"
#include "mesh/comm/collective.h"
#include "parallel/agree_internal.h"
#include "parallel/checkpoint/commit_internal.h"
#include "parallel/checkpoint/saver_internal.h"
#include "parallel/train/train_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wf_status wf_saver_file(wf_par_saver *s, int64_t rank, wf_file_mode mode, wf_file *file,
                        wf_error *error)
{
    char name[WF_CKPT_NAME];
    wf_ckpt_target target = {.partial = {.fd = -1}};
    wf_status status = wf_saver_folder(s, false, error);

    if (status == WF_OK)
        status = wf_ckpt_enter(&target, &s->folder, s->step, s->mark, error);
    if (status == WF_OK)
        status = wf_folder_file(&target.partial, wf_ckpt_file(name, rank), mode, file, error);
    wf_ckpt_leave(&target);
    if (status == WF_OK)
        file->need = s->need;
    return status;
}

const char *wf_saver_view(const wf_par_saver *s, const wf_piece *piece)
{
    return s->staging ? s->staging + piece->at : wf_piece_data(piece);
}

const char *wf_saver_data(const wf_par_saver *s, const wf_piece *piece)
{
    const char *data = wf_saver_view(s, piece);

    if (data)
        return data;
    wf_piece_copy(piece, s->room, true);
    return s->room;
}

static bool take_memory(wf_par_saver *s)
{
    wf_context *ctx = s->par->ctx;
    bool full = s->options.kind == WF_PAR_SAVE_FULL;
    int64_t numbers = full && s->header.count > WF_SUMS ? s->header.count : WF_SUMS;

    s->sum = calloc((size_t)numbers + 1, sizeof *s->sum);
    if (s->options.async)
        s->staging = wf_data_take(ctx, (size_t)s->pieces.bytes, WF_MEMORY_CHECKPOINT);
    else if (s->pieces.largest)
        s->room = wf_data_take(ctx, (size_t)s->pieces.largest, WF_MEMORY_CHECKPOINT);
    if (s->staging && !wf_context_dry_run(ctx))
        memset(s->staging, 0, (size_t)s->pieces.bytes); /* now, not when a step has to wait */
    if (!s->sum || !s->dir)
        wf_fail(ctx, WF_ENOMEM, "no memory to save checkpoints");
    return wf_context_status(ctx) == WF_OK;
}

/* Measures the header, which gives data their offsets. */
static wf_status measure_header(wf_par_saver *s, wf_error *error)
{
    char *header = NULL;
    size_t n = 0;
    wf_status status = wf_header_format(&s->header, &header, &n, error);

    free(header);
    s->header_bytes = (int64_t)n;
    return status;
}

static wf_status check(wf_par *par, const wf_par_save_options *o)
{
    if (!o->dir || !*o->dir || strlen(o->dir) > WF_CKPT_PATH - 128)
        return wf_fail(par->ctx, WF_EINVAL,
                       "a directory for checkpoints has a name of 1 to %d bytes",
                       WF_CKPT_PATH - 128);
    if (o->keep < 0 || o->keep == 1)
        return wf_fail(
            par->ctx, WF_EINVAL,
            "keep %d: at least 2 checkpoints stay, so that one is whole while another "
            "is damaged; 0 keeps all",
            o->keep);
    return WF_OK;
}

wf_par_saver *wf_par_saver_open(wf_par_trainer *trainer, const wf_par_save_options *options)
{
    wf_index_kind kind = (wf_index_kind)options->kind;
    wf_error error = {WF_OK, ""};
    wf_par_saver *s;
    wf_par *par;

    if (!trainer)
        return NULL;
    par = wf_par_trainer_state(trainer).par;
    if (wf_context_status(par->ctx) != WF_OK || check(par, options) != WF_OK)
        return NULL;
    s = calloc(1, sizeof *s);
    if (!s) {
        wf_fail(par->ctx, WF_ENOMEM, "no memory to save checkpoints");
        return NULL;
    }
    s->par = par;
    s->trainer = trainer;
    s->options = *options;
    s->dir = strdup(options->dir);
    s->calls = &wf_system_files;
    s->folder.fd = -1;
    if (wf_state_open(&s->state, trainer, &error) != WF_OK ||
        wf_pieces_open(&s->pieces, &s->state, kind, &error) != WF_OK ||
        wf_header_open(&s->header, &s->state, kind == WF_INDEX_FULL ? NULL : &s->pieces,
                       &error) != WF_OK ||
        measure_header(s, &error) != WF_OK)
        wf_fail(par->ctx, error.code, "%s", error.text);
    s->state.index.kind = kind;
    s->state.index.files = kind == WF_INDEX_FULL ? 1 : wf_mesh_ranks(par->mesh);
    if (error.code == WF_OK && take_memory(s))
        return s;
    wf_par_saver_close(s);
    return NULL;
}

static void join(wf_par_saver *s)
{
    if (s->threaded)
        pthread_join(s->thread, NULL);
    s->threaded = false;
}

void wf_par_saver_close(wf_par_saver *s)
{
    wf_context *ctx;

    if (!s)
        return;
    join(s);
    ctx = s->par->ctx;
    if (s->staging)
        wf_data_give(ctx, s->staging, (size_t)s->pieces.bytes, WF_MEMORY_CHECKPOINT);
    if (s->room)
        wf_data_give(ctx, s->room, (size_t)s->pieces.largest, WF_MEMORY_CHECKPOINT);
    wf_header_close(&s->header);
    wf_pieces_close(&s->pieces);
    wf_state_close(&s->state);
    wf_folder_close(&s->folder);
    free(s->published);
    free(s->sum);
    free(s->moved);
    free(s->dir);
    free(s);
}

static void *work(void *arg)
{
    wf_par_saver *s = arg;

    s->stage->work(s, &s->error);
    atomic_store(&s->done, true);
    return NULL;
}

static int64_t numbers_of(const wf_par_saver *s, const wf_save_stage *stage)
{
    switch (stage->numbers) {
    case WF_NUMBERS_BEGUN:
        return WF_BEGUN;
    case WF_NUMBERS_FILES:
        return WF_SUMS;
    case WF_NUMBERS_TENSORS:
        return s->header.count;
    case WF_NUMBERS_NONE:
        break;
    }
    return 0;
}

/* Begin a stage; without a thread it ends at once. One that has failed before is not begun. */
static void begin_stage(wf_par_saver *s, const wf_save_stage *stage, const wf_error *before)
{
    wf_comm *world = wf_mesh_world(s->par->mesh);

    s->stage = stage;
    s->error = *before;
    s->sums = numbers_of(s, stage);
    memset(s->sum, 0, (size_t)s->sums * sizeof *s->sum);
    atomic_store(&s->done, false);
    if (wf_context_dry_run(s->par->ctx) || before->code != WF_OK) {
        atomic_store(&s->done, true);
        return;
    }
    s->threaded = s->options.async && pthread_create(&s->thread, NULL, work, s) == 0;
    if (s->threaded)
        return;
    wf_comm_at_files(world, true);
    work(s); /* also where no thread is to be had: later, but as well */
    wf_comm_at_files(world, false);
}

/* The index is written later, when the caller's texts may have changed. */
static bool keep_options(wf_par_saver *s)
{
    wf_index *index = &s->state.index;

    wf_state_drop_options(&s->state);
    index->option = calloc(2 * (size_t)s->options.option_count + 1, sizeof *index->option);
    for (; index->option && index->option_count < s->options.option_count;
         index->option_count++) {
        char **to = index->option + 2 * index->option_count;
        const char *const *from = s->options.option + 2 * index->option_count;

        to[0] = strdup(from[0]);
        to[1] = strdup(from[1]);
        if (!to[0] || !to[1]) {
            free(to[0]);
            free(to[1]);
            return false;
        }
    }
    return index->option != NULL;
}

wf_status wf_par_saver_save(wf_par_saver *s, int64_t step, wf_error *error)
{
    wf_error before;

    if (!s)
        return wf_error_set(error, WF_EINVAL, "there is no saver");
    if (s->stage)
        return wf_error_set(
            error, WF_EINVAL,
            "the checkpoint of step %" PRId64
            " is still being written: wf_par_saver_finish comes before the next",
            s->step);
    s->step = step;
    s->state.index.step = step;
    s->state.index.skipped = wf_par_trainer_skipped(s->trainer);
    s->state.index.fresh = wf_par_trainer_fresh(s->trainer);
    wf_par_trainer_check(s->trainer);
    before = *wf_context_error(s->par->ctx);
    if (before.code == WF_OK && !keep_options(s))
        wf_error_set(&before, WF_ENOMEM, "no memory for the options of a checkpoint");
    if (s->staging && !wf_context_dry_run(s->par->ctx))
        for (int64_t i = 0; i < s->pieces.count; i++)
            wf_piece_copy(&s->pieces.piece[i], s->staging + s->pieces.piece[i].at, false);
    begin_stage(s, wf_save_stages((wf_index_kind)s->options.kind), &before);
    return s->options.async ? WF_OK : wf_par_saver_finish(s, error);
}

/* Stores the sums of all ranks' numbers. */
static void take_numbers(wf_par_saver *s)
{
    if (s->stage->numbers == WF_NUMBERS_FILES)
        memcpy(s->total, s->sum, sizeof s->total);
    if (s->stage->numbers != WF_NUMBERS_BEGUN)
        return;
    s->mark = s->sum[WF_BEGUN_MARK];
    s->need = (int64_t)s->sum[WF_BEGUN_NEED];
}

/* All ranks are done with a stage, or one has failed in it. */
static wf_status end_stage(wf_par_saver *s, wf_error *error)
{
    const wf_error none = {WF_OK, ""};
    wf_error mine;
    wf_status status;

    wf_comm_at_files(wf_mesh_world(s->par->mesh), true);
    join(s);
    wf_comm_at_files(wf_mesh_world(s->par->mesh), false);
    mine = s->error;
    status = wf_agree(s->par, s->sums, s->sum, &mine);
    if (status == WF_OK) {
        take_numbers(s);
        if (s->stage[1].work) {
            begin_stage(s, s->stage + 1, &none);
            return WF_OK;
        }
        s->saved = s->step;
    } else if (wf_context_rank(s->par->ctx) == 0 && s->mark) {
        wf_ckpt_abandon(&s->folder, s->step, s->mark);
    }
    s->mark = 0;
    s->stage = NULL;
    return status == WF_OK ? WF_OK : wf_error_set(error, mine.code, "%s", mine.text);
}

wf_status wf_par_saver_check(wf_par_saver *s, wf_error *error)
{
    if (!s || s->stage)
        return wf_error_set(error, WF_EINVAL, "a saver is checked before it saves");
    s->step = 0;
    begin_stage(s, wf_saver_check_stages(), wf_context_error(s->par->ctx));
    return wf_par_saver_finish(s, error);
}

wf_status wf_par_saver_poll(wf_par_saver *s, wf_error *error)
{
    uint64_t done;
    wf_error none = {WF_OK, ""};

    if (!s || !s->stage)
        return WF_OK;
    done = atomic_load(&s->done);
    if (wf_agree(s->par, 1, &done, &none) != WF_OK)
        return wf_error_set(error, none.code, "%s", none.text);
    return done == (uint64_t)wf_mesh_ranks(s->par->mesh) ? end_stage(s, error) : WF_OK;
}

wf_status wf_par_saver_finish(wf_par_saver *s, wf_error *error)
{
    wf_status status = WF_OK;

    while (s && s->stage && status == WF_OK)
        status = end_stage(s, error);
    return status;
}

bool wf_par_saver_busy(const wf_par_saver *s)
{
    return s && s->stage;
}

int64_t wf_par_saver_saved(const wf_par_saver *s)
{
    return s ? s->saved : 0;
}

char *wf_par_saver_path(const wf_par_saver *s, int64_t step, char *text, size_t size)
{
    char name[WF_CKPT_NAME];

    snprintf(text, size, "%s/%s", s->moved ? s->moved : s->dir, wf_ckpt_name(name, step));
    return text;
}
