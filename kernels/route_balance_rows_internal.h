/*
 * kernels/route_balance_rows_internal.h - the arithmetic of route_load, route_losses and
 * route_balance, written once for every device and for the reference in double: T is the type
 * of numbers, BALANCE_LOOP how functions are declared. The includer has row_softmax and
 * row_sigmoid, as for router_rows_internal.h, wf_expd and wf_logd.
 */

/* Counts a sequence's choices: whole numbers, exact in floats up to 2^24. */
BALANCE_LOOP void load_row(const wf_load_sizes *s, const T *index, T *load)
{
    for (int64_t e = 0; e < s->experts; e++)
        load[e] = s->first ? (T)-s->mean : 0;
    for (int64_t i = 0; i < s->tokens * s->k; i++)
        load[(int64_t)index[i]] += (T)s->one;
}

/*
 * A sequence's loss of balance is the sum over experts of f P, f = experts / (k tokens) times
 * the tokens that chose the expert, P the mean of its share of a token's scores. Of a mean over
 * sequences, its gradient by the score of a token is weight f / (tokens sequences).
 */
BALANCE_LOOP T dscore_of_one(const wf_balance *o, const wf_load_sizes *s)
{
    const double tokens = (double)s->tokens;

    return (T)(o->weight * (double)s->experts /
               ((double)s->k * tokens * tokens * o->sequences));
}

BALANCE_LOOP void balance_dscore(const wf_balance *o, const wf_load_sizes *s, const T *index,
                                 T *dscore)
{
    const T each = dscore_of_one(o, s);

    for (int64_t e = 0; e < s->experts; e++)
        dscore[e] = 0;
    for (int64_t i = 0; i < s->tokens * s->k; i++)
        dscore[(int64_t)index[i]] += 1;
    for (int64_t e = 0; e < s->experts; e++)
        dscore[e] *= each;
}

/* Returns f of an expert, where it is that of counts: 1 of none. */
BALANCE_LOOP double share_of_counts(const T *counts, double total, int64_t e, int64_t n)
{
    return total > 0 ? (double)counts[e] * (double)n / total : 1;
}

BALANCE_LOOP double sum_of_counts(const T *counts, int64_t n)
{
    double total = 0;

    for (int64_t e = 0; e < n; e++)
        total += (double)counts[e];
    return total;
}

/* The gradient by scores where f is that of counts; f less 1, which leaves dlogits as they are,
   since a token's shares add up to 1, and makes them 0 where loads are equal or not known. */
BALANCE_LOOP void counts_dscore(const wf_balance *o, const wf_load_sizes *s, const T *counts,
                                T *dscore)
{
    const double each = o->weight / ((double)s->tokens * o->sequences);
    const double total = sum_of_counts(counts, s->experts);

    for (int64_t e = 0; e < s->experts; e++)
        dscore[e] = (T)(each * (share_of_counts(counts, total, e, s->experts) - 1));
}

/* Returns log(sum of exp(logit)) of a token. */
BALANCE_LOOP double log_sum_exp(const T *logits, int64_t n)
{
    T max = logits[0];
    double sum = 0;

    for (int64_t e = 1; e < n; e++)
        max = logits[e] > max ? logits[e] : max;
    for (int64_t e = 0; e < n; e++)
        sum += wf_expd((double)(logits[e] - max));
    return (double)max + wf_logd(sum);
}

/* Computes a token's scores, softmax or sigmoids, and returns their sum. */
BALANCE_LOOP T balance_scores(const wf_balance *o, const void *with, const T *logits, T *score,
                              int64_t n)
{
    T sum = 0;

    if (o->sigmoid)
        row_sigmoid(with, logits, score, n);
    else
        row_softmax(with, logits, score, n);
    for (int64_t e = 0; e < n; e++)
        sum += score[e];
    return o->sigmoid ? sum : 1;
}

/* Computes an expert's share of a token's scores, for all experts. */
BALANCE_LOOP void share_row(const wf_balance *o, const void *with, const T *logits, T *share,
                            int64_t n)
{
    const T whole = balance_scores(o, with, logits, share, n);

    for (int64_t e = 0; e < n; e++)
        share[e] = share[e] / whole;
}

/* Returns the sum of f P of a sequence, of its shares, each summed over tokens: that of P over
   all choices, times experts / (k tokens); or with f of counts. */
BALANCE_LOOP double loss_of_shares(const wf_load_sizes *s, const T *share, const T *index,
                                   const T *counts)
{
    const int64_t n = s->experts;
    const double tokens = (double)s->tokens, total = counts ? sum_of_counts(counts, n) : 0;
    double sum = 0;

    if (counts) {
        for (int64_t e = 0; e < n; e++)
            sum += (double)share[e] * share_of_counts(counts, total, e, n);
        return sum / tokens;
    }
    for (int64_t i = 0; i < s->tokens * s->k; i++)
        sum += (double)share[(int64_t)index[i]];
    return sum * (double)n / ((double)s->k * tokens * tokens);
}

/* Computes the losses of a sequence, without weights. Scratch has 2 n numbers. */
BALANCE_LOOP void sequence_losses(const wf_balance *o, const void *with, const wf_load_sizes *s,
                                  const T *logits, const T *index, const T *counts, T *scratch,
                                  T *balance, T *z)
{
    const int64_t n = s->experts;
    const double tokens = (double)s->tokens;
    T *share = scratch + n;
    double squares = 0;

    for (int64_t e = 0; e < n; e++)
        share[e] = 0;
    for (int64_t t = 0; t < s->tokens && o->weight > 0; t++) {
        share_row(o, with, logits + t * n, scratch, n);
        for (int64_t e = 0; e < n; e++)
            share[e] += scratch[e];
    }
    for (int64_t t = 0; t < s->tokens && o->z > 0; t++) {
        const double one = log_sum_exp(logits + t * n, n);

        squares += one * one;
    }
    *balance = o->weight > 0 ? (T)loss_of_shares(s, share, index, counts) : 0;
    *z = (T)(squares / tokens);
}

/*
 * dlogits of a token. With such gradients c and shares p of a softmax, dlogit = p (c - sum of p
 * c); of sigmoids s with the sum S, p = s / S and dlogit = p (1 - s) (c - sum of p c). The
 * z-loss, the mean of z^2 over tokens with z the logarithm of the sum of exp(logit), adds 2 z p
 * of the softmax. Scratch has n numbers.
 */
BALANCE_LOOP void balance_row(const wf_balance *o, const void *with, const wf_load_sizes *s,
                              const T *logits, const T *dscore, T *scratch, T *dlogits)
{
    const int64_t n = s->experts;
    const T sum = balance_scores(o, with, logits, scratch, n);
    T dot = 0;

    for (int64_t e = 0; e < n; e++)
        dot += scratch[e] / sum * dscore[e];
    for (int64_t e = 0; e < n; e++)
        dlogits[e] = scratch[e] / sum * (o->sigmoid ? 1 - scratch[e] : 1) * (dscore[e] - dot);
    if (o->z > 0) {
        const double z = log_sum_exp(logits, n);

        if (o->sigmoid)
            row_softmax(with, logits, scratch, n);
        for (int64_t e = 0; e < n; e++)
            dlogits[e] += (T)(2 * o->z * z / ((double)s->tokens * o->sequences)) * scratch[e];
    }
    for (int64_t e = 0; e < n; e++)
        dlogits[e] += 0; /* -0 becomes +0 */
}
