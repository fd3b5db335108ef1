/*
 * dtensor.c - tensors over a mesh, by hand: PyTorch's DTensor tutorial. Above each step are its
 * lines of PyTorch; split is Shard(dim), whole is Replicate(), partial is Partial(). Every rank
 * of 2 x 2 checks every number.
 */
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

enum { BATCH = 4, IN = 6, OUT = 5 };

static const wf_dim x_dims[] = {{BATCH, 1, WF_CHUNKS_EACH}, {IN, 1, WF_CHUNKS_8}};
static const wf_dim w_dims[] = {{OUT, 1, WF_CHUNKS_1}, {IN, 1, WF_CHUNKS_8}};

static const wf_layout *layout(wf_context *ctx, const char *text)
{
    const wf_layout *parsed;

    wf_layout_parse(wf_mesh_of(ctx), text, &parsed);
    return parsed;
}

/* Prints where a tensor lies, and compares the whole of it with what it has to be. */
static void expect(wf_context *ctx, const char *what, wf_tensor *t, const float *value)
{
    wf_tensor *all = t ? wf_whole(wf_detach(t)) : NULL;
    char text[256];

    if (!all)
        wf_fail(ctx, WF_EINTERNAL, "there is no %s", what); /* keeps an earlier error */
    else if (memcmp(all->data, value, (size_t)wf_tensor_count(all) * sizeof *value) != 0)
        wf_fail(ctx, WF_EINTERNAL, "%s has other numbers", what);
    else if (wf_context_rank(ctx) == 0)
        printf("%-26s %s\n", what, wf_tensor_describe(t, text, sizeof text));
}

/* The gradient of the sum of all elements: tensor.sum().backward() */
static void backward_of_sum(wf_tensor *t)
{
    wf_tensor *ones =
        t ? wf_tensor_new(t->ctx, WF_F32, t->ndim, t->dim,
                          wf_layout_dual(wf_mesh_of(t->ctx), t->layout), WF_MEMORY_ACTIVATION)
          : NULL;

    if (ones && wf_init_fill(ones, 1) == WF_OK)
        wf_backward(t, ones, false);
}

/* y = x @ w.T and w.grad, as every rank knows them. */
static float xs[BATCH * IN], ws[OUT * IN], ys[BATCH * OUT], dws[OUT * IN], dxs[BATCH * IN];

static void fill_in(void)
{
    for (int i = 0; i < BATCH * IN; i++) {
        xs[i] = (float)((i / IN + 1) * (i % IN - 2));
        dxs[i] = 2 * xs[i]; /* the gradient of the sum of squares */
    }
    for (int i = 0; i < OUT * IN; i++)
        ws[i] = (float)(i / IN - i % IN);
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < OUT * IN; i++) {
            ys[b * OUT + i / IN] += xs[b * IN + i % IN] * ws[i];
            dws[i] += xs[b * IN + i % IN];
        }
}

static void product(wf_context *ctx)
{
    /* x = distribute_tensor(xs, mesh, [Shard(0), Shard(1)])
       w = distribute_tensor(ws, mesh, [Replicate(), Shard(1)]).requires_grad_() */
    wf_tensor *x = wf_distribute(ctx, xs, WF_F32, 2, x_dims, layout(ctx, "[dp, tp]"));
    wf_tensor *w = wf_leaf(wf_distribute(ctx, ws, WF_F32, 2, w_dims, layout(ctx, "[*, tp]")));
    wf_tensor *y;

    expect(ctx, "x", x, xs);

    /* y = x @ w.T                      # [Shard(0), Partial()]
       y = y.redistribute(placements=[Shard(0), Replicate()])
       y.full_tensor().sum().backward() */
    y = wf_linear(x, w);
    expect(ctx, "x w^T", y, ys);
    y = wf_redistribute(y, layout(ctx, "[dp]"));
    expect(ctx, "redistributed", y, ys);
    y = wf_whole(y);
    expect(ctx, "full_tensor", y, ys);
    backward_of_sum(y);
    expect(ctx, "w.grad", w ? w->grad : NULL, dws);
}

static void local_parts(wf_context *ctx)
{
    /* part = my_part_of(xs).requires_grad_()
       x = DTensor.from_local(part, mesh, [Shard(0), Shard(1)])
       (x * x).sum().backward(); part.grad */
    wf_dim dims[] = {wf_dim_width(BATCH / 2), wf_dim_width(IN / 2)};
    wf_tensor *part = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION), *x;
    int row = wf_mesh_coordinate(wf_mesh_of(ctx), 0) * (BATCH / 2);
    int column = wf_mesh_coordinate(wf_mesh_of(ctx), 1) * (IN / 2);

    for (int i = 0; part && i < BATCH / 2 * (IN / 2); i++)
        ((float *)part->data)[i] = xs[(row + i / (IN / 2)) * IN + column + i % (IN / 2)];
    part = wf_leaf(part);
    x = wf_from_local(part, 2, x_dims, layout(ctx, "[dp, tp]"));
    expect(ctx, "from_local", x, xs);
    backward_of_sum(wf_mul(x, x));
    x = wf_from_local(part ? part->grad : NULL, 2, x_dims, layout(ctx, "[dp, tp]"));
    expect(ctx, "part.grad", x, dxs);
}

static void own_shares(wf_context *ctx)
{
    /* w = distribute_tensor(ws, mesh, [Replicate(), Replicate()]).requires_grad_()
       mine = w.to_local(grad_placements=[Replicate(), Partial()])  # each tp rank adds its
       share (mine * (mesh.get_local_rank("tp") + 1)).sum().backward() */
    wf_tensor *w = wf_leaf(wf_distribute(ctx, ws, WF_F32, 2, w_dims, NULL));
    wf_tensor *mine = wf_to_local(w, layout(ctx, "whole partial(tp)"));
    float three[OUT * IN];

    for (int i = 0; i < OUT * IN; i++)
        three[i] = 1 + 2;
    backward_of_sum(wf_scale(mine, (float)wf_mesh_coordinate(wf_mesh_of(ctx), 1) + 1));
    expect(ctx, "gradient through to_local", w ? w->grad : NULL, three);
}

/* DTensor would gather here without a word; Weft says what would fit. */
static void refused(wf_context *ctx)
{
    if (wf_linear(wf_distribute(ctx, xs, WF_F32, 2, x_dims, NULL),
                  wf_distribute(ctx, ws, WF_F32, 2, w_dims, layout(ctx, "[*, tp]"))) ||
        wf_context_status(ctx) != WF_ELAYOUT) {
        wf_fail(ctx, WF_EINTERNAL, "operands that do not fit were not refused");
        return;
    }
    if (wf_context_rank(ctx) == 0)
        printf("refused: %s\n", wf_context_error(ctx)->text);
    wf_context_clear(ctx);
}

static wf_status tutorial(wf_par *par, void *unused)
{
    wf_context *ctx = wf_par_context(par);
    wf_tape *tape = wf_tape_open(ctx);

    (void)unused;
    product(ctx);
    local_parts(ctx);
    own_shares(ctx);
    wf_tape_close(tape);
    if (wf_context_status(ctx) == WF_OK)
        refused(ctx);
    return wf_context_status(ctx);
}

int main(int argc, char **argv)
{
    fill_in(); /* The mesh is init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")). */
    return wf_par_main(argc, argv, &(wf_par_options){.axes = WF_AXES({"dp", 2}, {"tp", 2})},
                       tutorial, NULL);
}
