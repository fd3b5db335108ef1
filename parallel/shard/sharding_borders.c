/* parallel/shard/sharding_borders.c - the borders of styles: tensors at the points of modules,
   brought to the layouts that plans ask for. */
#include "parallel/shard/sharding_plan_internal.h"
#include "mesh/array/by_blocks.h"
#include "nn/cache.h"
#include "nn/layers/moe.h"
#include <string.h>

/* The axes that split experts beside the style's, where this border moves tensors on them, a
   bit each: ep, which splits the batch elsewhere, and cp, which splits tokens. */
static unsigned expert_axes_of(const wf_par_plan_hook *p, const wf_par_border *b)
{
    bool moves = b->state == WF_PAR_DISPATCH || b->state == WF_PAR_COMBINE ||
                 b->state == WF_PAR_RESIDUAL;
    int ep = p->par->ep_axis, cp = p->par->cp_axis;

    return p->style->experts && moves ? (ep >= 0 ? 1u << ep : 0) | (cp >= 0 ? 1u << cp : 0) : 0;
}

/* Returns whether tokens are exchanged with the owners of their experts, not gathered; those
   that cp splits are gathered. */
static bool exchanges(const wf_par_plan_hook *p)
{
    const wf_nn_moe *m = (const wf_nn_moe *)p->module;

    return p->par->cp_axis < 0 &&
           wf_par_exchanges(&p->par->options, wf_mesh_size(p->par->mesh, p->par->ep_axis),
                            m->gate->tensor->dim[0].size, m->route.k);
}

/* Returns how many sequences of tokens x [b, t, ..] are exchanged at a time, of those of the
   ranks that split experts (wf_experts_wave); 0: all of them. */
static int64_t wave_of(const wf_par_plan_hook *p, const wf_tensor *x)
{
    const wf_nn_moe *m = (const wf_nn_moe *)p->module;
    const wf_mesh *mesh = p->par->mesh;
    const int64_t ranks = wf_mesh_size(mesh, p->par->ep_axis) * wf_mesh_size(mesh, p->axis);
    wf_experts_rows rows = {.k = m->route.k,
                            .all = m->gate->tensor->dim[0].size,
                            .features = m->gate->tensor->dim[1].size};
    int64_t n, wave;

    if (!x || wf_tensor_is_fake(x) || m->buffer <= 0 || !exchanges(p) ||
        wf_par_splits_features(p->par, p->axis))
        return 0;
    n = x->dim[0].size;
    for (int axis = 0; axis < wf_mesh_axes(mesh); axis++)
        if (axis != p->par->ep_axis && wf_layout_split_dim(x->layout, axis) == 0)
            n /= wf_mesh_size(mesh, axis);
    rows.together = x->dim[1].size;
    rows.tokens = n * rows.together;
    rows.mine = (rows.all + ranks - 1) / ranks;
    wave = wf_experts_wave(&rows, m->buffer);
    return wave < n ? wave : 0;
}

/* Returns whether an exchange is under way while the shared expert computes. */
static bool overlaps(const wf_par_plan_hook *p)
{
    return !p->par->options.moe_overlap_off && p->par->ep_axis >= 0 && exchanges(p) &&
           ((const wf_nn_moe *)p->module)->shared;
}

/* The axes of more than one rank on which a border moves tensors, a bit each. */
static unsigned axes_of(const wf_par_plan_hook *p, const wf_par_border *b)
{
    unsigned experts = expert_axes_of(p, b);
    unsigned own = wf_mesh_size(p->par->mesh, p->axis) > 1 ? 1u << p->axis : 0;
    unsigned context = p->par->cp_axis >= 0 ? 1u << p->par->cp_axis : 0;

    if (b->state >= WF_PAR_HEADS)
        return context;
    if (b->state == WF_PAR_ARRIVE)
        return overlaps(p) ? 1u << p->par->ep_axis : 0;
    if (b->state == WF_PAR_GROUPS)
        return own | context;
    if (b->state == WF_PAR_FEATURES && wf_par_splits_features(p->par, p->axis))
        return own;
    if (b->state == WF_PAR_FEATURES)
        return p->par->ep_axis >= 0 ? 1u << p->par->ep_axis : 0;
    return b->state == WF_PAR_DISPATCH && !experts ? 0 : own | experts;
}

/* Returns a layout that is whole on the axes that split experts. */
static const wf_layout *whole_for_experts(const wf_par_plan_hook *p, const wf_par_border *b,
                                          const wf_layout *layout)
{
    for (int axis = 0; axis < wf_mesh_axes(p->par->mesh); axis++)
        if (expert_axes_of(p, b) >> axis & 1)
            layout = wf_layout_whole(p->par->mesh, layout, axis);
    return layout;
}

