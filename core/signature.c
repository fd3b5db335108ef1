/* core/signature.c - matching operands against "...k,nk->...n". */
#include "core/signature.h"
#include "core/context.h"
#include <inttypes.h>
#include <string.h>

/* Lists the letters of operand text [s, end), "..." being `rest` dims; returns how many. */
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

/* Counts letters, each perhaps followed by a "!", and at most one "..."; -1: it is neither. */
static int written_letters(const char *s, const char *end)
{
    bool letter = false, rest = false;
    int n = 0;

    for (; s < end; s++) {
        if (*s == '!'   ? !letter
            : *s == '.' ? rest || strncmp(s, "...", 3) != 0
                        : *s < 'a' || *s > 'z')
            return -1;
        if (*s == '.') {
            rest = true;
            s += 2;
        }
        letter = *s >= 'a' && *s <= 'z';
        n += letter;
    }
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
                           call->op->name, d, i, t->dim[d].size, known->size, call->signature);
        } else if (known->grain != t->dim[d].grain || known->chunks != t->dim[d].chunks) {
            return wf_fail(call->ctx, WF_ESHAPE,
                           "%s: dim %d of operand %d (size %" PRId64 ") has grain %" PRId64
                           " and chunks %d, but its partner has grain %" PRId64
                           " and chunks %d; make both with the same wf_dim (signature %s)",
                           call->op->name, d, i, known->size, t->dim[d].grain, t->dim[d].chunks,
                           known->grain, known->chunks, call->signature);
        }
    }
    return WF_OK;
}

/* Step to the next operand, *s up to *end; returns its letters, -1 where there is none. */
static int next_operand(const char **s, const char **end, bool first)
{
    if (!first && *(*s)++ != ',')
        return -1;
    *end = operand_end(*s);
    return written_letters(*s, *end);
}

static wf_status misfit(const wf_call *call)
{
    return wf_fail(
        call->ctx, WF_EINVAL,
        "%s: %d operands and %d outputs do not fit its signature %s: letters a to z, "
        "each perhaps with a \"!\", and one \"...\" per operand, as in "
        "\"...k,nk->...n\"",
        call->op->name, call->n_in, call->n_out, call->signature);
}

static wf_status match_inputs(const wf_call *call, const char **s, int *rest, wf_signature *sig)
{
    const char *end;

    for (int i = 0; i < call->n_in; i++, *s = end) {
        int written = next_operand(s, &end, i == 0), ndim = call->in[i]->ndim;
        bool open;

        if (written < 0)
            return misfit(call);
        open = has_rest(*s, end);
        if (open && *rest < 0)
            *rest = ndim - written;
        if (ndim != written + (open ? *rest : 0) || (open && *rest < 0))
            return wf_fail(call->ctx, WF_ESHAPE,
                           "%s: operand %d has %d dims, which does not fit its signature %s",
                           call->op->name, i, ndim, call->signature);
        sig->ndim[i] = expand(*s, end, *rest, sig->letter[i], &sig->whole);
        if (bind_input(call, sig, i) != WF_OK)
            return WF_ESHAPE;
    }
    return WF_OK;
}

static wf_status match_outputs(const wf_call *call, const char **s, int rest, wf_signature *sig)
{
    const char *end;

    for (int o = 0; o < call->n_out; o++, *s = end) {
        int written = next_operand(s, &end, o == 0), row = call->n_in + o;
        bool open;

        if (written < 0)
            return misfit(call);
        open = has_rest(*s, end);
        if (open && rest < 0) /* no operand says how many dims it means */
            return misfit(call);
        if (written + (open ? rest : 0) > WF_MAX_DIMS)
            return wf_fail(call->ctx, WF_ESHAPE, "%s: output %d would have over %d dims",
                           call->op->name, o, WF_MAX_DIMS);
        sig->ndim[row] = expand(*s, end, rest, sig->letter[row], &sig->whole);
    }
    return WF_OK;
}

/* The letters that operands [from, to) have. */
static uint32_t letters(const wf_signature *sig, int from, int to)
{
    uint32_t set = 0;

    for (int i = from; i < to; i++)
        for (int d = 0; d < sig->ndim[i]; d++)
            set |= 1u << sig->letter[i][d];
    return set;
}

wf_status wf_signature_match(const wf_call *call, wf_signature *sig)
{
    const char *s = call->signature;
    int n_in = call->n_in, n = n_in + call->n_out, rest = -1;
    wf_status status;

    memset(sig, 0, sizeof *sig);
    sig->n_in = n_in;
    sig->n_out = call->n_out;
    status = match_inputs(call, &s, &rest, sig);
    if (status == WF_OK && strncmp(s, "->", 2) != 0)
        status = misfit(call);
    s += status == WF_OK ? 2 : 0;
    if (status == WF_OK)
        status = match_outputs(call, &s, rest, sig);
    if (status == WF_OK && *s)
        status = misfit(call);
    sig->contracted = letters(sig, 0, n_in) & ~letters(sig, n_in, n);
    return status;
}
