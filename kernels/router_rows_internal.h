/*
 * kernels/router_rows_internal.h - one row of a router, written once for every device and for
 * the reference in double: T is the type of its numbers, ROUTER_LOOP how its functions are
 * declared. The includer has what takes exponentials: row_softmax(with, x, y, n) and
 * row_sigmoid(with, x, y, n). Scratch has n numbers, and may be the row's dlogits.
 */

/* Chooses the experts of greatest score + bias, equal ones by the lower index, then
   ascending. */
ROUTER_LOOP void choose_row(const T *score, const T *bias, int64_t n, int64_t k, T *index)
{
    T best[WF_ROUTE_MOST];
    int64_t count = 0;

    for (int64_t e = 0; e < n; e++) {
        T value = bias ? score[e] + bias[e] : score[e];
        int64_t at = count;

        if (count == k && !(value > best[--at]))
            continue;
        count += count < k;
        for (; at > 0 && value > best[at - 1]; at--) { /* equal ones stay in front */
            best[at] = best[at - 1];
            index[at] = index[at - 1];
        }
        best[at] = value;
        index[at] = (T)e;
    }
    for (int64_t i = 1; i < k; i++) {
        T moved = index[i];
        int64_t at = i;

        for (; at > 0 && index[at - 1] > moved; at--)
            index[at] = index[at - 1];
        index[at] = moved;
    }
}

/* Computes the scores of all experts, by which they are chosen. */
ROUTER_LOOP void score_row(const wf_route_options *o, const void *with, const T *logits,
                           int64_t n, T *score)
{
    if (o->after)
        memcpy(score, logits, (size_t)n * sizeof *score);
    else if (o->sigmoid)
        row_sigmoid(with, logits, score, n);
    else
        row_softmax(with, logits, score, n);
}

/* u: the chosen scores before they are normalised; returns what they are divided by. */
ROUTER_LOOP T chosen_row(const wf_route_options *o, const void *with, const T *score,
                         const T *index, T *u)
{
    T picked[WF_ROUTE_MOST] = {0}, sum = 0;

    for (int64_t i = 0; i < o->k; i++)
        picked[i] = score[(int64_t)index[i]];
    if (o->after)
        row_softmax(with, picked, u, o->k);
    else
        memcpy(u, picked, (size_t)o->k * sizeof *u);
    for (int64_t i = 0; i < o->k; i++)
        sum += u[i];
    return o->normalise ? sum : 1;
}

ROUTER_LOOP void route_row(const wf_route_options *o, const void *with, const T *logits,
                           const T *bias, int64_t n, T *scratch, T *weights, T *index)
{
    T u[WF_ROUTE_MOST], sum;

    score_row(o, with, logits, n, scratch);
    choose_row(scratch, bias, n, o->k, index);
    sum = chosen_row(o, with, scratch, index, u);
    for (int64_t i = 0; i < o->k; i++) {
        T w = o->normalise ? u[i] / sum : u[i];

        weights[i] = o->factor > 0 && o->factor != 1 ? w * (T)o->factor : w;
    }
}

/*
 * With w_i = c u_i / S: du_i = c (dw_i - sum of dw_j u_j / S) / S, or c dw_i where weights are
 * not normalised. Of a softmax p over all experts, dlogit_e = p_e (du_e - sum of p_j du_j), du
 * of those that were not chosen being 0; of one over the chosen the same among them; of a
 * sigmoid s, dlogit_e = du_e s_e (1 - s_e). Sums are chains over the chosen experts.
 */
ROUTER_LOOP void route_grad_row(const wf_route_options *o, const void *with, const T *logits,
                                const T *index, const T *dweights, int64_t n, T *scratch,
                                T *dlogits)
{
    T u[WF_ROUTE_MOST], du[WF_ROUTE_MOST], dot = 0, *score = scratch;
    T factor = o->factor > 0 ? (T)o->factor : 1, sum;

    score_row(o, with, logits, n, score);
    sum = chosen_row(o, with, score, index, u);
    for (int64_t i = 0; i < o->k && o->normalise; i++)
        dot += dweights[i] * (u[i] / sum);
    for (int64_t i = 0; i < o->k; i++)
        du[i] = factor * (o->normalise ? (dweights[i] - dot) / sum : dweights[i]);
    dot = 0;
    for (int64_t i = 0; i < o->k && !o->sigmoid; i++)
        dot += u[i] * du[i];
    for (int64_t e = 0; e < n; e++)
        dlogits[e] = o->after || o->sigmoid ? 0 : score[e] * -dot;
    for (int64_t i = 0; i < o->k; i++) {
        int64_t e = (int64_t)index[i];

        dlogits[e] = o->sigmoid ? du[i] * (u[i] * (1 - u[i])) : u[i] * (du[i] - dot);
    }
    for (int64_t e = 0; e < n; e++)
        dlogits[e] += 0; /* -0 becomes +0 */
}
