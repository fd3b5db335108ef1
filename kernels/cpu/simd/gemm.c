/*
 * kernels/cpu/simd/gemm.c - products of matrices by a thread pool (GEMM). Blocks of C come one
 * after the other. For each KC block of a block of C the thread pool runs a macro-kernel: it
 * packs the rows of A (level 2 cache), then shares the columns, NR micro-panels of B of GEMM_NR
 * columns each, whose rows are cut in a few tasks. Every member has a range of tasks, takes
 * them from the front, and packs its next micro-panel while it computes (double buffering). A
 * member that is done takes tasks from the back of others' ranges (work stealing).
 *
 * What the blocking says is better read in place gets no panel, but for tiles at the edges,
 * which a panel fills up with zeros.
 */
#include "kernels/cpu/simd/gemm_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/thread_pool_internal.h"
#include <stdatomic.h>
#include <string.h>

enum { LINE = 64, TASKS = 4 /* tasks of a micro-panel of a group of rows */ };

#define LIMITS                                                                                 \
    .mr = GEMM_MR, .nr = GEMM_NR, .kc = 384, .block_cols = 3072,                               \
    .block_rows = (int64_t)GEMM_MR * ((512 + GEMM_MR - 1) / GEMM_MR) /* 512 tokens are one */
#define HEIGHTS                                                                                \
    {                                                                                          \
        GEMM_MR, GEMM_MR < 8 ? GEMM_MR : 8, 4, 2, 1                                            \
    }

const gemm_kind WF_ISA_NAME(wf_gemm_f32) = {
    .limits = {LIMITS, .pad = 1},
    .heights = HEIGHTS,
    .a_bytes = sizeof(float),
    .b_bytes = sizeof(float),
    .pack_rows = WF_ISA_NAME(wf_gemm_pack_rows),
    .pack_cols = WF_ISA_NAME(wf_gemm_pack_cols),
    .microkernel = WF_ISA_NAME(wf_gemm_microkernel),
};

/* Panels are floats, so that a tile has nothing to do but multiply and add. */
const gemm_kind WF_ISA_NAME(wf_gemm_bf16) = {
    .limits = {LIMITS, .pad = WF_GEMM_TERMS},
    .heights = HEIGHTS,
    .a_bytes = sizeof(float),
    .b_bytes = sizeof(float),
    .pack_rows = WF_ISA_NAME(wf_gemm_bf16_pack_rows),
    .pack_cols = WF_ISA_NAME(wf_gemm_bf16_pack_cols),
    .microkernel = WF_ISA_NAME(wf_gemm_bf16_microkernel),
};

/* C as large as this does not stay in a level 2 cache until someone reads it. */
static const int64_t non_temporal_bytes = 4 << 20;

/* A member's own, at the start of its scratch. */
typedef struct member {
    /* tasks of its range that no thread has taken: first << 32 | end */
    _Atomic uint64_t left;
    gemm_micropanel now, ahead; /* being computed; being packed */
    int64_t now_is, ahead_is;   /* their numbers over all macro-kernels; -1: none */
    int panel;                  /* the one of the member's two that `now` has */
} member;

/* Scratch, in bytes; each part begins at a cache line. */
typedef struct scratch {
    size_t a, spill; /* the thread pool's: packed rows of a KC block; spilled partial sums */
    size_t member, b, edge, state; /* a member's: its struct; two panels; a tile; its kind's */
    size_t panel;                  /* from one panel of b to the next */
} scratch;

/* A macro-kernel and what comes after it. */
typedef struct job {
    gemm_product product;
    scratch size;
    int members;
    char *own;                          /* scratch of member 0; the others' follow */
    const gemm_macrokernel *now, *next; /* NULL: there is none */
    int64_t block, before;              /* after that of `next`; micro-panels before `now` */
    wf_gemm_cursor cursor;              /* the position after `next` */
    gemm_macrokernel macrokernel[2];
} job;

