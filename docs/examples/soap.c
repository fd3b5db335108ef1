/*
 * soap.c - an optimizer of one's own that needs whole matrices: SOAP (Vyas et al. 2024, "SOAP:
 * improving and stabilizing Shampoo using Adam", algorithm 3). Adam runs in the eigenvectors of
 * Shampoo's two preconditioners:
 *
 *     L = b2 L + (1 - b2) G G^T,  R = b2 R + (1 - b2) G^T G;  QL, QR their eigenvectors
 *     M = b1 M + (1 - b1) G,  V = b2 V + (1 - b2) (QL^T G QR)^2
 *     W = W - lr (QL ((QL^T M QR) / (sqrt(V) + eps)) QR^T + decay W)
 *
 * with bias corrections of M and V, and every own[0] steps QL = qr(L QL), QR = qr(R QR): a step
 * of the power method. The first gradient makes the first eigenvectors and no update. What is
 * no matrix has AdamW.
 *
 * The states have shapes of their own, [2, rows, columns] for M and V, [2, rows, rows] for L
 * and QL, [2, columns, columns]: each is split over all ranks that hold parts of the matrix,
 * along rows. A step gathers a matrix and its states on each of these ranks, which all make the
 * same update, and keep their part. So any layout has the same bits, plans know the memory and
 * the traffic, and checkpoints go to any mesh:
 *
 *     soap
 *     soap --pp 2 --tp 2 --dp 2 --micro-batch-size 1 --save saved
 *     soap --resume saved --dp 4 --steps 12
 *     soap --plan --pp 2 --tp 2 --dp 2 --micro-batch-size 1
 */
#include <math.h>
#include <string.h>
#include <weft/weft.h>

enum { VOCABULARY = 67, TOKENS = 16, WIDTH = 24, STEPS = 10, SWEEPS = 8 };

enum { MOMENTS, LEFT, RIGHT };

static wf_nn_state_shape shape(int k, int ndim, const wf_dim *dims)
{
    wf_nn_state_shape s = {.kind = WF_NN_STATE_OWN, .ndim = 3, .split = 1};

    if (ndim != 2)
        return (wf_nn_state_shape){.kind = k == RIGHT ? WF_NN_STATE_NONE : WF_NN_STATE_LIKE};
    s.like = k == RIGHT;
    s.dim[0] = wf_dim_width(2);
    s.dim[1] = dims[s.like];
    s.dim[2] = wf_dim_width(k == LEFT ? dims[0].size : dims[1].size);
    return s;
}

/* c = a b of m x k and k x n numbers; a or b are read transposed where their row is not k or
   n. */
static void product(float *c, const float *a, bool a_transposed, const float *b,
                    bool b_transposed, int64_t m, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;

            for (int64_t l = 0; l < k; l++)
                sum += (double)a[a_transposed ? l * m + i : i * k + l] *
                       (double)b[b_transposed ? j * k + l : l * n + j];
            c[i * n + j] = (float)sum;
        }
}

/* Rotates rows, or columns, p and q of an n x n matrix by an angle. */
static void rotate(float *x, int64_t n, int64_t p, int64_t q, int64_t next, int64_t step,
                   double c, double s)
{
    for (int64_t i = 0; i < n; i++) {
        float *a = x + p * next + i * step, *b = x + q * next + i * step;
        const double u = (double)*a, v = (double)*b;

        *a = (float)(c * u - s * v);
        *b = (float)(s * u + c * v);
    }
}

/* Sets q to the eigenvectors of a symmetric matrix, as columns, by Jacobi's rotations in rows;
   those of the greatest eigenvalues first. `a` becomes diagonal. */
static void eigenvectors(float *a, float *q, int64_t n)
{
    for (int64_t i = 0; i < n * n; i++)
        q[i] = i / n == i % n;
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i + 1; j < n; j++) {
                const double off = (double)a[i * n + j];
                const double ratio = ((double)a[j * n + j] - (double)a[i * n + i]) / (2 * off);
                const double t = (ratio < 0 ? -1 : 1) / (fabs(ratio) + sqrt(ratio * ratio + 1));
                const double c = 1 / sqrt(t * t + 1);

                if (off == 0)
                    continue;
                rotate(a, n, i, j, n, 1, c, t * c);
                rotate(a, n, i, j, 1, n, c, t * c);
                rotate(q, n, i, j, 1, n, c, t * c);
            }
    for (int64_t i = 0; i < n; i++) { /* selection: columns are exchanged */
        int64_t most = i;

        for (int64_t j = i + 1; j < n; j++)
            most = a[j * n + j] > a[most * n + most] ? j : most;
        for (int64_t r = 0; r < n && most != i; r++) {
            const float x = q[r * n + i];

            q[r * n + i] = q[r * n + most];
            q[r * n + most] = x;
        }
        if (most != i) {
            const float x = a[i * n + i];

            a[i * n + i] = a[most * n + most];
            a[most * n + most] = x;
        }
    }
}

