/*
 * tests/differential/operands.c - one more op for a program: a row of the table, operands among
 * the values that fit its signature, or new ones, and the layout in which a mesh will have
 * them.
 */
#include "tests/differential/program.h"

enum { ROTATED = 4 }; /* features of heads that a product rotates */

/* The letters of a signature, bound to dims in a call that is being put together. */
typedef struct binding {
    const wf_op *op;
    pattern p;
    uint32_t known;
    wf_dim dim[WF_LETTERS];
} binding;

static int64_t draw_size(draw *d, int64_t largest, const selection *what)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16};
    int64_t n;

    do
        n = draw_one_in(d, 40) ? 0 : sizes[draw_below(d, (int)(sizeof sizes / sizeof *sizes))];
    while (n > largest);
    return what->largest && n > what->largest ? what->largest : n;
}

static wf_dim draw_kind(draw *d, int64_t size)
{
    static const int heads[] = {2, 3, 4};
    int kind = draw_below(d, 8), head = heads[draw_below(d, 3)];

    if (kind == 0)
        return wf_dim_heads((size + head - 1) / head, head);
    if (kind == 1)
        return wf_dim_batch(size);
    return kind < 5 ? wf_dim_chunked(size) : wf_dim_width(size);
}

/* A multiple of n, or a divisor. */
static int64_t relative(draw *d, int64_t n, bool divisor)
{
    int64_t k = 1 + draw_below(d, 4);

    if (!divisor)
        return n * k;
    while (n % k)
        k--;
    return n / k;
}

/* A dim that goes with another one of the call, once that is bound: a slice with its whole, and
   patches (of 3 indices, every second one) with their image. */
static bool follows(const binding *b, draw *d, int name, wf_dim *dim)
{
    const bool slice = op_is(b->op, "slice_grad"), patches = op_is(b->op, "patches_grad");
    const int whole = slice ? 'n' : 's', part = slice ? 'p' : 'n';
    const int other = name == part ? whole : part;

    if (patches && name == 'k')
        return *dim = wf_dim_width(3), true;
    if ((!slice && !patches) || (name != whole && name != part) ||
        !(b->known >> (other - 'a') & 1))
        return false;
    *dim = b->dim[other - 'a'];
    if (slice)
        dim->size += dim->grain * (name == whole ? draw_below(d, 3) : -draw_below(d, 3));
    else
        dim->size = name == whole ? 2 * dim->size - draw_below(d, 2) : (dim->size + 1) / 2;
    dim->grain = slice ? dim->grain : 1;
    dim->size = dim->size < 0 ? 0 : dim->size;
    return true;
}

/* Returns true for heads of queries and keys that a product rotates, which are alike. */
static bool has_heads(const wf_op *op, int name)
{
    return strncmp(op->name, "linear3_rope", 12) == 0 && (name == 'n' || name == 'm');
}

static wf_dim draw_dim(const binding *b, draw *d, int letter, const selection *what)
{
    bool of_heads = b->op->flags & WF_OP_GROUPS;
    int name = letter < 26 ? 'a' + letter : '.';
    int64_t size = draw_size(d, b->p.ndim[0] > 3 ? 8 : 16, what);
    wf_dim dim;

    if (follows(b, d, name, &dim))
        return dim;
    if (has_heads(b->op, name))
        return wf_dim_heads(1 + size / ROTATED, ROTATED);
    if (name == 'b')
        return draw_one_in(d, 6) ? draw_kind(d, size) : wf_dim_batch(size);
    if (name == 'e' && strncmp(b->op->name, "experts", 7) == 0)
        return wf_dim_experts(size);
    if (name == '.' || name == 's')
        return draw_one_in(d, 5) ? draw_kind(d, size) : wf_dim_chunked(size);
    if (of_heads && name == 'h')
        return wf_dim_chunked(
            b->known >> ('g' - 'a') & 1 ? relative(d, b->dim['g' - 'a'].size, false) : size);
    if (of_heads && name == 'g')
        return wf_dim_chunked(
            b->known >> ('h' - 'a') & 1 ? relative(d, b->dim['h' - 'a'].size, true) : size);
    if (name == 'h' && op_is(b->op, "merge_heads"))
        return wf_dim_chunked(size);
    if (name == 'd' && strstr(b->op->signature, "hd!"))
        return wf_dim_width(strstr(b->op->name, "rope") ? 2 * (1 + draw_below(d, 3))
                                                        : 1 + size % 6);
    return draw_kind(d, size);
}