static size_t lines(int64_t bytes)
{
    return ((size_t)bytes + LINE - 1) / LINE * LINE;
}

static size_t of_member(const scratch *s)
{
    return s->member + s->b + s->edge + s->state;
}

static member *member_of(const job *x, int64_t i)
{
    return (member *)(x->own + (size_t)i * of_member(&x->size));
}

/* Returns the micro-panels of a macro-kernel, those of each group of rows counted
   separately. */
static int64_t micropanels(const job *x, const gemm_macrokernel *at)
{
    return gemm_tiles(at->cols, x->product.kind->limits.nr) *
           gemm_tiles(at->rows, x->product.blocking.group);
}

/* Returns the micro-panel with which a member's range begins. */
static int64_t range(const job *x, const gemm_macrokernel *at, int64_t who)
{
    return micropanels(x, at) * who / x->members;
}

/* Takes a task of a member's range, from the front, or from the back to steal it; -1: there is
   none. */
static int64_t take(member *of, bool steal)
{
    uint64_t left = atomic_load_explicit(&of->left, memory_order_relaxed), rest;

    do {
        if (left >> 32 >= (uint32_t)left)
            return -1;
        rest = steal ? left - 1 : left + ((uint64_t)1 << 32);
    } while (!atomic_compare_exchange_weak_explicit(
        &of->left, &left, rest, memory_order_relaxed, memory_order_relaxed));
    return steal ? (int64_t)(uint32_t)rest : (int64_t)(left >> 32);
}

/* Returns where a micro-panel is packed, or begins to be. */
static gemm_micropanel micropanel_of(const job *x, const member *own,
                                     const gemm_macrokernel *at, int64_t micropanel, int panel)
{
    char *b = (char *)own + x->size.member + (size_t)panel * x->size.panel;
    int64_t nr = x->product.kind->limits.nr;

    return WF_ISA_NAME(wf_gemm_micropanel)(&x->product, at,
                                           micropanel % gemm_tiles(at->cols, nr) * nr, b);
}

/* Notes that a member begins a micro-panel: what it packs ahead from now on is the next of its
   range, then the first of the next macro-kernel's, or nothing where the micro-panel is
   stolen. */
static void arrive(const job *x, member *own, int64_t micropanel, int64_t who, bool steal)
{
    bool more = micropanel + 1 < range(x, x->now, who + 1);

    own->panel ^= 1;
    own->now = own->ahead_is == x->before + micropanel
                   ? own->ahead
                   : micropanel_of(x, own, x->now, micropanel, own->panel);
    own->now_is = x->before + micropanel;
    own->ahead_is = -1;
    if (steal || (!more && !x->next))
        return;
    if (more) {
        own->ahead = micropanel_of(x, own, x->now, micropanel + 1, own->panel ^ 1);
        own->ahead_is = own->now_is + 1;
    } else {
        own->ahead = micropanel_of(x, own, x->next, range(x, x->next, who), own->panel ^ 1);
        own->ahead_is = x->before + micropanels(x, x->now) + range(x, x->next, who);
    }
}

static gemm_own lent_to(const job *x, member *own)
{
    char *edge = (char *)own + x->size.member + x->size.b;

    return (gemm_own){.edge = (float *)(void *)edge, .state = edge + x->size.edge};
}

