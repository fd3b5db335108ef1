/* core/context.c - the context of a rank: its settings, its device, its first error. */
#include "core/context_internal.h"
#include "core/coroutine_internal.h"
#include "core/dtype.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(offsetof(struct wf_context, failure) == 0,
               "wf_fail takes a context to be its failure");

static wf_status check(const wf_context_options *o, wf_error *error)
{
    int most = o->exact_tp ? o->exact_tp : WF_MAX_CHUNKS;

    if (most < 1 || most > WF_MAX_CHUNKS || (most & (most - 1)))
        return wf_error_set(
            error, WF_EINVAL,
            ".exact_tp %d is none of 1, 2, 4 and 8, the tensor-parallel ranks up "
            "to which numbers are those of one rank",
            most);
    if (o->exact_tp && o->exact_off)
        return wf_error_set(error, WF_EINVAL,
                            ".exact_tp %d: sums are cut in chunks for exactness, which is off "
                            "(.exact_off): use one of the two",
                            o->exact_tp);
    return WF_OK;
}

wf_context *wf_context_open(wf_device *device, const wf_context_options *options,
                            wf_error *error)
{
    wf_allocator fake = wf_fake_allocator();
    wf_context *ctx;

    if (!device)
        return NULL; /* who could not make it has said why */
    if (options && check(options, error) != WF_OK) {
        device->close(device);
        return NULL;
    }
    ctx = calloc(1, sizeof *ctx);
    if (!ctx) {
        wf_error_set(error, WF_ENOMEM, "no memory for a context");
        device->close(device);
        return NULL;
    }
    if (options)
        ctx->options = *options;
    ctx->failure.rank = ctx->options.rank;
    ctx->device = device;
    ctx->now.kind = WF_MEMORY_ACTIVATION;
    ctx->now.storage = device->dtype;
    ctx->pool = wf_pool_open(ctx->options.plan ? &fake : &device->allocator,
                             ctx->options.memory_limit, error);
    if (!ctx->pool) {
        device->close(device);
        free(ctx);
        return NULL;
    }
    if (wf_handles_open(ctx, error) != WF_OK) {
        wf_context_close(ctx);
        return NULL;
    }
    wf_scope_open(ctx); /* the outermost scope, closed with the context */
    if (ctx->failure.error.code != WF_OK) {
        wf_error_set(error, ctx->failure.error.code, "%s", ctx->failure.error.text);
        wf_context_close(ctx);
        return NULL;
    }
    return ctx;
}

void wf_context_close(wf_context *ctx)
{
    if (!ctx)
        return;
    if (wf_context_running() == ctx)
        wf_context_run(NULL);
    if (ctx->device->memory || ctx->options.offload_dir)
        /* a pool does not know what is in use there */
        wf_scopes_empty(&ctx->now.scopes);
    wf_together_close(ctx);
    wf_coroutine_close(ctx->beside);
    wf_handles_close(ctx);
    wf_offload_close(ctx);
    wf_pool_close(ctx->pool); /* frees the data of tensors that are still held, too */
    wf_blocks_close(&ctx->blocks);
    ctx->device->close(ctx->device);
    for (int i = 0; i < WF_EXTENSIONS; i++)
        free(ctx->extension[i].data);
    wf_scopes_free(&ctx->now.scopes);
    free(ctx);
}

wf_status wf_context_status(const wf_context *ctx)
{
    return ctx->failure.error.code;
}

const wf_error *wf_context_error(const wf_context *ctx)
{
    return &ctx->failure.error;
}

void wf_context_clear(wf_context *ctx)
{
    memset(&ctx->failure.error, 0, sizeof ctx->failure.error);
}

wf_device *wf_context_device(wf_context *ctx)
{
    return ctx->device;
}

wf_pool *wf_context_pool(wf_context *ctx)
{
    return ctx->pool;
}

wf_blocks *wf_context_blocks(wf_context *ctx)
{
    return &ctx->blocks;
}

int wf_context_rank(const wf_context *ctx)
{
    return ctx->failure.rank;
}

uint64_t wf_context_seed(const wf_context *ctx)
{
    return ctx->options.seed;
}

wf_dtype wf_context_compute(const wf_context *ctx)
{
    return ctx->options.compute_fp32 ? ctx->device->dtype : WF_BF16;
}

bool wf_context_fp32_residual(const wf_context *ctx)
{
    return ctx->options.fp32_residual;
}

void *wf_context_extension(wf_context *ctx, const wf_extension *extension)
{
    int i = 0;

    while (i < WF_EXTENSIONS && ctx->extension[i].of && ctx->extension[i].of != extension)
        i++;
    if (i == WF_EXTENSIONS) {
        wf_fail(ctx, WF_EINVAL,
                "extension %s of a context: it has %d others already, which is the most",
                extension->name, WF_EXTENSIONS);
        return NULL;
    }
    if (!ctx->extension[i].of) {
        ctx->extension[i].data = calloc(1, extension->bytes);
        if (!ctx->extension[i].data || !wf_beside_extend(ctx, i, extension)) {
            free(ctx->extension[i].data);
            ctx->extension[i].data = NULL;
            wf_fail(ctx, WF_ENOMEM, "no memory for extension %s of a context", extension->name);
            return NULL;
        }
        ctx->extension[i].of = extension;
    }
    return ctx->extension[i].data;
}

