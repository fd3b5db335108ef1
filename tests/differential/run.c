/* tests/differential/run.c - a program on a mesh, held against what one rank has for it. */
#include "tests/differential/run.h"

/* Looks at the context's report about each call. */
static void look(void *arg, const wf_call *call)
{
    run *r = arg;
    const char *reported = wf_context_inexact(r->ctx);

    if (call->op != &weigh_op && reported && certainly_exact(call))
        fail_case(r->b, "this sum is that of one rank: %s", reported);
    if (call->op != &weigh_op && (reported || r->p->world->exact_off))
        r->rough_now = r->rough_any = true;
    wf_context_inexact_clear(r->ctx);
}

static void compare(run *r, const char *what, int id, const wf_tensor *t, wf_dtype dtype,
                    const void *whole, int64_t count, bool rough)
{
    char text[256], kind[256];
    double most = rough ? tolerance(dtype, whole, count, t->ndim ? 0 : r->p->value[id].terms,
                                    r->p->storage == WF_BF16)
                        : 0;
    const char *wrong = differs(t, dtype, whole, most, text);

    if (wrong)
        fail_case(r->b, "rank %d, %s v%d, %s, promised %s: %s", r->rank->index, what, id,
                  wf_tensor_describe(t, kind, sizeof kind),
                  rough ? "to be close" : "bit for bit", wrong);
    atomic_fetch_add(rough ? &r->b->close : &r->b->bits, r->rank->index == 0);
}

/* Tensors brought together at once where they are sums still to be taken. */
typedef struct gathering {
    int n, id[VALUES];
    wf_tensor *t[VALUES];
    const wf_layout *to[VALUES];
} gathering;

static void gather(gathering *g, int id, wf_tensor *t)
{
    g->id[g->n] = id;
    g->t[g->n] = t;
    g->to[g->n++] = wf_layout_dual(wf_mesh_of(t->ctx), t->layout);
}

static wf_status complete(run *r, gathering *g, const char *what)
{
    if (wf_move_run(r->ctx, g->n, g->t, g->to, g->t) == WF_OK)
        return WF_OK;
    fail_case(r->b, "making %s whole: %s", what, wf_context_error(r->ctx)->text);
    return give_up(r->rank, r->ctx);
}

static wf_status compare_values(run *r)
{
    gathering g = {0};

    for (int id = 0; id < r->p->n_values; id++)
        if (r->value[id])
            gather(&g, id, r->value[id]);
    GOOD(complete(r, &g, "values"));
    for (int i = 0; i < g.n; i++) {
        const value *v = &r->p->value[g.id[i]];

        compare(r, "value", g.id[i], g.t[i], v->dtype, v->whole, v->count, r->rough[g.id[i]]);
    }
    return WF_OK;
}

/* Nobody else's numbers change with those of one gradient. */
static void write_over(run *r, int id)
{
    wf_tensor *grad = r->value[id]->grad;

    if (r->p->overwrite && grad->dtype == WF_F32 && !wf_layout_is_partial(grad->layout, -1))
        wf_init_fill(grad, 1234.5f);
}

static wf_status compare_update(run *r, bool rough)
{
    const value *v = &r->p->value[r->p->update];
    wf_tensor *t = r->value[r->p->update], *grad;

    grad = wf_move_one(t->grad, t->layout);
    if (grad && optimize(r->p, t, grad) == WF_OK) {
        compare(r, "updated", r->p->update, t, v->dtype, v->updated, v->count, rough);
        return WF_OK;
    }
    fail_case(r->b, "an update: %s", wf_context_error(r->ctx)->text);
    return give_up(r->rank, r->ctx);
}

static wf_status compare_gradients(run *r, bool rough)
{
    for (int id = 0; id < r->p->n_values; id++) {
        const value *v = &r->p->value[id];
        wf_tensor *grad = v->wanted ? r->value[id]->grad : NULL;
        gathering g = {0};
        bool close;

        if (v->wanted && !grad != !v->grad)
            fail_case(r->b, "v%d has %s gradient, unlike on one rank", id, grad ? "a" : "no");
        if (!grad || !v->grad)
            continue;
        if (wf_layout_is_partial(grad->layout, -1))
            grad = wf_move_one(grad, wf_layout_dual(r->mesh, grad->layout));
        grad = grad ? whole_vector(r->value[id], grad) : NULL;
        if (!grad)
            return give_up(r->rank, r->ctx);
        gather(&g, id, grad);
        GOOD(complete(r, &g, "gradients"));
        /* A border for users sums the rows of a vector's gradient; without one, those of all
           uses are added before. */
        close = rough || r->rough_any || (r->fell_back && v->ndim == 1);
        compare(r, "gradient of", id, g.t[0], v->grad_dtype, v->grad_whole, v->grad_count,
                close);
        if (id == r->p->update)
            GOOD(compare_update(r, close));
        write_over(r, id);
    }
    return WF_OK;
}

