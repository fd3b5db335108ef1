/* kernels/experts_room.c - how many rows of experts, and how many tokens of an exchange, there
   is room for with a buffer (kernels/moe.h). */
#include "kernels/moe.h"
#include <math.h>

/* Returns the rows of any choice of some tokens, of some sequences. */
static int64_t any_rows(const wf_experts_rows *r, int64_t tokens, int64_t sequences)
{
    const int64_t each = r->k < r->mine ? r->k : r->mine; /* a token has at most */
    const int64_t all = tokens * each;

    if (r->taken <= 0 || sequences <= 0 || r->taken >= tokens)
        return all;
    return sequences * r->taken * r->mine < all ? sequences * r->taken * r->mine : all;
}

int64_t wf_experts_room(const wf_experts_rows *r, double buffer)
{
    /* tokens of a wave that are no whole sequences are of one, or of one that is not whole */
    const int64_t sequence = r->sequences > 0 ? r->tokens / r->sequences : 0;
    const int64_t few = sequence > 0 ? (r->together + sequence - 1) / sequence : r->sequences;
    const int64_t most = any_rows(r, r->tokens, r->sequences);
    const int64_t least = any_rows(r, r->together, few);
    const double share = r->all ? (double)r->mine / (double)r->all : 0;
    const double rows = ceil(buffer * (double)(r->tokens * r->k) * share);

    if (buffer <= 0 || rows >= (double)most)
        return most;
    return rows > (double)least ? (int64_t)rows : least < most ? least : most;
}

int64_t wf_experts_wave(const wf_experts_rows *r, double buffer)
{
    /* a level of the tree is open for all experts of a rank, not for one */
    const int64_t open = 3 * r->features * (r->mine - 1);
    const int64_t room = wf_experts_room(r, buffer);
    int64_t n = r->together > 0 ? r->tokens / r->together : 0;

    while (buffer > 0 && n > 0 && n % 2 == 0 && n * r->together > room &&
           n * r->together > open)
        n /= 2;
    return n;
}