/* Runs the tasks of that member's range, its own or to steal from, as long as there are any. */
static void run_range(const job *x, member *own, int64_t who, bool steal)
{
    const wf_gemm_blocking *blocking = &x->product.blocking;
    const wf_gemm_limits *limits = &x->product.kind->limits;
    const gemm_macrokernel *at = x->now;
    const gemm_own lent = lent_to(x, own);
    gemm_micropanel *ahead;
    int64_t task;

    while ((task = take(member_of(x, who), steal)) >= 0) {
        int64_t micropanel = task / TASKS, part = task % TASKS;
        int64_t row = micropanel / gemm_tiles(at->cols, limits->nr) * blocking->group;
        int64_t rows = wf_least(blocking->group, at->rows - row),
                high = gemm_tiles(rows, limits->mr);
        gemm_rows some = {.begin = row + high * part / TASKS * limits->mr,
                          .end = row + wf_least(rows, high * (part + 1) / TASKS * limits->mr),
                          .share = high};

        if (some.begin == some.end) /* few rows make fewer tasks */
            continue;
        if (own->now_is != x->before + micropanel)
            arrive(x, own, micropanel, who, steal);
        ahead = own->ahead_is >= 0 ? &own->ahead : NULL;
        WF_ISA_NAME(wf_gemm_run_micropanel)(&x->product, at, &lent, some, &own->now, ahead);
    }
}

static void run_ranges(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *x = arg;
    const gemm_kind *kind = x->product.kind;
    void *state = lent_to(x, member_of(x, worker)).state;

    if (kind->enter)
        kind->enter(state);
    for (int64_t who = begin; who < end; who++) {
        for (int64_t i = 0; i < x->members; i++)
            run_range(x, member_of(x, worker), (who + i) % x->members, i > 0);
    }
    if (kind->leave)
        kind->leave(state);
}

static void pack_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *x = arg;

    (void)worker;
    WF_ISA_NAME(wf_gemm_pack_a)(&x->product, x->now, begin, end);
}

static void run_macrokernel(job *x, struct wf_thread_pool *pool)
{
    int64_t panels =
        gemm_tiles(x->now->rows - x->now->first_packed, x->product.kind->limits.mr);

    for (int64_t i = 0; i < x->members; i++) {
        uint64_t first = (uint64_t)(range(x, x->now, i) * TASKS);
        uint64_t end = (uint64_t)(range(x, x->now, i + 1) * TASKS);

        atomic_store_explicit(&member_of(x, i)->left, first << 32 | end, memory_order_relaxed);
    }
    wf_thread_pool_run(pool, panels, gemm_tiles(panels, x->members), pack_rows, x);
    wf_thread_pool_run(pool, x->members, 1, run_ranges, x);
}

/* `next` is the macro-kernel after `now`: the next KC block of its block of C, or the first one
   of the next block of C, if there is any. */
static void follow(job *x)
{
    const wf_gemm_blocking *blocking = &x->product.blocking;
    const wf_gemm_limits *limits = &x->product.kind->limits;
    gemm_macrokernel *next = x->now == x->macrokernel ? x->macrokernel + 1 : x->macrokernel;

    if (!x->now || x->now->kc_block.last) {
        x->next = NULL;
        if (x->block == blocking->row_blocks * blocking->col_blocks)
            return;
        x->cursor = wf_gemm_begin(x->product.g, blocking->transpose, limits->pad);
        x->block++;
    }
    next->row0 = (x->block - 1) % blocking->row_blocks * blocking->rows;
    next->rows = wf_least(blocking->rows, blocking->m - next->row0);
    next->col0 = (x->block - 1) / blocking->row_blocks * blocking->cols;
    next->cols = wf_least(blocking->cols, blocking->n - next->col0);
    next->first_packed = WF_ISA_NAME(wf_gemm_in_place)(&x->product, next->rows);
    wf_gemm_next(&x->cursor, limits->kc, &next->kc_block);
    x->next = next;
}

