/* nn/optim/groups.c - see the header. */
#include "nn/optim/groups.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static wf_status refuse(const char *text, size_t length, wf_error *error)
{
    return wf_error_set(
        error, WF_EINVAL,
        "a group of parameters '%.*s': it is PATTERN:lr=X,wd=Y, a factor of the "
        "rate, a weight decay, or both, each 0 or a float from 1.2e-38 on, as in "
        "embed:lr=0.1,wd=0; "
        "groups are separated by ;",
        (int)(length < 200 ? length : 200), text);
}

/* Reads one setting; returns its end, or NULL. */
static const char *read_setting(const char *at, wf_nn_group *g)
{
    bool lr = strncmp(at, "lr=", 3) == 0, wd = strncmp(at, "wd=", 3) == 0;
    char *end = NULL;
    double given = lr || wd ? strtod(at + 3, &end) : 0;
    float value = (float)given;

    /* refuses what would be 0 as a float, and mean something else */
    if (!end || end == at + 3 || !(given >= 0) || !isfinite(value) ||
        (given > 0 && value < FLT_MIN) || (lr && g->has_lr) || (wd && g->has_decay))
        return NULL;
    if (lr) {
        g->has_lr = true;
        g->lr = value;
    } else {
        g->has_decay = true;
        g->decay = value;
    }
    return end;
}

/* Reads the group that is text[0 .. length). */
static wf_status read_group(const char *text, size_t length, wf_nn_group *g, wf_error *error)
{
    const char *colon = memchr(text, ':', length), *at = colon;

    *g = (wf_nn_group){.lr = 1};
    if (!colon || colon == text || colon - text >= (int)sizeof g->pattern)
        return refuse(text, length, error);
    memcpy(g->pattern, text, (size_t)(colon - text));
    do
        at = read_setting(at + 1, g);
    while (at && at < text + length && *at == ',');
    while (at && at < text + length && *at == ' ')
        at++;
    return at == text + length ? WF_OK : refuse(text, length, error);
}

wf_status wf_nn_groups_parse(const char *text, wf_nn_group **group, int *n, wf_error *error)
{
    size_t most = 1;

    *group = NULL;
    *n = 0;
    *error = (wf_error){WF_OK, ""};
    if (!text || !*text)
        return WF_OK;
    for (const char *c = text; *c; c++)
        most += *c == ';';
    *group = calloc(most, sizeof **group);
    if (!*group)
        return wf_error_set(error, WF_ENOMEM, "no memory for groups of parameters");
    for (const char *at = text + strspn(text, " "); *at && error->code == WF_OK;) {
        size_t length = strcspn(at, ";");

        if (read_group(at, length, *group + *n, error) == WF_OK)
            ++*n;
        at += length + (at[length] == ';');
        at += strspn(at, " ");
    }
    if (error->code != WF_OK) {
        free(*group);
        *group = NULL;
        *n = 0;
    }
    return error->code;
}

int wf_nn_groups_find(const wf_nn_group *group, int n, const char *path)
{
    while (--n >= 0)
        if (wf_nn_path_covers(group[n].pattern, path))
            return n;
    return -1;
}
