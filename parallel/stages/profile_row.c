/*
 * parallel/stages/profile_row.c - which actions of a row are alike: what each one finds of what
 * those before it have left.
 */
#include "parallel/stages/profile_internal.h"
#include <stdlib.h>
#include <string.h>

/* The finished work of a (stage, micro-batch). */
enum {
    FORWARD = 1,
    BACKWARD = 2, /* I or B */
    WEIGHTS = 4,  /* W or B */
    SENDS_F = 8,  /* its message has begun, and not ended */
    SENDS_B = 16,
    RECOMPUTES = 32 /* it has an R */
};

/* Nodes of the midpoint tree over micro-batches that are there; gradients_sum.c without
   tensors. */
typedef struct tree {
    int64_t (*node)[2]; /* first, count */
    int open;
} tree;

struct wf_par_profile_stage {
    tree sum, group;
    int64_t (*room)[2];
    uint64_t seen; /* a bit for each kind that the step has had */
    bool used;     /* since it was gathered */
    bool begun;    /* its reduction */
    int buckets;   /* finished after other actions */
};

typedef struct wf_par_profile_stage state;

static wf_status open_arrays(wf_par_profile_row *r, wf_error *error)
{
    wf_pipe_shape shape = wf_pipe_table_shape(r->table);
    size_t micro = (size_t)shape.micro;

    r->of = malloc((size_t)shape.stages * sizeof *r->of);
    r->stage = calloc((size_t)shape.stages, sizeof *r->stage);
    for (int s = 0; r->of && r->stage && s < shape.stages; s++) {
        r->of[s] = wf_pipe_table_rank(r->table, s) == r->rank ? r->stages : -1;
        if (r->of[s] >= 0)
            r->stage[r->stages++] = s;
    }
    r->state = calloc((size_t)r->stages + 1, sizeof *r->state);
    r->flag = calloc((size_t)r->stages * micro + 1, sizeof *r->flag);
    if (!r->of || !r->stage || !r->state || !r->flag)
        return wf_error_set(error, WF_ENOMEM, "no memory to walk a row");
    for (int k = 0; k < r->stages; k++) {
        r->state[k].room = calloc(2 * micro + 4, sizeof *r->state[k].room);
        if (!r->state[k].room)
            return wf_error_set(error, WF_ENOMEM, "no memory to walk a row");
        r->state[k].sum.node = r->state[k].room;
        r->state[k].group.node = r->state[k].room + micro + 2;
    }
    return WF_OK;
}

static void find_recomputed(wf_par_profile_row *r)
{
    int64_t n;
    const wf_pipe_action *a = wf_pipe_table_row(r->table, r->rank, &n);
    int micro = wf_pipe_table_shape(r->table).micro;

    for (int64_t i = 0; i < n; i++)
        if (a[i].kind == WF_PIPE_R)
            r->flag[(int64_t)r->of[a[i].stage] * micro + a[i].micro] |= RECOMPUTES;
}

void wf_par_profile_row_restart(wf_par_profile_row *r)
{
    int64_t n = (int64_t)r->stages * wf_pipe_table_shape(r->table).micro;

    for (int64_t i = 0; i < n; i++)
        r->flag[i] &= RECOMPUTES;
    for (int k = 0; k < r->stages; k++) {
        state *s = &r->state[k];

        s->sum.open = s->group.open = s->buckets = 0;
        s->seen = 0;
        s->used = s->begun = false;
    }
}

wf_status wf_par_profile_row_open(wf_par_profile_row *row, const wf_pipe_table *table, int rank,
                                  const int *like, wf_par_profile_sums sums, wf_error *error)
{
    *row = (wf_par_profile_row){.table = table, .rank = rank, .like = like, .sums = sums};
    if (open_arrays(row, error) == WF_OK)
        find_recomputed(row);
    else
        wf_par_profile_row_close(row);
    return error->code;
}