/* Returns true where a value can be operand i; its dims are bound then. */
static bool bind(binding *b, int i, const value *v)
{
    bool integer = b->op->integers >> i & 1;
    binding after = *b;

    if ((v->dtype == WF_I32) != integer || v->ndim != b->p.ndim[i])
        return false;
    for (int d = 0; d < v->ndim; d++) {
        int letter = b->p.letter[i][d];

        if (has_heads(b->op, 'a' + letter) && v->dim[d].grain != ROTATED)
            return false;
        if (after.known >> letter & 1) {
            if (!wf_dim_equal(after.dim[letter], v->dim[d]))
                return false;
        } else {
            after.known |= 1u << letter;
            after.dim[letter] = v->dim[d];
        }
    }
    if (integer && (after.known >> ('v' - 'a') & 1) && v->below > after.dim['v' - 'a'].size)
        return false;
    *b = after;
    return true;
}

step *append(maker *m, step s)
{
    program *p = m->p;

    if (p->n_steps == STEPS || p->n_values + WF_MAX_OUTPUTS > VALUES)
        return NULL;
    for (int o = 0; o < s.n_out; o++)
        s.out[o] = p->n_values + o;
    s.module = m->inside ? p->n_modules + 1 : 0;
    p->step[p->n_steps] = s;
    return &p->step[p->n_steps++];
}

/* Each axis to one of n indices, or to none. */
placing draw_placing(const program *p, draw *d, int n, const int *indices)
{
    placing to;

    for (int a = 0; a < AXES; a++) {
        to.at[a] =
            (int8_t)(n == 0 || draw_one_in(d, 5) ? LAYOUT_WHOLE : indices[draw_below(d, n)]);
        to.order[a] = (int8_t)a;
    }
    if (draw_one_in(d, 4))
        for (int a = p->world->n_axes - 1; a > 0; a--) {
            int other = draw_below(d, a + 1);
            int8_t kept = to.order[a];

            to.order[a] = to.order[other];
            to.order[other] = kept;
        }
    return to;
}

/* Draws a placing of a tensor's dims; sums where that may be. */
placing draw_dim_layouts(const program *p, draw *d, int ndim, bool partial)
{
    int indices[WF_MAX_DIMS + 1];

    for (int i = 0; i < ndim; i++)
        indices[i] = i;
    indices[ndim] = LAYOUT_SUM;
    return draw_placing(p, d, ndim + partial, indices);
}

int make_leaf(maker *m, wf_dtype dtype, int ndim, const wf_dim *dims, int below, bool positive)
{
    program *p = m->p;
    bool index = dtype == WF_F32 && below > 0;
    bool wanted = dtype != WF_I32 && !draw_one_in(&m->d, 5) && !index;
    bool partial = dtype == WF_F32 && draw_one_in(&m->d, 6) && !index;
    bool maximum = partial && !wanted && draw_one_in(&m->d, 2); /* a maximum has no gradient */
    step s = {.kind = STEP_LEAF, .round = m->round, .n_out = 1, .positive = positive};
    int id = p->n_values;

    s.key = draw_bits(&m->d);
    if (dtype == WF_F32 && p->storage == WF_BF16 && draw_one_in(&m->d, 2) && !index)
        dtype = WF_BF16;
    s.to = draw_dim_layouts(p, &m->d, ndim, partial && dtype == WF_F32);
    for (int a = 0; a < AXES; a++)
        if (maximum && s.to.at[a] == LAYOUT_SUM)
            s.to.at[a] = LAYOUT_MAX;
    if (!append(m, s))
        return -1;
    p->value[id] =
        (value){.dtype = dtype, .ndim = ndim, .below = below, .wanted = wanted, .source = id};
    memcpy(p->value[id].dim, dims, (size_t)ndim * sizeof *dims);
    return run_on_one(m) ? id : -1;
}

/* Computes a value from a leaf before it is used: scaled, masked, or moved. */
static int compute_from(maker *m, int leaf)
{
    program *p = m->p;
    const value *v = &p->value[leaf];
    step s = {.kind = STEP_APPLY, .round = m->round, .n_in = 1, .in = {leaf}, .n_out = 1};
    int id, how = draw_below(&m->d, 6);

    s.to = draw_dim_layouts(p, &m->d, v->ndim, false);
    s.way = p->strict ? WAY_REDISTRIBUTE : WAY_AS_IS;
    s.rest = v->ndim;
    if (how == 0) {
        s.op = &wf_op_scale;
        s.attr.scale.factor = 0.75f;
    } else if (how == 1) {
        s.op = &wf_op_mul;
        s.n_in = 2;
        s.in[1] = make_leaf(m, WF_F32, v->ndim, v->dim, 0, false);
        if (s.in[1] < 0)
            return leaf;
    } else if (how == 2) {
        s.kind = STEP_MOVE;
        s.way = WAY_REDISTRIBUTE;
    } else if (how == 3 && v->wanted) {
        s.kind = STEP_REUSE;
    } else {
        return leaf;
    }
    for (int a = 0; a < AXES; a++) /* letters of "..." */
        if (s.kind == STEP_APPLY && s.to.at[a] >= 0)
            s.to.at[a] = (int8_t)(s.to.at[a] + 26);
    id = p->n_values;
    return append(m, s) && run_on_one(m) ? id : leaf;
}

