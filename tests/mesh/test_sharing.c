/*
 * tests/mesh/test_sharing.c - what is whole on ranks of one process is there once and computed
 * once: who sees the same memory, who does not, and that no rank sees what another changes.
 *
 * ctest: builds address thread
 */
#include "core/host_data.h"
#include "core/sharing.h"
#include "kernels/ops.h"
#include "mesh/array/array_internal.h"
#include "tests/mesh/mesh_harness.h"

enum { MEMBERS = 2, ROWS = 4, WIDTH = 512, COUNT = ROWS * WIDTH, BYTES = COUNT * 4 };

static const wf_dim dims[] = {{ROWS, 1, WF_CHUNKS_EACH}, {WIDTH, 1, WF_CHUNKS_1}};

/* Two ranks as one thread sees them. */
typedef struct pair {
    wf_sharing *sharing;
    wf_context *ctx[MEMBERS];
    wf_tensor *x[MEMBERS]; /* the shared tensors */
    uint64_t taken;
} pair;

static wf_tensor *seen_by(pair *p, int member, uint64_t number)
{
    wf_tensor like = {.ctx = p->ctx[member], .dtype = WF_F32, .rounds_to = WF_F32, .ndim = 2};
    wf_shared *shared = NULL;
    wf_error error = {WF_OK, ""};

    memcpy(like.dim, dims, sizeof dims);
    CU_ASSERT_EQUAL(wf_sharing_take(p->sharing, number, BYTES, &shared, &error), WF_OK);
    return wf_tensor_shared(&like, NULL, WF_MEMORY_ACTIVATION, shared, member);
}

/* Both contexts, and a tensor that they share, of elements 1, 2, 3, .. */
static pair open_pair(bool once, size_t limit)
{
    pair p = {.sharing = wf_sharing_open(MEMBERS, once)};
    wf_error error = {WF_OK, ""};

    CU_ASSERT_PTR_NOT_NULL_FATAL(p.sharing);
    for (int i = 0; i < MEMBERS; i++) {
        wf_context_options options = {.rank = i, .memory_limit = i ? limit : 0};

        p.ctx[i] = wf_context_open(wf_cpu_device(1, &error), &options, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p.ctx[i]);
        wf_scope_open(p.ctx[i]);
        p.x[i] = seen_by(&p, i, p.taken);
    }
    p.taken++;
    for (int i = 0; i < COUNT; i++)
        ((float *)p.x[0]->data)[i] = (float)(i + 1);
    return p;
}

static void close_pair(pair *p)
{
    for (int i = 0; i < MEMBERS; i++) {
        wf_scope_close(p->ctx[i]);
        CU_ASSERT_EQUAL(in_use(p->ctx[i]), 0);
        wf_context_close(p->ctx[i]);
    }
    wf_sharing_close(p->sharing);
}

static void members_see_one_memory(void)
{
    pair p = open_pair(true, 0);
    wf_host_data view;
    float *mine;

    CU_ASSERT_PTR_EQUAL(p.x[0]->data, p.x[1]->data);
    CU_ASSERT(wf_tensor_is_shared(p.x[0]) && wf_tensor_is_shared(wf_tensor_alias(p.x[1])));
    CU_ASSERT(in_use(p.ctx[0]) == BYTES && in_use(p.ctx[1]) == BYTES);
    mine = wf_data_write(p.x[1], true, &view); /* who writes has its own */
    CU_ASSERT(mine != p.x[0]->data && !wf_tensor_is_shared(p.x[1]) && mine[7] == 8);
    mine[7] = 0;
    wf_data_close(&view);
    CU_ASSERT_EQUAL(((float *)p.x[0]->data)[7], 8);
    CU_ASSERT_EQUAL(in_use(p.ctx[1]), BYTES);
    close_pair(&p);
}

static wf_tensor *gain_of(wf_context *ctx, float value)
{
    wf_tensor *gain = wf_tensor_new(ctx, WF_F32, 1, dims + 1, NULL, WF_MEMORY_PARAMETER);

    for (int i = 0; i < WIDTH; i++)
        ((float *)gain->data)[i] = value;
    return gain;
}

static bool one(const wf_tensor *a, const wf_tensor *b)
{
    CU_ASSERT(a && b && memcmp(a->data, b->data, BYTES) == 0);
    return a && b && a->data == b->data;
}