/* Makes the columns of an n x n matrix orthonormal, each less those before it, twice. */
static void orthonormalise(float *x, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        double length = 0;

        for (int64_t k = 0; k < 2 * j; k++) {
            double dot = 0;

            for (int64_t i = 0; i < n; i++)
                dot += (double)x[i * n + j] * (double)x[i * n + k % j];
            for (int64_t i = 0; i < n; i++)
                x[i * n + j] -= (float)(dot * (double)x[i * n + k % j]);
        }
        for (int64_t i = 0; i < n; i++)
            length += (double)x[i * n + j] * (double)x[i * n + j];
        for (int64_t i = 0; i < n && length > 0; i++)
            x[i * n + j] = (float)((double)x[i * n + j] / sqrt(length));
    }
}

/* The whole of one matrix and of its states on this rank, and room for three matrices. */
typedef struct matrix {
    int64_t rows, columns;
    float *g, *m, *v, *l, *r, *room, *y, *z;
} matrix;

/* L = b L + (1 - b) G G^T, and its eigenvectors anew on a first or a later step of the power
   method; `turned`: of R, by G^T G. */
static void precondition(const matrix *x, const wf_update *u, bool turned)
{
    const int64_t n = turned ? x->columns : x->rows, k = turned ? x->rows : x->columns;
    const int64_t every = u->own[0] >= 1 ? (int64_t)u->own[0] : 10;
    float *p = turned ? x->r : x->l, *q = p + n * n;

    product(x->y, x->g, turned, x->g, !turned, n, k, n);
    for (int64_t i = 0; i < n * n; i++)
        p[i] = u->beta2 * p[i] + (1 - u->beta2) * x->y[i];
    if (u->step == 1) {
        memcpy(x->y, p, (size_t)(n * n) * sizeof *p);
        eigenvectors(x->y, q, n);
    } else if (u->step % every == 0) {
        product(x->y, p, false, q, false, n, n, n);
        memcpy(q, x->y, (size_t)(n * n) * sizeof *q);
        orthonormalise(q, n);
    }
}

/* to = QL^T from QR, or QL from QR^T where it is back */
static void project(const matrix *x, const float *from, float *to, bool back)
{
    const int64_t r = x->rows, c = x->columns;

    product(x->z, x->l + r * r, !back, from, false, r, r, c);
    product(to, x->z, false, x->r + c * c, back, r, c, c);
}

/* Leaves the direction in g. */
static void update_matrix(const matrix *x, const wf_update *u)
{
    const int64_t n = x->rows * x->columns;

    for (int64_t i = 0; i < n; i++) {
        x->g[i] *= u->grad_scale;
        x->m[i] = u->beta1 * x->m[i] + (1 - u->beta1) * x->g[i];
    }
    if (u->step > 1) {
        project(x, x->g, x->y, false);
        for (int64_t i = 0; i < n; i++)
            x->v[i] = u->beta2 * x->v[i] + (1 - u->beta2) * x->y[i] * x->y[i];
        project(x, x->m, x->y, false);
        for (int64_t i = 0; i < n; i++)
            x->y[i] = x->y[i] * u->bias1 / (sqrtf(x->v[i] * u->bias2) + u->eps);
        project(x, x->y, x->room, true);
    } else {
        memset(x->room, 0, (size_t)n * sizeof *x->room);
    }
    precondition(x, u, false);
    precondition(x, u, true);
    memcpy(x->g, x->room, (size_t)n * sizeof *x->g);
}

/* Copies x to a state or a parameter, p = 0, p = p + x, with the scale of a step for the
   latter. */
static wf_status store(wf_tensor *p, wf_tensor *x, bool clears, const wf_update *u)
{
    p = wf_nn_parts_local(p);
    x = wf_nn_parts_local(x);
    if (!p || !x || !wf_tensor_local_count(p) || (clears && p->data == x->data))
        return p && x ? WF_OK : WF_EINVAL;
    if (clears && wf_init_fill(p, 0) != WF_OK)
        return WF_EINVAL;
    return wf_sgd(p, x, x, u);
}