const char *wf_context_inexact(const wf_context *ctx)
{
    return ctx->inexact[0] ? ctx->inexact : NULL;
}

void wf_context_inexact_clear(wf_context *ctx)
{
    ctx->inexact[0] = 0;
}

void wf_context_report_inexact(wf_context *ctx, const char *format, ...)
{
    va_list args;

    if (ctx->inexact[0])
        return;
    va_start(args, format);
    vsnprintf(ctx->inexact, sizeof ctx->inexact, format, args);
    va_end(args);
}

bool wf_context_exact(const wf_context *ctx)
{
    return !ctx->options.exact_off;
}

int wf_context_chunks(const wf_context *ctx)
{
    const wf_context_options *o = &ctx->options;

    return o->exact_off ? 1 : o->exact_tp ? o->exact_tp : WF_MAX_CHUNKS;
}

bool wf_context_dry_run(const wf_context *ctx)
{
    return ctx->options.plan;
}

size_t wf_context_row_block(const wf_context *ctx)
{
    return ctx->options.row_block;
}

void wf_context_position(wf_context *ctx, int64_t step, wf_sequences sequences)
{
    ctx->now.step = step;
    ctx->now.sequences = sequences;
}

void wf_context_micro_steps(wf_context *ctx, int64_t count)
{
    ctx->now.micro_steps = count;
}

void wf_context_batch(wf_context *ctx, int64_t sequences)
{
    ctx->now.batch = sequences;
}

int64_t wf_context_batch_now(const wf_context *ctx)
{
    return ctx->now.batch;
}

void wf_context_rows_unreduced(wf_context *ctx, bool unreduced)
{
    ctx->now.rows_unreduced = unreduced;
}

bool wf_context_has_rows_unreduced(const wf_context *ctx)
{
    return ctx->now.rows_unreduced;
}

int64_t wf_context_step(const wf_context *ctx)
{
    return ctx->now.step;
}

wf_sequences wf_context_sequences(const wf_context *ctx)
{
    return ctx->now.sequences;
}

void wf_context_training(wf_context *ctx, bool training)
{
    ctx->now.evaluating = !training;
}

bool wf_context_is_training(const wf_context *ctx)
{
    return !ctx->now.evaluating;
}

double wf_context_flops(const wf_context *ctx)
{
    return ctx->flops;
}

double wf_context_model_flops(const wf_context *ctx)
{
    return ctx->model_flops;
}

double wf_context_model_share(wf_context *ctx, double share)
{
    double before = 1 - ctx->now.repeated;

    ctx->now.repeated = 1 - share;
    return before;
}

void wf_distribution_set(wf_context *ctx, const wf_distribution *distribution, void *mesh)
{
    ctx->distribution = distribution;
    ctx->mesh = mesh;
}

void *wf_distribution_mesh(const wf_context *ctx)
{
    return ctx->mesh;
}

wf_memory_kind wf_context_memory_kind_now(const wf_context *ctx)
{
    return ctx->now.kind;
}

wf_memory_kind wf_context_memory_kind(wf_context *ctx, wf_memory_kind kind)
{
    wf_memory_kind last = ctx->now.kind;

    ctx->now.kind = kind;
    return last;
}

bool wf_context_narrows(const wf_context *ctx, wf_dtype dtype)
{
    return wf_dtype_is_narrow(dtype) && (dtype == WF_BF16 || ctx->options.plan);
}

/* An error's text is written where there is no memory alone: to clear it takes longer than to
   find a block, and ops take blocks all the time. */
void *wf_context_take(wf_context *ctx, wf_pool *pool, size_t bytes, wf_memory_kind kind,
                      const char *what)
{
    wf_error error;
    void *block;

    error.code = WF_OK;
    block = wf_pool_take(pool, bytes, kind, &error);
    if (!block)
        wf_fail(ctx, error.code, "%s%s%s", what ? what : "", what ? ": " : "", error.text);
    return block;
}

wf_dtype wf_context_storage(wf_context *ctx, wf_dtype dtype)
{
    wf_dtype last = ctx->now.storage;

    if (dtype == ctx->device->dtype || wf_context_narrows(ctx, dtype))
        ctx->now.storage = dtype;
    else
        wf_fail(ctx, WF_EDTYPE, "results cannot be stored as %s: device %s has %s and bf16",
                wf_dtype_name(dtype), ctx->device->name, wf_dtype_name(ctx->device->dtype));
    return last;
}