static wf_status walk_back(run *r, wf_tape *tape)
{
    wf_tensor *root = r->value[r->p->root], *seed = r->value[r->p->seed];

    if (r->p->strict)
        root = wf_redistribute(root, wf_layout_dual(r->mesh, root->layout));
    wf_backward(root, seed, r->p->deferred);
    if (wf_context_status(r->ctx) == WF_OK && r->p->deferred)
        wf_backward_weights(tape);
    return wf_context_status(r->ctx);
}

/* Runs backward: a mesh refuses with the status of one rank; and it may refuse layouts where
   operands passed no border. */
static wf_status run_backward(run *r, wf_tape *tape)
{
    const program *p = r->p;
    wf_status status = walk_back(r, tape);
    bool rough;

    atomic_fetch_add(&r->b->backwards, r->rank->index == 0);
    if (p->backward != WF_OK && status == p->backward) {
        wf_context_clear(r->ctx);
        return WF_OK;
    }
    if (p->backward != WF_OK && status == WF_OK && !p->strict)
        return WF_OK;
    if (p->backward != WF_OK && status == WF_OK) {
        fail_case(r->b, "backward is refused on one rank, not here: %s", p->backward_text);
        return WF_OK;
    }
    /* Gradients meet that do not, or do elsewhere, on one rank. */
    if (status != WF_OK && r->fell_back &&
        (p->backward != WF_OK || strstr(wf_context_error(r->ctx)->text, "meet"))) {
        wf_context_clear(r->ctx);
        return WF_OK;
    }
    if (status != WF_OK) {
        atomic_fetch_add(&r->b->backwards_refused, r->rank->index == 0);
        if (p->strict)
            fail_case(r->b, "backward is refused though every operand passed a border: %s",
                      wf_context_error(r->ctx)->text);
        return note_refusal(r, "backward");
    }
    rough = r->rough_any || r->rough_back || p->world->exact_off;
    return compare_gradients(r, rough);
}

static wf_status run_steps(run *r, wf_tape *tape)
{
    for (int k = 0; k < r->p->n_steps; k++) {
        int module = r->p->step[k].module;

        if (module)
            GOOD(run_module(r, &r->p->module[module - 1]));
        else
            GOOD(run_step(r, k));
        if (module)
            k = r->p->module[module - 1].end - 1;
    }
    GOOD(compare_values(r));
    return r->p->root >= 0 ? run_backward(r, tape) : WF_OK;
}

/* Checks that all ranks have the same reports, and that none found an error. */
static wf_status agree(run *r)
{
    float piece[9], most[9];

    for (int i = 0; i < 4; i++) {
        piece[i] = (float)(r->reported >> 16 * i & 0xffff);
        piece[4 + i] = -piece[i];
    }
    piece[8] = (float)atomic_load(&r->b->failed);
    memcpy(most, piece, sizeof most);
    if (wf_all_reduce(r->mesh->world, WF_REDUCE_MAX, most, most, 9, &r->rank->error) != WF_OK)
        return r->rank->error.code;
    for (int i = 0; i < 8; i++)
        if (most[i] != piece[i])
            fail_case(r->b, "ranks were refused with different words");
    return most[8] > 0 ? wf_error_set(&r->rank->error, WF_EINTERNAL, "a difference") : WF_OK;
}

wf_status run_program(wf_rank *rank, wf_mesh *mesh, const program *p, board *b)
{
    run r = {.rank = rank, .mesh = mesh, .ctx = mesh->ctx, .p = p, .b = b};
    size_t before = in_use(mesh->ctx);
    wf_tape *tape;
    wf_status status;

    wf_scope_open(r.ctx);
    tape = wf_tape_open(r.ctx);
    wf_context_storage(r.ctx, p->storage);
    wf_context_observe(r.ctx, look, &r);
    status = run_steps(&r, tape);
    wf_context_observe(r.ctx, NULL, NULL);
    wf_context_storage(r.ctx, WF_F32);
    wf_tape_close(tape);
    wf_scope_close(r.ctx);
    if (status == WF_OK && in_use(r.ctx) != before)
        fail_case(b, "rank %d holds %zu bytes more than before", rank->index,
                  in_use(r.ctx) - before);
    return status == WF_OK ? agree(&r) : status;
}