/* Updates a matrix and its states, which wf_data_write makes this rank's alone: ranks of a
   process share what they gather. */
static wf_status update_whole(matrix *x, const wf_update *u, wf_tensor *g,
                              wf_tensor *const *whole, wf_tensor *room)
{
    wf_host_data view[5];
    float *at[] = {wf_data_write(g, true, &view[0]), wf_data_write(whole[0], true, &view[1]),
                   wf_data_write(whole[1], true, &view[2]),
                   wf_data_write(whole[2], true, &view[3]),
                   wf_data_write(room, false, &view[4])};

    x->g = at[0];
    x->m = at[1 + MOMENTS];
    x->l = at[1 + LEFT];
    x->r = at[1 + RIGHT];
    x->room = at[4];
    if (wf_context_status(g->ctx) == WF_OK) {
        x->v = x->m + x->rows * x->columns;
        x->y = x->room + room->dim[1].size;
        x->z = x->y + room->dim[1].size;
        update_matrix(x, u);
    }
    for (int k = 0; k < 5; k++)
        wf_data_close(&view[k]);
    return wf_context_status(g->ctx);
}

static wf_status soap(const wf_update *u, const wf_nn_parts *parts, wf_tensor *t,
                      wf_tensor *grad, wf_tensor *const *state)
{
    const wf_update copy = {.lr = -1, .grad_scale = 1};
    const wf_update step = {.lr = u->lr, .weight_decay = u->weight_decay, .grad_scale = 1};
    wf_tensor *whole[3], *g, *room;
    matrix x;

    if (t->ndim != 2)
        return wf_adamw(t, grad, state[0], state[1], u);
    x = (matrix){.rows = t->dim[0].size, .columns = t->dim[1].size};
    g = wf_nn_parts_split(parts, wf_scale(grad, 1), -1); /* a copy, which is written to */
    for (int k = 0; k < 3; k++)
        whole[k] = wf_nn_parts_split(parts, state[k], -1);
    room = wf_tensor_new(
        t->ctx, WF_F32, 2,
        (wf_dim[]){wf_dim_width(3),
                   wf_dim_width(x.rows > x.columns ? x.rows * x.rows : x.columns * x.columns)},
        NULL, WF_MEMORY_WORKSPACE);
    if (!g || !whole[MOMENTS] || !whole[LEFT] || !whole[RIGHT] || !room)
        return wf_context_status(t->ctx);
    if (!wf_context_dry_run(t->ctx) && update_whole(&x, u, g, whole, room) != WF_OK)
        return wf_context_status(t->ctx);
    for (int k = 0; k < 3; k++)
        store(state[k], wf_nn_parts_like(parts, whole[k], state[k]), true, &copy);
    g = wf_nn_parts_like(parts, g, t);
    return u->step > 1 ? store(t, g, false, &step) : wf_context_status(t->ctx);
}

static const wf_nn_method_row soap_row = {
    "soap", .states = 3, .shape = shape,
    .uses = WF_NN_USES_BETA1 | WF_NN_USES_BETA2 | WF_NN_USES_EPS, .together = soap};

/* ---- a model in two steps, which pipeline stages share ---- */

static int64_t chain_steps(const wf_nn_module *model)
{
    (void)model;
    return 2;
}

static wf_nn_module *chain_module(const wf_nn_module *model, int64_t i, int k)
{
    static const char *const names[3][2] = {
        {"embed", "first"}, {"second", "norm"}, {"head", "loss"}};

    return k < 2 ? wf_nn_child((wf_nn_module *)model, names[i][k]) : NULL;
}

/* x + mlp(norm(x)) of a block */
static wf_tensor *block_forward(wf_nn_module *self, wf_tensor *x)
{
    return wf_add(x, wf_nn_run(self, "mlp", wf_nn_run(self, "norm", x)));
}

static int chain_run(wf_nn_module *model, int64_t i, int n, wf_tensor **x)
{
    (void)n;
    if (i == 0)
        x[0] = wf_nn_run(model, "first", wf_nn_run(model, "embed", x[0]));
    else
        x[0] = wf_nn_run(model, "norm", wf_nn_run(model, "second", x[0]));
    return 1;
}

static const wf_nn_chain chain = {chain_steps, chain_module, chain_run};

