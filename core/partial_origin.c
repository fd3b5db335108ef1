/* core/partial_origin.c - where a partial sum or maximum began, and which border is missing
   where an op that cannot take it finds one. */
#include "core/tape_internal.h"
#include <stdio.h>
#include <string.h>

/* Returns true where a dim of the batch, that ranks have split, is summed; the same on all
   ranks, whatever part of it each has. */
static bool sums_batch(const wf_call *call, const wf_signature *sig)
{
    for (int i = 0; i < call->n_in; i++) {
        const wf_tensor *t = call->in[i];

        for (int d = 0; d < sig->ndim[i] && t->layout; d++)
            if (sig->contracted >> sig->letter[i][d] & 1 &&
                t->dim[d].chunks == WF_CHUNKS_EACH &&
                t->ctx->distribution->parts(t->layout, d) > 1)
                return true;
    }
    return false;
}

void wf_partial_begins(const wf_call *call, const wf_signature *sig, wf_tensor *out)
{
    const wf_context *ctx = call->ctx;
    const node *n = ctx->now.tape ? NULL : ctx->now.gradient_of;

    for (int i = 0; i < call->n_in; i++)
        if (wf_tensor_is_partial(call->in[i])) {
            out->partial_from = call->in[i]->partial_from;
            return;
        }
    if (n)
        out->partial_from = (wf_partial_origin){
            .op = n->op->name, .module = n->path, .point = n->point, .gradient = true};
    else
        out->partial_from = (wf_partial_origin){
            .op = call->op->name, .module = ctx->failure.path, .batch = sums_batch(call, sig)};
}

void wf_partial_passes(wf_tensor *t, const char *module, const char *point)
{
    wf_partial_origin *from = &t->partial_from;

    if (!from->op || from->gradient || from->point || !wf_tensor_is_partial(t))
        return;
    from->module = module;
    from->point = point;
}

/* Returns true where a path is that of a module, whose names have no blanks, and not "the loss
   function". */
static bool is_module(const char *path)
{
    return path && *path && !strchr(path, ' ');
}

char *wf_partial_fix(const wf_partial_origin *from, char *text, size_t size)
{
    const char *module = is_module(from->module) ? from->module : "PATH";

    if (from->batch)
        snprintf(
            text, size,
            "it is a sum over the batch, which ranks have split: return a loss per sequence, "
            "[batch, ..], of which the trainer takes the mean, or redistribute the sum to "
            "whole first (wf_whole)");
    else if (from->point)
        snprintf(text, size,
                 "give the style of module %s (wf_par_rule) a border {\"%s\", WF_PAR_WHOLE}%s",
                 module, from->point, from->gradient ? ", as style column has" : "");
    else if (from->gradient)
        snprintf(text, size,
                 "let module %s pass the tensor through a point before it reads it (wf_nn_at, "
                 "wf_nn_points), and give its style a border {\"POINT\", WF_PAR_WHOLE} there",
                 module);
    else if (is_module(from->module))
        snprintf(text, size,
                 "let module %s pass it through a point (wf_nn_at, wf_nn_points) and give its "
                 "style a border {\"POINT\", WF_PAR_WHOLE} there, or redistribute it to whole "
                 "there (wf_whole)",
                 module);
    else
        snprintf(text, size, "redistribute it to whole there (wf_whole)");
    return text;
}

char *wf_partial_explain(const wf_tensor *t, char *text, size_t size)
{
    const wf_partial_origin *from = &t->partial_from;
    char fix[WF_PARTIAL_TEXT], where[WF_PARTIAL_TEXT] = "";

    if (from->point)
        snprintf(where, sizeof where, " in module %s, %s its point \"%s\",", from->module,
                 from->gradient ? "after" : "before", from->point);
    else if (from->module && *from->module)
        snprintf(where, sizeof where, " in %s%s", is_module(from->module) ? "module " : "",
                 from->module);
    if (from->op)
        snprintf(text, size, "%s%s%s left it partial: %s",
                 from->gradient ? "the gradient of " : "", from->op, where,
                 wf_partial_fix(from, fix, sizeof fix));
    else
        snprintf(text, size,
                 "redistribute it to whole or split first (in a model: a border at that "
                 "point)");
    return text;
}