/* Sizes of scratch. */
static void measure(job *x, const gemm_kind *kind, const wf_gemm *g, int threads)
{
    const int64_t mr = kind->limits.mr, nr = kind->limits.nr, size = sizeof(float);
    const int64_t c_size = g->c_bf16 ? sizeof(uint16_t) : sizeof(float);
    wf_gemm_blocking blocking;

    x->members = wf_gemm_threads(g, threads);
    blocking = wf_gemm_blocking_of(g, &kind->limits, x->members);
    x->product =
        (gemm_product){.kind = kind,
                       .g = g,
                       .blocking = blocking,
                       .non_temporal = !g->add && g->m * g->n * c_size > non_temporal_bytes};
    x->product.spill_level =
        gemm_tiles(blocking.rows, mr) * gemm_tiles(blocking.cols, nr) * mr * nr;
    x->size.a =
        lines((blocking.rows_in_place ? mr : blocking.rows) * blocking.kc * kind->a_bytes);
    x->size.spill = lines(blocking.levels * x->product.spill_level * size);
    x->size.member = lines(sizeof(member));
    x->size.panel = lines(nr * blocking.kc * kind->b_bytes);
    x->size.b = 2 * x->size.panel;
    x->size.edge = lines(mr * nr * size);
    x->size.state = lines(kind->state_bytes);
}

size_t WF_ISA_NAME(wf_gemm_workspace_of)(const gemm_kind *kind, const wf_gemm *g, int threads)
{
    job x;

    if (g->m <= 0 || g->n <= 0 || wf_gemm_is_empty(g))
        return 0;
    measure(&x, kind, g, threads);
    return x.size.a + x.size.spill + (size_t)x.members * of_member(&x.size) + LINE;
}

/* Fills the result of a tree without terms with +0. */
static void add_nothing(const wf_gemm *g)
{
    size_t size = g->c_bf16 ? sizeof(uint16_t) : sizeof(float);

    for (int64_t i = 0; i < g->m; i++) {
        if (g->add) {
            float *row = (float *)g->c + i * g->c_row;

            for (int64_t j = 0; j < g->n; j++)
                row[j] += 0.0f; /* -0 becomes +0 */
        } else {
            memset((char *)g->c + (size_t)(i * g->c_row) * size, 0, (size_t)g->n * size);
        }
    }
}

void WF_ISA_NAME(wf_gemm_run)(const gemm_kind *kind, struct wf_thread_pool *pool,
                              const wf_gemm *g, void *workspace)
{
    char *line = (char *)(((uintptr_t)workspace + LINE - 1) / LINE * LINE);
    job x;

    if (g->m <= 0 || g->n <= 0)
        return;
    if (wf_gemm_is_empty(g)) {
        add_nothing(g);
        return;
    }
    measure(&x, kind, g, wf_thread_pool_size(pool));
    x.now = x.next = NULL;
    x.block = x.before = 0;
    x.macrokernel[0].a = x.macrokernel[1].a = line;
    x.product.spill = (float *)(void *)(line + x.size.a);
    x.own = line + x.size.a + x.size.spill;
    for (int i = 0; i < x.members; i++)
        *member_of(&x, i) = (member){.now_is = -1, .ahead_is = -1};
    for (follow(&x); x.next;) {
        x.now = x.next;
        follow(&x);
        run_macrokernel(&x, x.members > 1 ? pool : NULL);
        x.before += micropanels(&x, x.now);
    }
}

static const gemm_kind *kind_of(const wf_gemm *g)
{
    return g->bf16 ? &WF_ISA_NAME(wf_gemm_bf16) : &WF_ISA_NAME(wf_gemm_f32);
}

size_t WF_ISA_NAME(wf_gemm_workspace)(const wf_gemm *g, int threads)
{
    return WF_ISA_NAME(wf_gemm_is_small_m)(g)
               ? 0
               : WF_ISA_NAME(wf_gemm_workspace_of)(kind_of(g), g, threads);
}

void WF_ISA_NAME(wf_gemm)(struct wf_thread_pool *pool, const wf_gemm *g, void *workspace)
{
    if (WF_ISA_NAME(wf_gemm_is_small_m)(g))
        WF_ISA_NAME(wf_gemm_small_m)(pool, g, 1);
    else
        WF_ISA_NAME(wf_gemm_run)(kind_of(g), pool, g, workspace);
}