static void results_are_computed_once(void)
{
    pair p = open_pair(true, 0);
    wf_tensor *y[MEMBERS], *z[MEMBERS];

    for (int i = 0; i < MEMBERS; i++)
        y[i] = wf_add(p.x[i], p.x[i]);
    CU_ASSERT(one(y[0], y[1]) && ((float *)y[1]->data)[2] == 6);
    for (int i = MEMBERS - 1; i >= 0; i--) /* the same again, another member first */
        z[i] = wf_add(p.x[i], p.x[i]);
    CU_ASSERT(one(z[0], z[1]) && z[0]->data != y[0]->data);
    for (int i = 0; i < MEMBERS; i++) /* computed from results */
        z[i] = wf_mul(y[i], p.x[i]);
    CU_ASSERT(one(z[0], z[1]) && ((float *)z[1]->data)[2] == 18);
    for (int i = 0; i < MEMBERS; i++) /* a small operand of each rank's own, alike */
        z[i] = wf_rmsnorm(y[i], gain_of(p.ctx[i], 2), 1e-5f);
    CU_ASSERT(one(z[0], z[1]));
    CU_ASSERT(in_use(p.ctx[0]) == in_use(p.ctx[1]));
    close_pair(&p);
}

static void other_calls_are_other_results(void)
{
    pair p = open_pair(true, 0), apart = open_pair(false, 0);
    wf_tensor *y[MEMBERS], *z[MEMBERS];

    for (int i = 0; i < MEMBERS; i++) { /* attributes */
        y[i] = wf_scale(p.x[i], i ? 2 : 4);
        z[i] = wf_rmsnorm(p.x[i], gain_of(p.ctx[i], i ? 1 : 3), 1e-5f);
    }
    CU_ASSERT(((float *)y[0]->data)[1] == 8 && ((float *)y[1]->data)[1] == 4);
    CU_ASSERT_EQUAL(((float *)z[0]->data)[1], 3 * ((float *)z[1]->data)[1]);
    for (int i = 0; i < MEMBERS; i++) /* another order, and a part */
        y[i] = wf_add(p.x[i], p.x[i]);
    for (int i = 0; i < MEMBERS; i++)
        z[i] = i ? wf_sub(p.x[i], y[i]) : wf_sub(y[i], p.x[i]);
    CU_ASSERT(((float *)z[0]->data)[4] == 5 && ((float *)z[1]->data)[4] == -5);
    z[0] = wf_tensor_rows(p.x[0], 1, 2);
    z[1] = wf_tensor_rows(p.x[1], 2, 2);
    for (int i = 0; i < MEMBERS; i++)
        z[i] = wf_add(z[i], z[i]);
    CU_ASSERT(((float *)z[0]->data)[0] == 2 * (WIDTH + 1));
    CU_ASSERT(((float *)z[1]->data)[0] == 2 * (2 * WIDTH + 1));
    for (int i = 0; i < MEMBERS; i++) /* if each rank has cores of its own */
        y[i] = wf_add(apart.x[i], apart.x[i]);
    CU_ASSERT(!one(y[0], y[1]) && !wf_tensor_is_shared(y[0]));
    close_pair(&apart);
    close_pair(&p);
}

/* An operand that ranks share with others, as a gathered parameter, is distinguished by its
   elements. */
static void groups_differ(void)
{
    pair p = open_pair(true, 0);
    wf_sharing *others[MEMBERS] = {wf_sharing_open(2, true), wf_sharing_open(2, true)};
    wf_tensor *y[MEMBERS], *gain[MEMBERS];
    wf_error error = {WF_OK, ""};

    for (int i = 0; i < MEMBERS; i++) {
        wf_shared *shared = NULL;

        gain[i] = gain_of(p.ctx[i], 2);
        CU_ASSERT_EQUAL(wf_sharing_take(others[i], 0, WIDTH * 4, &shared, &error), WF_OK);
        gain[i] = wf_tensor_shared(gain[i], NULL, WF_MEMORY_PARAMETER, shared, 1 - i);
        for (int k = 0; k < WIDTH; k++)
            ((float *)gain[i]->data)[k] = 2;
        y[i] = wf_rmsnorm(p.x[i], gain[i], 1e-5f);
    }
    CU_ASSERT(one(y[0], y[1]));
    close_pair(&p);
    for (int i = 0; i < MEMBERS; i++)
        wf_sharing_close(others[i]);
}