/* Returns the layout of the batch after a border; after a sum over experts each rank has its
   own sequences, and tokens, of which those of a cache are whole. */
static const wf_layout *batch_layout(const wf_par_plan_hook *p, const wf_par_border *b,
                                     const wf_layout *to)
{
    unsigned experts = expert_axes_of(p, b);
    int ep = p->par->ep_axis, cp = wf_nn_cache_now(p->par->ctx) ? -1 : p->par->cp_axis;

    to = whole_for_experts(p, b, to);
    if (ep >= 0 && experts >> ep & 1)
        to = wf_layout_split(p->par->mesh, to, 0, ep);
    return cp >= 0 && experts >> cp & 1 ? wf_layout_split(p->par->mesh, to, 1, cp) : to;
}

static const wf_layout *border_layout(const wf_par_plan_hook *p, const wf_par_border *b,
                                      const wf_layout *from)
{
    wf_mesh *mesh = p->par->mesh;
    bool residual = b->state == WF_PAR_RESIDUAL || b->state == WF_PAR_COMBINE;
    bool split = b->state == WF_PAR_SPLIT || (residual && p->par->options.sequence_parallel);
    const wf_layout *to;

    if (split && wf_layout_split_dim(from, p->axis) == b->dim)
        return expert_axes_of(p, b) ? batch_layout(p, b, from) : from;
    to = batch_layout(p, b, wf_layout_whole(mesh, from, p->axis));
    return split ? wf_layout_split(mesh, to, b->dim, p->axis) : to;
}

/* Returns whether a border moves in blocks, beside the product of the module that it is at: a
   column-parallel one takes what is gathered, a row-parallel one makes what is summed. */
static bool goes_by_blocks(const wf_par_plan_hook *p, const wf_par_border *b)
{
    const char *type = p->module->type->name;

    return p->par->options.tp_comm_overlap && (b->regather || b->state == WF_PAR_RESIDUAL) &&
           (strcmp(type, "linear") == 0 || strcmp(type, "linear_group") == 0);
}

static void pass(const wf_par_plan_hook *p, const wf_par_border *b, int n, wf_tensor **x)
{
    const wf_layout *to[WF_MAX_OUTPUTS] = {NULL};
    wf_tensor *y[WF_MAX_OUTPUTS];

    for (int i = 0; i < n; i++)
        to[i] = border_layout(p, b, x[i]->layout);
    if (n == 1 && goes_by_blocks(p, b))
        y[0] = wf_border_by_blocks(axes_of(p, b), x[0], to[0]);
    else
        wf_border_over(axes_of(p, b), n, x, x, to, y);
    for (int i = 0; i < n; i++) {
        if (b->regather)
            wf_keep_origin(y[i], x[i]);
        x[i] = y[i];
    }
}

/* Returns the owners of experts, who take the tokens with these indices. */
static wf_row_owners owners_of(const wf_par_plan_hook *p, wf_tensor *index)
{
    const wf_nn_parameter *gate = ((const wf_nn_moe *)p->module)->gate;
    const wf_par_parameter_state *state = gate->plan;

    return (wf_row_owners){.axis = p->par->ep_axis,
                           .inner = wf_mesh_size(p->par->mesh, p->axis) > 1 ? p->axis : -1,
                           .index = index,
                           .dim = gate->tensor->dim[0],
                           .layout = state->compute_layout};
}

/* Exchanges rows with the owners of these experts (wf_border_rows), or begins to, where they
   are under way while the shared expert computes. */
static wf_tensor *exchange(const wf_par_plan_hook *p, wf_tensor *index, wf_tensor *x,
                           wf_tensor *via, const wf_layout *to)
{
    const wf_row_owners owners = owners_of(p, index);

    return overlaps(p) ? wf_border_rows_begin(&owners, x, via, to)
                       : wf_border_rows(&owners, x, via, to);
}

/* Brings tokens to the ranks that split experts. What experts read of x is a border of x
   itself: its gradient is summed over the style's axis, and over ep and cp. */