/* A value that fits operand i. */
static int find_operand(maker *m, binding *b, int i)
{
    int found = -1, n = 0;

    for (int id = 0; id < m->p->n_values; id++) {
        binding after = *b;
        const value *v = &m->p->value[id];
        int uses = m->p->value[v->source].uses;

        if (!v->one || !within_reach(m, id) || !bind(&after, i, v))
            continue;
        n += uses ? 1 : 4; /* rather what nobody uses yet */
        if (draw_below(&m->d, n) < (uses ? 1 : 4))
            found = id;
    }
    if (found >= 0)
        bind(b, i, &m->p->value[found]);
    return found;
}

static int new_operand(maker *m, binding *b, int i)
{
    wf_dim dims[WF_MAX_DIMS];
    bool integer = b->op->integers >> i & 1;
    bool positive = op_is_positive(b->op, i);
    bool expert = op_is_expert(b->op, i), index = expert || op_is_index(b->op, i);
    int rows = (expert ? 't' : 'n') - 'a';
    int64_t below = 1 + draw_below(&m->d, 9);
    int id;

    for (int d = 0; d < b->p.ndim[i]; d++) {
        int letter = b->p.letter[i][d];

        if (!(b->known >> letter & 1)) {
            b->dim[letter] = draw_dim(b, &m->d, letter, m->what);
            b->known |= 1u << letter;
        }
        dims[d] = b->dim[letter];
    }
    if (integer && (b->p.letters >> ('v' - 'a') & 1)) {
        below = b->dim['v' - 'a'].size;
        if (below < 1)
            return -1;
    }
    if (index && b->known >> rows & 1) /* else there is no row to be one of */
        below = b->dim[rows].size;
    if (below < 1)
        return -1;
    id = make_leaf(m, integer ? WF_I32 : WF_F32, b->p.ndim[i], dims,
                   integer || index ? (int)below : 0, positive);
    return id < 0 || integer || index ? id : compute_from(m, id);
}

/* Any operand of numbers is bound first, then the others; integers last, since they may have to
   be tokens of a vocabulary. */
static void draw_order(maker *m, const binding *b, int n_in, int *order)
{
    int first = draw_below(&m->d, n_in), n = 1;

    order[0] = b->op->integers >> first & 1 ? 0 : first;
    for (unsigned integer = 0; integer < 2; integer++)
        for (int i = 0; i < n_in; i++)
            if (i != order[0] && (b->op->integers >> i & 1) == integer)
                order[n++] = i;
}

static bool draw_operands(maker *m, binding *b, step *s)
{
    int order[WF_MAX_INPUTS];

    draw_order(m, b, s->n_in, order);
    for (int k = 0; k < s->n_in; k++) {
        int i = order[k];

        s->in[i] = draw_below(&m->d, 8) < (k ? 5 : 7) ? find_operand(m, b, i) : -1;
        if (s->in[i] < 0)
            s->in[i] = new_operand(m, b, i);
        if (s->in[i] < 0)
            return false;
    }
    return true;
}

/* The letters that axes may split, and how many. */
static int open_letters(const binding *b, int *letters)
{
    int n = 0;

    for (int l = 0; l < WF_LETTERS; l++)
        if (b->p.letters >> l & 1 && !(b->p.whole >> l & 1))
            letters[n++] = l;
    return n;
}

static way draw_way(maker *m)
{
    if (!m->p->strict && draw_one_in(&m->d, 3))
        return WAY_AS_IS;
    return draw_one_in(&m->d, 3)   ? WAY_MANY
           : draw_one_in(&m->d, 6) ? WAY_KEEP_ORIGIN
                                   : WAY_REDISTRIBUTE;
}

bool draw_apply(maker *m, const wf_op *op)
{
    step s = {.kind = STEP_APPLY, .round = m->round, .op = op};
    int letters[WF_LETTERS], n;
    binding b = {.op = op};

    s.rest = strstr(op->signature, "b...") ? draw_below(&m->d, 3) : 1 + draw_below(&m->d, 3);
    if (strncmp(op->signature, "bs...", 5) == 0)
        s.rest = draw_below(&m->d, 3);
    b.p = pattern_of(op, s.rest);
    s.n_in = b.p.n_in;
    s.n_out = op_is(op, "linear1_bias_gelu") || op_is(op, "linear2_swiglu") ? 1 : b.p.n_out;
    if (!draw_operands(m, &b, &s))
        return false;
    draw_attributes(m, &s);
    n = open_letters(&b, letters);
    s.to = draw_placing(m->p, &m->d, n, letters);
    s.tied = !draw_one_in(&m->d, 8);
    s.way = draw_way(m);
    return append(m, s) && run_on_one(m);
}
