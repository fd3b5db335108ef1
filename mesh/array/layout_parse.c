/* mesh/array/layout_parse.c - layouts from the notation in which they are printed. */
#include "mesh/array/array_internal.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    wf_mesh *mesh;
    const char *text, *at;
    const wf_layout *layout;
} reader;

/* Fails with WF_EINVAL, the text, the position in it, and what may follow there. */
static wf_status refuse(const reader *r, const char *what)
{
    char axes[WF_MAX_AXES * (WF_AXIS_NAME + 2)] = "";
    size_t n = 0;

    for (int i = 0; i < wf_mesh_axes(r->mesh); i++)
        n += (size_t)snprintf(axes + n, sizeof axes - n, "%s%s", i ? ", " : "",
                              wf_mesh_axis_name(r->mesh, i));
    return wf_fail(r->mesh->ctx, WF_EINVAL,
                   "layout '%s': %s at character %td; a layout is 'whole', or a list of dims "
                   "like '[axis/axis, *]', then 'partial(axis)' or 'max(axis)' for each sum or "
                   "maximum still to be taken; the axes are %s",
                   r->text, what, r->at - r->text + 1, axes);
}

/* Skips `word` where the text continues with it, and spaces before it; returns true then. */
static bool accept(reader *r, const char *word)
{
    size_t n = strlen(word);
    const char *at = r->at;

    while (isspace((unsigned char)*at))
        at++;
    if (strncmp(at, word, n) != 0)
        return false;
    r->at = at + n;
    return true;
}

static wf_status take_axis(reader *r, int *axis)
{
    size_t n = 0;

    while (isspace((unsigned char)*r->at))
        r->at++;
    while (r->at[n] && !strchr("[],/()* \t\n", r->at[n]))
        n++;
    for (*axis = 0; *axis < wf_mesh_axes(r->mesh); ++*axis) {
        const char *name = wf_mesh_axis_name(r->mesh, *axis);

        if (strlen(name) == n && strncmp(name, r->at, n) == 0) {
            r->at += n;
            return WF_OK;
        }
    }
    return refuse(r, "there is no axis of the mesh");
}

/* "*", or axes with slashes between them, outermost first. */
static wf_status take_dim(reader *r, int dim)
{
    int axis;

    if (accept(r, "*"))
        return WF_OK;
    do {
        wf_status status = take_axis(r, &axis);

        if (status == WF_OK) {
            r->layout = wf_layout_split(r->mesh, r->layout, dim, axis);
            status = wf_context_status(r->mesh->ctx);
        }
        if (status != WF_OK)
            return status;
    } while (accept(r, "/"));
    return WF_OK;
}

static wf_status take_dims(reader *r)
{
    wf_status status = WF_OK;
    int dim = 0;

    if (!accept(r, "[") || accept(r, "]"))
        return WF_OK;
    do {
        status = dim < WF_MAX_DIMS ? take_dim(r, dim++) : refuse(r, "there is a dim too many");
    } while (status == WF_OK && accept(r, ","));
    return status == WF_OK && !accept(r, "]") ? refuse(r, "a ']' is missing") : status;
}

static wf_status take_partial(reader *r, wf_reduction reduction)
{
    const wf_layout *before = r->layout;
    int axis;
    wf_status status = take_axis(r, &axis);

    if (status != WF_OK)
        return status;
    if (wf_layout_split_dim(before, axis) >= 0)
        return refuse(r, "an axis is partial that splits a dim already");
    r->layout = wf_layout_partial(r->mesh, before, axis, reduction);
    status = wf_context_status(r->mesh->ctx);
    return status == WF_OK && !accept(r, ")") ? refuse(r, "a ')' is missing") : status;
}

wf_status wf_layout_parse(wf_mesh *mesh, const char *text, const wf_layout **layout)
{
    reader r = {.mesh = mesh, .text = text, .at = text};
    wf_status status = WF_OK;

    *layout = NULL;
    if (!accept(&r, "whole"))
        status = take_dims(&r);
    while (status == WF_OK) {
        if (accept(&r, "partial("))
            status = take_partial(&r, WF_REDUCE_SUM);
        else if (accept(&r, "max("))
            status = take_partial(&r, WF_REDUCE_MAX);
        else
            break;
    }
    while (isspace((unsigned char)*r.at))
        r.at++;
    if (status == WF_OK && *r.at)
        status = refuse(&r, "there is something else");
    if (status == WF_OK)
        *layout = r.layout;
    return status;
}