static void dispatch(const wf_par_plan_hook *p, const wf_par_border *b, int n, wf_tensor **x)
{
    const bool waves = wave_of(p, x[n - 1]) > 0;
    const int first = exchanges(p) ? 2 : 1; /* the first that is gathered */
    const wf_layout *to[WF_MAX_OUTPUTS] = {NULL};
    wf_tensor *of[WF_MAX_OUTPUTS], *y[WF_MAX_OUTPUTS];

    for (int i = 1; i < n; i++) {
        of[i] = i == 1 ? x[0] : x[i];
        to[i] = whole_for_experts(p, b, x[i]->layout);
    }
    wf_border_over(axes_of(p, b), n - first, of + first, x + first, to + first, y + first);
    if (first == 2)
        y[1] = waves ? x[1] : exchange(p, y[n - 1], x[0], x[1], to[1]);
    for (int i = 1; i < n; i++)
        x[i] = y[i];
}

/* Sums what experts made of tokens, and brings it to the ranks that these came from. */
static void combine(const wf_par_plan_hook *p, const wf_par_border *b, wf_tensor **x)
{
    if (wave_of(p, x[1]) > 0)
        return; /* they have come home wave by wave */
    if (exchanges(p))
        x[0] = exchange(p, x[1], x[0], x[0], border_layout(p, b, x[0]->layout));
    else
        pass(p, b, 1, x);
}

/* Computes experts where their own op does not: whose features ranks split, or in waves. */
static void compute(const wf_par_plan_hook *p, const wf_par_border *b, wf_tensor **x)
{
    const wf_par_border sum = {.state = WF_PAR_COMBINE, .dim = b->dim};
    const int64_t sequences = wave_of(p, x[2]);
    wf_row_owners owners;

    if (sequences > 0) {
        owners = owners_of(p, x[2]);
        wf_par_compute_waves(p, &owners, sequences, border_layout(p, &sum, x[0]->layout), x);
    } else if (wf_par_splits_features(p->par, p->axis)) {
        wf_par_compute_experts(p, x);
    }
}

/* Returns x's layout with `dim` split over cp, and no other one. */
static const wf_layout *cut_over_cp(const wf_par_plan_hook *p, const wf_tensor *x, int dim)
{
    wf_mesh *mesh = p->par->mesh;
    int cp = p->par->cp_axis;

    return wf_layout_split(mesh, wf_layout_whole(mesh, x->layout, cp), dim, cp);
}

/* Returns true where keys and values are gathered and queries stay: where that is asked for, or
   there is no query head for each rank that would take some. A rank without heads would be idle
   in attention, which is most of a long sequence's work: to ask for that is refused. */
static bool is_gathered(const wf_par_plan_hook *p, const wf_tensor *q, const wf_layout *to,
                        int dim)
{
    const wf_par_options *o = &p->par->options;
    const wf_mesh *mesh = p->par->mesh;
    long long heads = (long long)(q->dim[dim].size / q->dim[dim].grain), parts = 1, others;
    int cp = wf_mesh_size(mesh, p->par->cp_axis);

    for (int axis = 0; axis < wf_mesh_axes(mesh); axis++)
        if (wf_layout_split_dim(to, axis) == dim)
            parts *= wf_mesh_size(mesh, axis);
    if (!o->cp_form || strcmp(o->cp_form, "auto") == 0)
        return parts > heads || o->sequence_parallel;
    if (strcmp(o->cp_form, "gather") == 0)
        return true;
    if (parts > heads) {
        others = parts / cp;
        wf_fail(q->ctx, WF_EUNSUPPORTED,
                ".cp %d x %lld other ranks split %lld query heads, of which each rank takes "
                "at least one: use at most .cp %lld%s, or .cp_form gather, which gathers keys "
                "and values",
                cp, others, heads, heads > others ? heads / others : 1,
                others > 1 ? ", a smaller .tp" : "");
    }
    return false;
}

/* Gathers tokens and splits heads instead, but where all tokens are here, as those of a cache
   are, or keys and values are to be gathered. Keys and values that several ranks need have
   whole heads. */
static void to_heads(const wf_par_plan_hook *p, const wf_par_border *b, int n, wf_tensor **x)
{
    enum { HEADS = 3 }; /* queries, keys and values, before positions */
    const wf_layout *to[WF_MAX_OUTPUTS] = {NULL};
    int cp = p->par->cp_axis;
    wf_tensor *y[WF_MAX_OUTPUTS], q, k;

    if (!x[0] || wf_layout_split_dim(x[0]->layout, cp) != 1)
        return;
    for (int i = 0; i < n && i < HEADS; i++)
        to[i] = cut_over_cp(p, x[i], b->dim);
    if (is_gathered(p, x[0], to[0], b->dim)) {
        for (int i = HEADS; i < n; i++)
            x[i] = wf_redistribute(x[i], cut_over_cp(p, x[i], 1));
        return;
    }
    if (wf_context_status(x[0]->ctx) != WF_OK)
        return;
    n = n < HEADS ? n : HEADS;
    q = *x[0];
    k = *x[n > 1];
    q.layout = to[0];
    k.layout = to[n > 1];
    for (int i = 1; i < n && !wf_layout_groups_agree(&q, &k); i++)
        to[i] = wf_layout_whole(p->par->mesh, x[i]->layout, cp);
    wf_border_over(1u << cp, n, x, x, to, y);
    memcpy(x, y, (size_t)n * sizeof *y);
}

