/* core/signature.c - matching operands against "...k,nk->...n". */
#include "core/signature.h"
#include "core/context.h"
#include <inttypes.h>
#include <string.h>

/* The letters of operand text [s, end), "..." standing for `rest` dims; returns their number. */
static int expand(const char *s, const char *end, int rest, int8_t *letter, uint32_t *whole)
{
    int n = 0;

    while (s < end) {
        if (*s == '.') {
            for (int i = 0; i < rest; i++)
                letter[n++] = (int8_t)(26 + i);
            s += 3;
        } else if (*s == '!') {
            *whole |= 1u << letter[n - 1];
            s++;
        } else {
            letter[n++] = (int8_t)(*s++ - 'a');
        }
    }
    return n;
}

static int written_letters(const char *s, const char *end)
{
    int n = 0;

    for (; s < end; s++)
        n += *s >= 'a' && *s <= 'z';
    return n;
}

static const char *operand_end(const char *s)
{
    while (*s && *s != ',' && *s != '-')
        s++;
    return s;
}

static bool has_rest(const char *s, const char *end)
{
    return memchr(s, '.', (size_t)(end - s)) != NULL;
}

static wf_status bind_input(const wf_call *call, wf_signature *sig, int i)
{
    const wf_tensor *t = call->in[i];

    for (int d = 0; d < t->ndim; d++) {
        int letter = sig->letter[i][d];
        wf_dim *known = &sig->dim[letter];

        if (!sig->known[letter]) {
            sig->known[letter] = true;
            *known = t->dim[d];
        } else if (known->size != t->dim[d].size) {
            return wf_fail(call->ctx, WF_ESHAPE,
                           "%s: dim %d of operand %d has size %" PRId64
                           ", but its partner has %" PRId64 " (signature %s)",
                           call->op->name, d, i, t->dim[d].size, known->size,
                           call->op->signature);
        } else if (known->grain != t->dim[d].grain || known->leaves != t->dim[d].leaves) {
            return wf_fail(call->ctx, WF_ESHAPE,
                           "%s: dim %d of operand %d (size %" PRId64 ") has grain %" PRId64
                           " and leaves %d, but its partner has grain %" PRId64
                           " and leaves %d; make both with the same wf_dim (signature %s)",
                           call->op->name, d, i, known->size, t->dim[d].grain,
                           t->dim[d].leaves, known->grain, known->leaves,
                           call->op->signature);
        }
    }
    return WF_OK;
}

wf_status wf_signature_match(const wf_call *call, wf_signature *sig)
{
    const char *s = call->op->signature;
    uint32_t in_inputs = 0, in_outputs = 0;
    int rest = -1;

    memset(sig, 0, sizeof *sig);
    sig->n_in = call->n_in;
    sig->n_out = call->n_out;
    for (int i = 0; i < call->n_in; i++) {
        const wf_tensor *t = call->in[i];
        const char *end = operand_end(s);
        int written = written_letters(s, end);
        bool open = has_rest(s, end);

        if (open && rest < 0)
            rest = t->ndim - written;
        if (t->ndim != written + (open ? rest : 0) || (open && rest < 0))
            return wf_fail(call->ctx, WF_ESHAPE,
                           "%s: operand %d has %d dims, which does not fit its signature %s",
                           call->op->name, i, t->ndim, call->op->signature);
        sig->ndim[i] = expand(s, end, open ? rest : 0, sig->letter[i], &sig->whole);
        if (bind_input(call, sig, i) != WF_OK)
            return WF_ESHAPE;
        for (int d = 0; d < t->ndim; d++)
            in_inputs |= 1u << sig->letter[i][d];
        s = *end == ',' ? end + 1 : end;
    }
    if (*s == '-')
        s += 2;
    for (int o = 0; o < call->n_out; o++) {
        const char *end = operand_end(s);
        int row = call->n_in + o;

        if (written_letters(s, end) + (has_rest(s, end) && rest > 0 ? rest : 0) > WF_MAX_DIMS)
            return wf_fail(call->ctx, WF_ESHAPE, "%s: output %d would have over %d dims",
                           call->op->name, o, WF_MAX_DIMS);
        sig->ndim[row] = expand(s, end, rest > 0 ? rest : 0, sig->letter[row], &sig->whole);
        for (int d = 0; d < sig->ndim[row]; d++)
            in_outputs |= 1u << sig->letter[row][d];
        s = *end == ',' ? end + 1 : end;
    }
    sig->contracted = in_inputs & ~in_outputs;
    return WF_OK;
}
