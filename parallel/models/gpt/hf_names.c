/* parallel/models/gpt/hf_names.c - names and shapes of transformers; see the header. */
#include "parallel/models/gpt/hf_names_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The dims of a tensor of theirs: ours, transposed, ours with experts in front, ours head by
   head, or those of a factor of experts. */
typedef enum how {
    PLAIN,
    TRANSPOSED,
    STACKED,
    STACKED_IN,
    BY_HEAD,
    FACTOR_A,
    FACTOR_B,
    FACTOR_A_IN,
    FACTOR_B_IN
} how;

/* Parts of one tensor that lie one after the other. */
typedef enum member { WHOLE, Q, K, V, GATE, UP, EACH } member;

/* Ours, with N for the number of a block, and theirs. */
typedef struct name_row {
    wf_hf_family_id family;
    const char *ours, *theirs;
    how how;
    member part;
} name_row;

static const name_row names[] = {
#define NAME(family, ours, theirs, how, which)                                                 \
    {WF_HF_FAMILY_##family, ours, theirs, how, which},
#include "parallel/models/gpt/hf_names.def"
};

enum { NAMES = sizeof names / sizeof *names };

bool wf_hf_matches(const char *pattern, const char *path, int64_t *block)
{
    for (; *pattern; pattern++) {
        if (*pattern == 'N') {
            char *end;

            *block = strtoll(path, &end, 10);
            if (end == path)
                return false;
            path = end;
        } else if (*pattern != *path++) {
            return false;
        }
    }
    return !*path;
}

void wf_hf_write_name(char text[WF_HF_NAME], const char *theirs, int64_t block)
{
    const char *n = strstr(theirs, ".N.");

    if (n)
        snprintf(text, WF_HF_NAME, "%.*s.%lld.%s", (int)(n - theirs), theirs, (long long)block,
                 n + 3);
    else
        snprintf(text, WF_HF_NAME, "%s", theirs);
}

/* The row of a parameter that is nearest to the family, or NULL. */
static const name_row *find(const wf_hf_family *family, const char *path, int64_t *block)
{
    const name_row *found = NULL;
    int nearest = 0;

    for (const name_row *row = names; row < names + NAMES; row++) {
        int distance = wf_hf_family_distance(family, row->family);

        if (distance < 0 || (found && distance >= nearest) ||
            !wf_hf_matches(row->ours, path, block))
            continue;
        found = row;
        nearest = distance;
    }
    return found;
}

/* Returns the rows of a part in its tensor, of which a parameter has `mine`: heads of queries,
   of keys and values; a gate has as many features as what it multiplies. */
static int64_t rows_of(member p, const wf_nn_gpt_config *model, int64_t mine)
{
    const wf_nn_gpt_config m = wf_nn_gpt_complete(model);

    return p == Q ? m.heads * m.head_dim : p == K || p == V ? m.kv_heads * m.head_dim : mine;
}

/* Sets the shape of a factor [experts, a, b]; two of them are one, where gate and up are one
   matrix: rows of theirs, or columns. */
static void locate_factor(const name_row *row, const wf_tensor *t, wf_hf_location *location)
{
    const bool swapped = row->how >= FACTOR_A_IN;
    const bool a = row->how == FACTOR_A || row->how == FACTOR_A_IN;
    const int64_t experts = t->dim[0].size, rows = t->dim[swapped ? 2 : 1].size;
    const int64_t columns = t->dim[swapped ? 1 : 2].size, parts = row->part == WHOLE ? 1 : 2;

    location->factor_a = a;
    location->factor_b = !a;
    location->factor_swapped = swapped;
    location->ndim = 2;
    location->shape[0] = a ? experts * rows : parts * rows;
    location->shape[1] = a ? parts * columns : columns * experts;
    location->factor_row = row->part == UP && !a ? rows : 0;
    location->factor_column = row->part == UP && a ? columns : 0;
}

/* Returns the parameter's dim that dim d of theirs is. */
static int dim_of(const wf_hf_location *location, int d)
{
    int first = location->ndim - 2; /* the first dim of a matrix */

    return location->transposed && d >= first ? 2 * first + 1 - d : d;
}

bool wf_hf_location_of(const wf_hf_family *family, const wf_nn_gpt_config *model,
                       const wf_nn_parameter *parameter, wf_hf_location *location)
{
    const wf_tensor *t = parameter->tensor;
    int64_t block = 0;
    const name_row *row = find(family, parameter->path, &block);
    int ours, wide; /* the dim that parts divide: the parameter's, and that of theirs */

    if (!row)
        return false;
    memset(location, 0, sizeof *location);
    wf_hf_write_name(location->name, row->theirs, block);
    location->base = family->base;
    if (row->how >= FACTOR_A) {
        locate_factor(row, t, location);
        return true;
    }
    location->transposed = row->how == TRANSPOSED || row->how == STACKED_IN;
    location->ndim = t->ndim;
    for (int d = 0; d < t->ndim; d++)
        location->shape[d] = t->dim[dim_of(location, d)].size;
    location->divided = ours = row->how == STACKED || row->how == STACKED_IN;
    if (row->how == BY_HEAD)
        location->run = wf_nn_gpt_complete(model).head_dim;
    wide = location->transposed ? t->ndim - 1 : ours;
    if (row->part == EACH) {
        location->pieces = t->dim[0].size;
    } else if (row->part != WHOLE) {
        const member first = row->part <= V ? Q : GATE, last = row->part <= V ? V : UP;

        location->shape[wide] = 0;
        for (member p = first; p <= last; p++) {
            const int64_t rows = rows_of(p, model, t->dim[ours].size);

            location->offset += p < row->part ? rows : 0;
            location->shape[wide] += rows;
        }
        if (location->run) { /* a head's parts one after the other */
            location->offset = (row->part - first) * location->run;
            location->stride = (last - first + 1) * location->run;
        }
    }
    return true;
}

void wf_hf_location_piece(const wf_hf_location *location, int64_t i, wf_hf_location *one)
{
    const wf_hf_location from = *location;
    const char *e = from.pieces ? strstr(from.name, ".E.") : NULL;

    *one = from;
    if (!e)
        return;
    snprintf(one->name, WF_HF_NAME, "%.*s.%lld.%s", (int)(e - from.name), from.name,
             (long long)i, e + 3);
    one->pieces = 0;
    one->ndim--;
    memmove(one->shape, one->shape + 1, (size_t)one->ndim * sizeof *one->shape);
}

bool wf_hf_name_of(const wf_hf_family *family, const char *path, char name[WF_HF_NAME])
{
    int64_t block = 0;
    const name_row *row = find(family, path, &block);

    if (row)
        wf_hf_write_name(name, row->theirs, block);
    return row != NULL;
}

wf_part wf_hf_part(const wf_hf_location *location, const wf_tensor *parameter)
{
    wf_part part = {.ndim = location->ndim};

    for (int d = 0; d < part.ndim; d++) {
        int ours = dim_of(location, d);

        part.start[d] = parameter->start[ours];
        if (ours == location->divided && !location->run)
            part.start[d] += location->offset;
        part.local[d] = parameter->local[ours];
    }
    return part;
}

int64_t wf_hf_row(const wf_hf_location *location, const wf_part *part, int64_t row,
                  int64_t *together)
{
    const int64_t at = (part->ndim ? part->start[0] : 0) + row;

    *together = location->run ? location->run - at % location->run : INT64_MAX;
    return location->run
               ? location->offset + at / location->run * location->stride + at % location->run
               : at;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

bool wf_hf_idle(const char *name)
{
    return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
           ends_with(name, ".attention.bias") || ends_with(name, ".attention.masked_bias") ||
           ends_with(name, ".rotary_emb.inv_freq");
}