/* Splits `dim` over cp: of what has split heads instead, or of what is whole. */
static void to_tokens(const wf_par_plan_hook *p, const wf_par_border *b, int n, wf_tensor **x)
{
    const wf_layout *to[WF_MAX_OUTPUTS] = {NULL};
    int cp = p->par->cp_axis;
    wf_tensor *y[WF_MAX_OUTPUTS];

    if (!x[0] || (b->state == WF_PAR_TOKENS && wf_layout_split_dim(x[0]->layout, cp) < 0))
        return;
    for (int i = 0; i < n; i++)
        to[i] = cut_over_cp(p, x[i], b->dim);
    wf_border_over(1u << cp, n, x, x, to, y);
    memcpy(x, y, (size_t)n * sizeof *y);
}

/* Splits sinks over cp where heads are. */
static void split_sinks(const wf_par_plan_hook *p, const wf_par_border *b, wf_tensor **x)
{
    int cp = p->par->cp_axis;
    const wf_layout *to;

    if (!x[0] || !x[1] || wf_layout_split_dim(x[0]->layout, cp) != b->dim)
        return;
    to = wf_layout_split(p->par->mesh, x[1]->layout, 0, cp);
    wf_border_over(1u << cp, 1, x + 1, x + 1, &to, x + 1);
}

/* Attends where tokens are split: of attention that has no cache. */
static void attend(const wf_par_plan_hook *p, const wf_nn_module *module, int n, wf_tensor **x)
{
    if (x[0] && x[0]->ndim == 4 && wf_layout_split_dim(x[0]->layout, p->par->cp_axis) == 1)
        wf_par_attend(p, (const struct wf_nn_attention *)module, n > 3 ? x[3] : NULL, x);
}

/* Returns true where a norm over features norms each head by itself: these features are whole
   as they are, on any axis that splits heads or tokens. */
static bool is_of_heads(const wf_par_plan_hook *p, const wf_tensor *x)
{
    return p->style == WF_WIDE_NORM && x && x->ndim == 4;
}

/* Returns true for a border at that point; "?" marks one that a module may lack. */
static bool is_at(const wf_par_border *b, const char *point)
{
    return strcmp(b->point + (*b->point == '?'), point) == 0;
}

void wf_par_plan_hook_at(void *self, wf_nn_module *module, const char *point, int n,
                         wf_tensor **x)
{
    const wf_par_plan_hook *p = self;

    for (const wf_par_border *b = p->style ? p->style->borders : NULL; b && b->point; b++) {
        if (!is_at(b, point) || !axes_of(p, b) || is_of_heads(p, x[0]))
            continue;
        if (b->state == WF_PAR_DISPATCH)
            dispatch(p, b, n, x);
        else if (b->state == WF_PAR_COMBINE)
            combine(p, b, x);
        else if (b->state == WF_PAR_FEATURES)
            compute(p, b, x);
        else if (b->state == WF_PAR_ARRIVE)
            x[0] = wf_border_rows_end(x[0]);
        else if (b->state == WF_PAR_HANDLE)
            x[1] = wf_border_handle(p->axis, x[0], x[1]);
        else if (b->state == WF_PAR_HEADS)
            to_heads(p, b, n, x);
        else if (b->state == WF_PAR_ATTEND)
            attend(p, module, n, x);
        else if (b->state == WF_PAR_SINKS)
            split_sinks(p, b, x);
        else if (b->state >= WF_PAR_TOKENS)
            to_tokens(p, b, n, x);
        else if (b->state != WF_PAR_GROUPS)
            pass(p, b, n, x);
        else if (n > 1 && !wf_layout_groups_agree(x[0], x[1]))
            pass(p, b, n - 1, x + 1);
    }
}

bool wf_par_plan_hook_acts(void *self, const char *point)
{
    const wf_par_plan_hook *p = self;
    const wf_par_border *b = p->style ? p->style->borders : NULL;

    while (b && b->point && !(is_at(b, point) && axes_of(p, b)))
        b++;
    return b && b->point;
}
