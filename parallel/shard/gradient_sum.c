/* parallel/shard/gradient_sum.c - a sum over micro-steps whose terms come in any order; see the
   header. */
#include "parallel/shard/gradient_sum_internal.h"
#include "core/tape.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The other child of the parent that a node has in the midpoint tree over n terms, of which it
   is not the root. */
static wf_par_sum_node sibling_of(const wf_par_sum_node *node, int64_t n)
{
    wf_par_sum_node parent = {.count = n};

    for (;;) {
        wf_par_sum_node older = {.first = parent.first, .count = parent.count / 2};
        wf_par_sum_node newer = {.first = older.first + older.count,
                                 .count = parent.count - older.count};
        bool in_older = node->first < newer.first;

        parent = in_older ? older : newer;
        if (parent.count == node->count)
            return in_older ? newer : older;
    }
}

static bool make_room(wf_context *ctx, wf_par_sum *s, int nodes)
{
    int room = nodes > 2 * s->room ? nodes : 2 * s->room;
    wf_par_sum_node *node;

    if (nodes <= s->room)
        return true;
    node = realloc(s->node, (size_t)room * sizeof *node);
    if (!node) {
        wf_fail(ctx, WF_ENOMEM, "no memory for %d open nodes of a sum over micro-steps", room);
        return false;
    }
    s->node = node;
    s->room = room;
    return true;
}

/* Returns the index of the first node that does not end before term i. */
static int node_of(const wf_par_sum *s, int64_t i)
{
    int at = s->open;

    while (at > 0 && s->node[at - 1].first + s->node[at - 1].count > i)
        at--;
    return at;
}

bool wf_par_sum_has(const wf_par_sum *s, int64_t i)
{
    int at = node_of(s, i);

    return at < s->open && s->node[at].first <= i;
}

/* Merges node `older` and the next one into their parent. */
static wf_status merge(wf_par_sum *s, int older)
{
    wf_par_sum_node *a = &s->node[older], *b = a + 1;
    wf_status status = WF_OK;

    a->count += b->count;
    if (a->sum && b->sum) {
        status = wf_partial_add(&a->sum, b->sum);
        wf_tensor_release(b->sum);
    } else if (b->sum) {
        a->sum = b->sum;
    }
    s->open--;
    memmove(b, b + 1, (size_t)(s->open - older - 1) * sizeof *b);
    return status;
}

/* Merges node `at` with its sibling, where that exists; and so on up. */
static wf_status merge_up(wf_par_sum *s, int at, int64_t n)
{
    wf_status status = WF_OK;

    while (s->node[at].count < n && status == WF_OK) {
        wf_par_sum_node other = sibling_of(&s->node[at], n);
        int neighbour = other.first < s->node[at].first ? at - 1 : at + 1;

        if (neighbour < 0 || neighbour >= s->open || s->node[neighbour].first != other.first ||
            s->node[neighbour].count != other.count)
            break;
        at = neighbour < at ? neighbour : at;
        status = merge(s, at);
    }
    return status;
}

/* Without exactness: one node, in the order in which terms come. */
static wf_status add_as_it_comes(wf_context *ctx, wf_par_sum *s, wf_tensor *term, int64_t n)
{
    if (s->open)
        return wf_partial_add(&s->node[0].sum, term);
    if (!make_room(ctx, s, 1))
        return WF_ENOMEM;
    s->node[s->open++] = (wf_par_sum_node){.count = n, .sum = wf_tensor_retain(term)};
    return WF_OK;
}

/* The first of the terms i .. i + count - 1 that is there; -1: none. */
static int64_t first_there(const wf_par_sum *s, int64_t i, int64_t count)
{
    for (int64_t k = i; k < i + count; k++)
        if (wf_par_sum_has(s, k))
            return k;
    return -1;
}

wf_status wf_par_sum_add(wf_context *ctx, wf_par_sum *s, wf_tensor *term, int64_t i, int64_t n)
{
    return wf_par_sum_add_node(ctx, s, term, i, 1, n);
}

wf_status wf_par_sum_add_node(wf_context *ctx, wf_par_sum *s, wf_tensor *sum, int64_t i,
                              int64_t count, int64_t n)
{
    int at = node_of(s, i);
    int64_t twice;

    if (sum && !wf_context_exact(ctx))
        return add_as_it_comes(ctx, s, sum, n);
    twice = first_there(s, i, count);
    if (twice >= 0)
        return wf_fail(ctx, WF_EINVAL,
                       "the term of micro-step %" PRId64 " of %" PRId64
                       " came twice: add up what a micro-step gives, and bring it once",
                       twice + 1, n);
    if (!make_room(ctx, s, s->open + 1))
        return WF_ENOMEM;
    memmove(s->node + at + 1, s->node + at, (size_t)(s->open - at) * sizeof *s->node);
    s->node[at] = (wf_par_sum_node){.first = i, .count = count, .sum = wf_tensor_retain(sum)};
    s->open++;
    return merge_up(s, at, n);
}

bool wf_par_sum_take(wf_par_sum *s, int64_t i, int64_t terms, wf_tensor **sum)
{
    int at = node_of(s, i);

    if (!wf_par_sum_has(s, i) || s->node[at].count != terms)
        return false;
    *sum = s->node[at].sum;
    s->open--;
    memmove(s->node + at, s->node + at + 1, (size_t)(s->open - at) * sizeof *s->node);
    return true;
}

wf_status wf_par_sum_start(wf_context *ctx, wf_par_sum *s, const wf_par_sum *like)
{
    *s = (wf_par_sum){.node = NULL};
    if (!like->open || !wf_context_exact(ctx))
        return WF_OK;
    if (!make_room(ctx, s, like->open))
        return WF_ENOMEM;
    memcpy(s->node, like->node, (size_t)like->open * sizeof *s->node);
    s->open = like->open;
    return WF_OK;
}

/* Appends "5" or "5 to 7" to the text; what does not fit is left out. */
static void add_range(char *text, size_t size, int64_t first, int64_t end)
{
    size_t n = strlen(text);
    const char *comma = n ? ", " : "";

    if (end - first == 1)
        snprintf(text + n, size - n, "%s%" PRId64, comma, first + 1);
    else
        snprintf(text + n, size - n, "%s%" PRId64 " to %" PRId64, comma, first + 1, end);
}

const char *wf_par_sum_missing(const wf_par_sum *s, int64_t n, char *text, size_t size)
{
    int64_t next = 0;

    text[0] = 0;
    for (int k = 0; k <= s->open; k++) {
        int64_t first = k < s->open ? s->node[k].first : n;

        if (first > next)
            add_range(text, size, next, first);
        if (k < s->open)
            next = first + s->node[k].count;
    }
    return text;
}

void wf_par_sum_clear(wf_par_sum *s)
{
    while (s->open)
        wf_tensor_release(s->node[--s->open].sum);
}

void wf_par_sum_free(wf_par_sum *s)
{
    wf_par_sum_clear(s);
    free(s->node);
    *s = (wf_par_sum){.node = NULL};
}