/* One makes calls that the other never makes, and asks for what the other never takes. */
static void a_member_may_stay_away(void)
{
    pair p = open_pair(true, 0);
    wf_tensor *y = p.x[0];

    for (int i = 0; i < 20; i++)
        y = wf_add(y, p.x[0]);
    CU_ASSERT_EQUAL(((float *)y->data)[1], 42);
    CU_ASSERT_PTR_NOT_NULL(seen_by(&p, 0, p.taken));
    close_pair(&p);
}

static void limits_count_what_is_seen(void)
{
    pair p = open_pair(true, BYTES + BYTES / 2);

    CU_ASSERT_PTR_NOT_NULL(wf_add(p.x[0], p.x[0]));
    CU_ASSERT_PTR_NULL(wf_add(p.x[1], p.x[1]));
    CU_ASSERT_EQUAL(wf_context_status(p.ctx[1]), WF_ENOMEM);
    wf_context_clear(p.ctx[1]);
    close_pair(&p);
}

static wf_tensor *summed(wf_mesh *mesh, int round)
{
    const wf_layout *partial = wf_layout_partial(mesh, NULL, 0, WF_REDUCE_SUM), *whole = NULL;
    wf_tensor *x = wf_tensor_new(mesh->ctx, WF_F32, 2, dims, partial, WF_MEMORY_ACTIVATION);
    wf_tensor *y = NULL;

    for (int i = 0; x && i < COUNT; i++)
        ((float *)x->data)[i] = (float)(i % 61 + round + mesh->rank);
    wf_border(0, 1, &x, &whole, &y);
    return y;
}

/* Ranks come in any order, and change what they have while others still read theirs. */
static wf_status rounds(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    wf_context *ctx = mesh->ctx;

    (void)arg;
    for (int round = 0; round < (UNDER_SANITIZER ? 40 : 200); round++) {
        wf_tensor *y, *z;
        wf_host_data view;
        float *mine;

        wf_scope_open(ctx);
        y = summed(mesh, round);
        NEED(y && wf_tensor_is_shared(y));
        z = wf_mul(wf_add(y, y), y);
        if (!z)
            return give_up(rank, ctx);
        if ((rank->index + round) % 3 == 0) {
            mine = wf_data_write(y, true, &view);
            NEED(mine != NULL);
            memset(mine, 0, BYTES);
            wf_data_close(&view);
        }
        for (int i = 0; i < COUNT; i++) {
            float sum =
                (float)(mesh->ranks * (i % 61 + round) + mesh->ranks * (mesh->ranks - 1) / 2);

            NEED(((float *)z->data)[i] == 2 * sum * sum);
        }
        wf_scope_close(ctx);
        NEED(in_use(ctx) == 0);
    }
    return WF_OK;
}

static void ranks_in_any_order(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {8}, .body = rounds});
    on_mesh((mesh_test){.n_axes = 1, .size = {3}, .body = rounds});
}

/* Tensors that backward gathers again are read by kernels alone, and are one memory; a caller's
   own, which it may write to, are each rank's. */
static wf_status gathers(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    wf_context *ctx = mesh->ctx;
    const wf_layout *split = wf_layout_split(mesh, NULL, 1, 0);
    wf_tensor *x, *again, *own;

    (void)arg;
    wf_scope_open(ctx);
    x = wf_tensor_new(ctx, WF_F32, 2, dims, split, WF_MEMORY_ACTIVATION);
    for (int i = 0; x && i < wf_tensor_local_count(x); i++)
        ((float *)x->data)[i] = (float)mesh->rank;
    again = x ? wf_move_one(x, NULL) : NULL;
    own = x ? wf_redistribute(x, NULL) : NULL;
    NEED(again && own && wf_tensor_is_shared(again) && !wf_tensor_is_shared(own));
    NEED(memcmp(again->data, own->data, BYTES) == 0);
    wf_scope_close(ctx);
    return WF_OK;
}

static void regathers_are_shared(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {4}, .body = gathers});
}

int main(void)
{
    static const wf_test tests[] = {
        {"members see one memory", members_see_one_memory},
        {"results are computed once", results_are_computed_once},
        {"other calls are other results", other_calls_are_other_results},
        {"groups differ", groups_differ},
        {"a member may stay away", a_member_may_stay_away},
        {"limits count what is seen", limits_count_what_is_seen},
        {"ranks in any order", ranks_in_any_order},
        {"regathers are shared", regathers_are_shared},
        {NULL, NULL}};

    return wf_test_main("sharing", tests);
}
