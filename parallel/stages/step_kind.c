/* parallel/stages/step_kind.c - which steps of a chain are alike; see the header. */
#include "parallel/stages/step_kind_internal.h"
#include "core/op.h"
#include "parallel/parallel_internal.h"
#include "parallel/shard/units_internal.h"
#include <string.h>
#include <xxhash.h>

static void add(uint64_t *hash, uint64_t word)
{
    *hash = XXH3_64bits_withSeed(&word, sizeof word, *hash);
}

static void add_text(uint64_t *hash, const char *text)
{
    *hash = XXH3_64bits_withSeed(text, strlen(text), *hash);
}

/* Layouts of one context are the same where they are at the same address (wf_layout_intern). */
static void add_tensor(uint64_t *hash, const wf_tensor *t)
{
    add(hash, (uint64_t)t->dtype | (uint64_t)t->ndim << 8 | (uint64_t)t->requires_grad << 16);
    add(hash, (uint64_t)(uintptr_t)t->layout);
    for (int d = 0; d < t->ndim; d++) {
        add(hash, (uint64_t)t->dim[d].size);
        add(hash, (uint64_t)t->local[d]);
    }
}

static void see_op(void *self, const wf_call *call)
{
    wf_par_step_watch *w = self;

    add_text(&w->kind, call->op->name);
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i])
            add_tensor(&w->kind, call->in[i]);
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i])
            add_tensor(&w->kind, call->out[i]);
}

static uint64_t see_move(void *self, const wf_oplog_move *what)
{
    wf_par_step_watch *w = self;

    add_text(&w->kind, what->op);
    add(&w->kind, (uint64_t)what->size);
    add(&w->kind, (uint64_t)what->brings);
    add(&w->kind, (uint64_t)what->receives);
    return 1;
}

static void see_end(void *self, uint64_t number)
{
    (void)self;
    (void)number;
}

void wf_par_step_watch_begin(wf_par_step_watch *w, wf_par *par)
{
    wf_memory_report now;

    wf_pool_report(wf_context_pool(par->ctx), &now);
    wf_pool_mark(wf_context_pool(par->ctx));
    *w = (wf_par_step_watch){.par = par,
                             .log = {see_op, see_move, see_end, w},
                             .before = now.in_use,
                             .flops = wf_context_flops(par->ctx)};
    wf_mesh_oplog(par->mesh, &w->log);
}

/* The parameters of a step's modules, as they are stored, gathered and trained. */
static void add_parameter(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    wf_par_step_watch *w = arg;
    const wf_par_parameter_state *s = wf_par_state_of(p);

    (void)m;
    add_text(&w->kind, name);
    add_tensor(&w->kind, p->tensor);
    add(&w->kind, (uint64_t)p->frozen | (uint64_t)p->adapter << 1 | (uint64_t)s->wide << 2 |
                      (uint64_t)p->matrix << 3 | (uint64_t)p->decay << 4 |
                      (uint64_t)s->stored << 8);
    add(&w->kind, (uint64_t)(uintptr_t)s->compute_layout);
    add(&w->kind, (uint64_t)(uintptr_t)s->shard_layout);
    add(&w->kind, (uint64_t)(uintptr_t)s->gradient);
    add(&w->kind, (uint64_t)(uintptr_t)s->micro);
    add(&w->kind, (uint64_t)(uintptr_t)s->optimizer);
}

static void add_module(void *arg, wf_nn_module *m)
{
    wf_par_step_watch *w = arg;

    add_text(&w->kind, m->type->name);
}

/* The units whose modules lie at or below one, or are around it. */
static void add_units(wf_par_step_watch *w, wf_nn_module *model, const wf_nn_module *m)
{
    const wf_par_units *all = wf_par_units_of(w->par, model);

    for (int64_t u = 0; all && u < all->count; u++) {
        const wf_par_unit *unit = &all->unit[u];

        if (!wf_nn_path_covers(m->path, unit->module->path))
            continue;
        add(&w->kind, (uint64_t)unit->count);
        add(&w->kind, (uint64_t)unit->split << 1 | (uint64_t)unit->reshard);
    }
}

uint64_t wf_par_step_kind(wf_par_step_watch *w, wf_nn_module *model, int64_t i)
{
    double flops = wf_context_flops(w->par->ctx) - w->flops;
    wf_memory_report now;
    wf_nn_module *m;
    uint64_t bits;

    wf_mesh_oplog(w->par->mesh, NULL);
    wf_pool_report(wf_context_pool(w->par->ctx), &now);
    add(&w->kind, (uint64_t)now.in_use - w->before);
    add(&w->kind, (uint64_t)wf_pool_most(wf_context_pool(w->par->ctx)) - w->before);
    memcpy(&bits, &flops, sizeof bits);
    add(&w->kind, bits);
    for (int k = 0; (m = wf_nn_chain_module(model, i, k)); k++) {
        wf_nn_visit(m, add_module, add_parameter, w);
        add_units(w, model, m);
    }
    return w->kind;
}
