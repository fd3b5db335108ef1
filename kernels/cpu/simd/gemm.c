/*
 * kernels/cpu/simd/gemm.c - products of matrices by a team (GEMM). Blocks of C come one after the
 * other. For each KC block of a block of C the team runs a macro-kernel: it packs the rows of A (level 2
 * cache), then shares the columns, NR micro-panels of B of GEMM_NR columns each, whose rows are cut in a
 * few tasks. Every member has a range of tasks, takes them from the front, and packs its next micro-panel
 * while it computes (double buffering). A member that is done takes tasks from the back of others'
 * ranges (work stealing).
 *
 * What the blocking says is better read in place gets no panel, but for tiles at the edges, which a
 * panel fills up with zeros.
 */
#include "kernels/cpu/simd/gemm_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/team_internal.h"
#include <stdatomic.h>
#include <string.h>

enum { LINE = 64, TASKS = 4 /* a micro-panel of a group of rows has so many */ };

static const wf_gemm_limits limits = {
    .mr = GEMM_MR,
    .nr = GEMM_NR,
    .kc = 384,
    .block_rows = (int64_t)GEMM_MR * ((512 + GEMM_MR - 1) / GEMM_MR), /* 512 tokens are one */
    .block_cols = 3072,
};

/* A member's own, at the start of its scratch. */
typedef struct member {
    _Atomic uint64_t left;      /* tasks of its range that nobody has: first << 32 | end */
    gemm_micropanel now, ahead; /* being computed; being packed */
    int64_t now_is, ahead_is;   /* their numbers over all macro-kernels; -1: none */
    int panel;                  /* the one of the member's two that `now` has */
} member;

/* Scratch, in floats; each part begins at a cache line. */
typedef struct scratch {
    size_t a, spill;        /* the team's: packed rows of a KC block; spilled partial sums */
    size_t member, b, edge; /* a member's: its struct; two panels; a tile */
    int64_t panel;          /* from one panel of b to the next */
} scratch;

/* A macro-kernel and what comes after it. */
typedef struct job {
    gemm_product product;
    scratch size;
    int members;
    float *own;                         /* scratch of member 0; the others' follow */
    const gemm_macrokernel *now, *next; /* NULL: there is none */
    int64_t block, before;              /* after that of `next`; micro-panels before `now` */
    wf_gemm_cursor cursor;              /* behind `next` */
    gemm_macrokernel macrokernel[2];
} job;

static size_t lines(int64_t floats)
{
    return ((size_t)floats * sizeof(float) + LINE - 1) / LINE * (LINE / sizeof(float));
}

static size_t of_member(const scratch *s)
{
    return s->member + s->b + s->edge;
}

static member *member_of(const job *x, int64_t i)
{
    return (member *)(x->own + (size_t)i * of_member(&x->size));
}

/* Micro-panels of a macro-kernel, those of each group of rows counted apart. */
static int64_t micropanels(const job *x, const gemm_macrokernel *at)
{
    return gemm_tiles(at->cols, GEMM_NR) * gemm_tiles(at->rows, x->product.blocking.group);
}

/* The micro-panel with which a member's range begins. */
static int64_t range(const job *x, const gemm_macrokernel *at, int64_t who)
{
    return micropanels(x, at) * who / x->members;
}

/* Takes a task of a member's range, from the front, or from the back to steal it; -1: there is none. */
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

/* Where a micro-panel is packed, or begins to be. */
static gemm_micropanel micropanel_of(const job *x, const member *own,
                                     const gemm_macrokernel *at, int64_t micropanel, int panel)
{
    float *b = (float *)own + x->size.member + panel * x->size.panel;

    return WF_ISA_NAME(wf_gemm_micropanel)(
        &x->product, at, micropanel % gemm_tiles(at->cols, GEMM_NR) * GEMM_NR, b);
}

/* A member comes to a micro-panel: what it packs ahead from now on is the next of its range, then the
   first of the next macro-kernel's, or nothing where the micro-panel is stolen. */
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

/* Runs the tasks of that member's range, its own or to steal from, as long as there are any. */
static void run_range(const job *x, member *own, int64_t who, bool steal)
{
    const wf_gemm_blocking *blocking = &x->product.blocking;
    const gemm_macrokernel *at = x->now;
    float *edge = (float *)own + x->size.member + x->size.b;
    gemm_micropanel *ahead;
    int64_t task;

    while ((task = take(member_of(x, who), steal)) >= 0) {
        int64_t micropanel = task / TASKS, part = task % TASKS;
        int64_t row = micropanel / gemm_tiles(at->cols, GEMM_NR) * blocking->group;
        int64_t rows = wf_least(blocking->group, at->rows - row),
                high = gemm_tiles(rows, GEMM_MR);
        gemm_rows some = {.begin = row + high * part / TASKS * GEMM_MR,
                          .end = row + wf_least(rows, high * (part + 1) / TASKS * GEMM_MR),
                          .share = high};

        if (some.begin == some.end) /* few rows make fewer tasks */
            continue;
        if (own->now_is != x->before + micropanel)
            arrive(x, own, micropanel, who, steal);
        ahead = own->ahead_is >= 0 ? &own->ahead : NULL;
        WF_ISA_NAME(wf_gemm_run_micropanel)(&x->product, at, edge, some, &own->now, ahead);
    }
}