static wf_tensor *head_loss(wf_nn_module *model, wf_tensor *x, const wf_par_batch *batch)
{
    return wf_nn_cross_entropy((wf_nn_loss *)wf_nn_child(model, "loss"),
                               wf_nn_run(model, "head", x),
                               wf_par_batch_tensor(batch, "targets"));
}

static wf_tensor *whole_loss(wf_nn_module *model, const wf_par_batch *batch)
{
    const char *outside = wf_nn_enter(model);
    wf_tensor *x[WF_NN_CARRIED] = {wf_par_batch_tensor(batch, "tokens")}, *loss = NULL;

    if (wf_nn_chain_run(model, 0, chain_steps(model), 1, x))
        loss = head_loss(model, x[0], batch);
    wf_nn_leave(model, outside, 1, &loss);
    return loss;
}

/* Reads a dataset that is a function of the step and the sequence's number: token t, then 5 t +
   3. */
static wf_status read_data(void *self, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    int32_t *tokens = field[0], *targets = field[1];

    (void)self, (void)error;
    for (int64_t i = 0; i < count * TOKENS; i++) {
        tokens[i] = (int32_t)((31 * step + 7 * first * TOKENS + 7 * i) % VOCABULARY);
        targets[i] = (5 * tokens[i] + 3) % VOCABULARY;
    }
    return WF_OK;
}

static const wf_par_rule rules[] =
    WF_RULES({"embed", WF_VOCAB}, WF_SWIGLU_MLP_RULES("first.mlp"),
             WF_SWIGLU_MLP_RULES("second.mlp"), {"head", WF_COLUMN}, {"loss", WF_LOSS});

static wf_nn_module *block_new(wf_context *ctx)
{
    const wf_nn_mlp_options mlp = {.width = WIDTH};

    return wf_nn_module_new(
        ctx, "block", block_forward,
        WF_CHILD("norm", wf_nn_rmsnorm_new(ctx, wf_dim_width(WIDTH), 1e-5f)),
        WF_CHILD("mlp", wf_nn_swiglu_mlp_new(ctx, &mlp)));
}

static wf_nn_module *make(wf_par *par, void *unused)
{
    wf_context *ctx = wf_par_context(par);
    wf_dim vocabulary = wf_dim_chunked(VOCABULARY), width = wf_dim_width(WIDTH);
    wf_nn_linear_options head = {.in = width, .out = vocabulary, .deviation = 0.1f};
    wf_nn_module *model = wf_nn_module_new(
        ctx, "model", NULL,
        WF_CHILD("embed", wf_nn_embedding_new(ctx, vocabulary, width, 0.1f)),
        WF_CHILD("first", block_new(ctx)), WF_CHILD("second", block_new(ctx)),
        WF_CHILD("norm", wf_nn_rmsnorm_new(ctx, width, 1e-5f)),
        WF_CHILD("head", wf_nn_linear_new(ctx, &head)), WF_CHILD("loss", wf_nn_loss_new(ctx)));

    (void)unused;
    if (!model)
        return NULL;
    model->chain = &chain;
    wf_par_tensor(par, model, "tp", rules);
    wf_par_shard(par, model, "first", "dp", NULL);
    wf_par_shard(par, model, "second", "dp", NULL);
    return model;
}

/* Try --dp 4 --tp 2, --pp 2, --plan, --save and --resume: one digest. */
int main(int argc, char **argv)
{
    static const wf_par_pipeline_options stages = {.input = "tokens", .head_loss = head_loss};
    wf_par_program p = {
        .about = "Trains a small model with SOAP.",
        .job = {.mesh = {.axes = WF_AXES({"pp", 1}, {"dp", 1}, {"tp", 1}), .seed = 1},
                .model = make,
                .name = "two blocks",
                .pipeline = &stages,
                .steps = STEPS,
                .data = {.read = read_data},
                .train = {.global_batch = 8,
                          .field = WF_PAR_GPT_FIELDS(TOKENS),
                          .optimizer = {.beta1 = 0.9f,
                                        .beta2 = 0.95f,
                                        .eps = 1e-8f,
                                        .weight_decay = 0.01f,
                                        .own = {4}},
                          .schedule = {.lr = 3e-3, .min_lr = 3e-3, .steps = STEPS},
                          .loss = whole_loss}}};

    p.job.train.optimizer.method = wf_nn_method_of(&soap_row);
    return wf_par_run(argc, argv, &p);
}