void wf_par_profile_row_close(wf_par_profile_row *r)
{
    for (int k = 0; r->state && k < r->stages; k++)
        free(r->state[k].room);
    free(r->stage);
    free(r->of);
    free(r->state);
    free(r->flag);
    *r = (wf_par_profile_row){.table = NULL};
}

/* The other child of a node's parent, in the midpoint tree over n terms. */
static void sibling_of(const int64_t node[2], int64_t n, int64_t other[2])
{
    int64_t first = 0, count = n;

    for (;;) {
        int64_t half = count / 2;
        bool older = node[0] < first + half;

        other[0] = older ? first + half : first;
        other[1] = older ? count - half : half;
        first = older ? first : first + half;
        count = older ? half : count - half;
        if (count == node[1])
            return;
    }
}

/* Add a node; returns how many merges follow, and says whether the first is with a newer
   one. */
static int add_node(tree *t, int64_t first, int64_t count, int64_t n, bool *newer)
{
    int at = t->open, merges = 0;

    while (at > 0 && t->node[at - 1][0] > first)
        at--;
    memmove(t->node + at + 1, t->node + at, (size_t)(t->open++ - at) * sizeof *t->node);
    t->node[at][0] = first;
    t->node[at][1] = count;
    while (t->node[at][1] < n) {
        int64_t other[2];
        int neighbour;

        sibling_of(t->node[at], n, other);
        neighbour = other[0] < t->node[at][0] ? at - 1 : at + 1;
        if (neighbour < 0 || neighbour >= t->open || t->node[neighbour][0] != other[0] ||
            t->node[neighbour][1] != other[1])
            break;
        if (!merges++)
            *newer = neighbour > at;
        at = neighbour < at ? neighbour : at;
        t->node[at][1] += t->node[at + 1][1];
        t->open--;
        memmove(t->node + at + 1, t->node + at + 2,
                (size_t)(t->open - at - 1) * sizeof *t->node);
    }
    return merges;
}

/* Which sums a W or B completes: bits of a key. */
static uint64_t merge(const wf_par_profile_row *r, state *s, int64_t first, int64_t count)
{
    int64_t n = wf_pipe_table_shape(r->table).micro, group = r->sums.group;
    bool newer = false, ends = true;
    int merges, above = 0;

    if (!r->sums.exact) {
        merges = s->sum.open ? 1 : 0;
        s->sum.open = 1;
    } else if (!r->sums.reduced || group == 1) {
        merges = add_node(&s->sum, first, count, n, &newer);
    } else {
        merges = add_node(&s->group, first, count, n, &newer);
        ends = false;
        for (int i = 0; i < s->group.open && !ends; i++)
            ends = s->group.node[i][0] <= first && s->group.node[i][1] >= group;
        if (ends) {
            bool other = false;

            s->group.open =
                0; /* nodes of other groups may be open only in tables out of order */
            above = add_node(&s->sum, first / group, 1, n / group, &other);
        }
    }
    return (uint64_t)merges | (uint64_t)above << 6 | (uint64_t)newer << 12 |
           (uint64_t)ends << 13;
}

static uint16_t *flag_of(const wf_par_profile_row *r, int stage, int64_t micro)
{
    int stages = wf_pipe_table_shape(r->table).stages;

    if (stage < 0 || stage >= stages || r->of[stage] < 0)
        return NULL;
    return &r->flag[(int64_t)r->of[stage] * wf_pipe_table_shape(r->table).micro + micro];
}

/* Returns flags of the memory that a (stage, micro-batch) shares with neighbours on the same
   rank, and that these still hold. */
static uint64_t neighbours(const wf_par_profile_row *r, int stage, int64_t micro)
{
    const uint16_t *before = flag_of(r, stage - 1, micro),
                   *after = flag_of(r, stage + 1, micro);

    return (uint64_t)(before != NULL) | (uint64_t)(after != NULL) << 1 |
           (uint64_t)(before && *before & BACKWARD) << 2 |
           (uint64_t)(before && *before & WEIGHTS) << 3 |
           (uint64_t)(after && *after & WEIGHTS) << 4;
}