static void run_ranges(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *x = arg;

    for (int64_t who = begin; who < end; who++) {
        for (int64_t i = 0; i < x->members; i++)
            run_range(x, member_of(x, worker), (who + i) % x->members, i > 0);
    }
}

static void pack_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    WF_ISA_NAME(wf_gemm_pack_a)(((const job *)arg)->now, begin, end);
}

static void run_macrokernel(job *x, struct wf_team *team)
{
    int64_t panels = gemm_tiles(x->now->rows - x->now->first_packed, GEMM_MR);

    for (int64_t i = 0; i < x->members; i++) {
        uint64_t first = (uint64_t)(range(x, x->now, i) * TASKS);
        uint64_t end = (uint64_t)(range(x, x->now, i + 1) * TASKS);

        atomic_store_explicit(&member_of(x, i)->left, first << 32 | end, memory_order_relaxed);
    }
    wf_team_run(team, panels, gemm_tiles(panels, x->members), pack_rows, x);
    wf_team_run(team, x->members, 1, run_ranges, x);
}

/* `next` is the macro-kernel after `now`: the next KC block of its block of C, or the first one of the
   next block of C, if there is any. */
static void follow(job *x)
{
    const wf_gemm_blocking *blocking = &x->product.blocking;
    gemm_macrokernel *next = x->now == x->macrokernel ? x->macrokernel + 1 : x->macrokernel;

    if (!x->now || x->now->kc_block.last) {
        x->next = NULL;
        if (x->block == blocking->row_blocks * blocking->col_blocks)
            return;
        x->cursor = wf_gemm_begin(x->product.g, blocking->transpose);
        x->block++;
    }
    next->row0 = (x->block - 1) % blocking->row_blocks * blocking->rows;
    next->rows = wf_least(blocking->rows, blocking->m - next->row0);
    next->col0 = (x->block - 1) / blocking->row_blocks * blocking->cols;
    next->cols = wf_least(blocking->cols, blocking->n - next->col0);
    next->first_packed = WF_ISA_NAME(wf_gemm_in_place)(blocking, next->rows);
    wf_gemm_next(&x->cursor, limits.kc, &next->kc_block);
    x->next = next;
}

/* Sizes of scratch. */
static void measure(job *x, const wf_gemm *g, int threads)
{
    wf_gemm_blocking blocking;

    x->members = wf_gemm_threads(g, threads);
    blocking = wf_gemm_blocking_of(g, &limits, x->members);
    x->product = (gemm_product){.g = g, .blocking = blocking};
    x->product.spill_level =
        gemm_tiles(blocking.rows, GEMM_MR) * gemm_tiles(blocking.cols, GEMM_NR) * GEMM_TILE;
    x->size.a = lines((blocking.rows_in_place ? GEMM_MR : blocking.rows) * blocking.kc);
    x->size.spill = lines(blocking.levels * x->product.spill_level);
    x->size.member = lines((int64_t)(sizeof(member) / sizeof(float)));
    x->size.panel = (int64_t)lines(GEMM_NR * blocking.kc);
    x->size.b = 2 * (size_t)x->size.panel;
    x->size.edge = lines(GEMM_TILE);
}

size_t WF_ISA_NAME(wf_gemm_workspace)(const wf_gemm *g, int threads)
{
    size_t floats;
    job x;

    if (g->m <= 0 || g->n <= 0 || g->n_parts <= 0)
        return 0;
    measure(&x, g, threads);
    floats = x.size.a + x.size.spill + (size_t)x.members * of_member(&x.size);
    return floats * sizeof(float) + LINE;
}

void WF_ISA_NAME(wf_gemm)(struct wf_team *team, const wf_gemm *g, void *workspace)
{
    float *line = (float *)(((uintptr_t)workspace + LINE - 1) / LINE * LINE);
    job x;

    if (g->m <= 0 || g->n <= 0)
        return;
    if (g->n_parts <= 0) { /* a tree without chunks */
        for (int64_t i = 0; i < g->m && !g->add; i++)
            memset(g->c + i * g->c_row, 0, (size_t)g->n * sizeof *g->c);
        return;
    }
    measure(&x, g, wf_team_size(team));
    x.now = x.next = NULL;
    x.block = x.before = 0;
    x.macrokernel[0].a = x.macrokernel[1].a = line;
    x.product.spill = line + x.size.a;
    x.own = x.product.spill + x.size.spill;
    for (int i = 0; i < x.members; i++)
        *member_of(&x, i) = (member){.now_is = -1, .ahead_is = -1};
    for (follow(&x); x.next;) {
        x.now = x.next;
        follow(&x);
        run_macrokernel(&x, x.members > 1 ? team : NULL);
        x.before += micropanels(&x, x.now);
    }
}