/* The changes of an action in the flags of its micro-batch. */
static uint16_t after(int kind, uint16_t flag)
{
    switch (kind) {
    case WF_PIPE_F:
        return flag | FORWARD;
    case WF_PIPE_B:
        return flag | BACKWARD | WEIGHTS;
    case WF_PIPE_I:
        return flag | BACKWARD;
    case WF_PIPE_W:
        return flag | WEIGHTS;
    case WF_PIPE_SEND_F:
        return flag | SENDS_F;
    case WF_PIPE_SEND_B:
        return flag | SENDS_B;
    case WF_PIPE_SENT_F:
        return flag & (uint16_t)~SENDS_F;
    case WF_PIPE_SENT_B:
        return flag & (uint16_t)~SENDS_B;
    default:
        return flag;
    }
}

static uint64_t key_of(wf_par_profile_row *r, const wf_pipe_action *a)
{
    int like = r->like ? r->like[a->stage] : a->stage;
    state *s = r->of[a->stage] >= 0 ? &r->state[r->of[a->stage]] : NULL;
    bool weights = a->kind == WF_PIPE_B || a->kind == WF_PIPE_W;
    uint64_t key = (uint64_t)(a->kind + 2) << 58, found = 0;

    if (!s) /* TIE */
        return key;
    key |= (uint64_t)like << 44 | (uint64_t) !(s->seen >> a->kind & 1) << 43 |
           (uint64_t)s->used << 42;
    if (a->kind <= WF_PIPE_R)
        key |= (uint64_t)(a->last - a->micro) << 38;
    if (a->kind <= WF_PIPE_R || a->kind >= WF_PIPE_SEND_F) {
        for (int64_t m = a->micro; m <= a->last && a->kind < WF_PIPE_TIE; m++) {
            uint16_t *flag = flag_of(r, a->stage, m);

            found |= *flag | neighbours(r, a->stage, m) << 6;
            *flag = after(a->kind, *flag);
        }
        s->used |= a->kind <= WF_PIPE_R;
    }
    key |= found << 20;
    if (weights)
        key |= merge(r, s, a->micro, a->last - a->micro + 1);
    if (a->kind == WF_PIPE_REDUCE)
        s->begun = true;
    if (a->kind == WF_PIPE_REDUCED) {
        key |= (uint64_t)s->buckets;
        s->begun = false;
    }
    if (a->kind == WF_PIPE_UNSHARD)
        s->used = false;
    s->seen |= UINT64_C(1) << a->kind;
    return key;
}

/* Two actions that alternate have a kind of their own, stage and sums of the one that is no
   forward, and between these a hash of all else. */
uint64_t wf_par_profile_row_key(wf_par_profile_row *r, const wf_pipe_action *a)
{
    const uint64_t stage = UINT64_C(0x3fff) << 44, sums = UINT64_C(0x3fff);
    bool both = wf_par_profile_row_count(r, a) == 2;
    uint64_t key = key_of(r, a), next, back, mixed;

    if (!both)
        return key;
    next = key_of(r, a + 1);
    back = a->kind == WF_PIPE_F ? next : key;
    mixed = (key + next - back) * UINT64_C(0x9e3779b97f4a7c15) + (back & ~(stage | sums));
    mixed = (mixed ^ mixed >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint64_t)(WF_PAR_PROFILE_BOTH + 2) << 58 | (back & (stage | sums)) |
           mixed >> 34 << 14;
}

uint64_t wf_par_profile_row_bucket(wf_par_profile_row *r, int k)
{
    state *s = &r->state[k];
    int like = r->like ? r->like[r->stage[k]] : r->stage[k];

    if (!s->begun)
        return 0;
    return UINT64_C(1) << 58 | (uint64_t)like << 44 | (uint64_t)s->buckets++;
}
