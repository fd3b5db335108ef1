/* parallel/models/gpt/hf_names.c - names and shapes of transformers; see the header. */
#include "parallel/models/gpt/hf_names_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The dims of a tensor of theirs: ours, transposed, ours with experts in front, ours head by
   head, or those of a factor of experts. */
typedef enum how { PLAIN, TRANSPOSED, STACKED, BY_HEAD, FACTOR_A, FACTOR_B } how;

/* Parts of one tensor that lie one after the other. */
typedef enum member { WHOLE, Q, K, V, GATE, UP, EACH } member;

/* Ours, with N for the number of a block, and theirs. */
typedef struct name_row {
    const char *family, *ours, *theirs;
    how how;
    member part;
} name_row;

static const name_row names[] = {
#define NAME(family, ours, theirs, how, which) {#family, ours, theirs, how, which},
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

/* Sets the shape of a factor [experts, a, b]; two of them are one B, where gate and up are one
   matrix. */
static void place_factor(const name_row *row, const wf_tensor *t, wf_hf_place *place)
{
    const int64_t experts = t->dim[0].size, rows = t->dim[1].size, columns = t->dim[2].size;
    const bool a = row->how == FACTOR_A;

    place->factor_a = a;
    place->factor_b = !a;
    place->ndim = 2;
    place->shape[0] = a ? experts * rows : row->part == WHOLE ? rows : 2 * rows;
    place->shape[1] = a ? columns : columns * experts;
    place->offset = row->part == UP ? rows : 0;
}

bool wf_hf_place_of(const wf_hf_family *family, const wf_nn_gpt_config *model,
                    const wf_nn_parameter *parameter, wf_hf_place *place)
{
    const wf_tensor *t = parameter->tensor;
    int64_t block = 0;
    const name_row *row = find(family, parameter->path, &block);
    int ours, wide; /* the dim that parts divide: the parameter's, and that of theirs */

    if (!row)
        return false;
    memset(place, 0, sizeof *place);
    wf_hf_write_name(place->name, row->theirs, block);
    place->base = family->base;
    if (row->how >= FACTOR_A) {
        place_factor(row, t, place);
        return true;
    }
    place->transposed = row->how == TRANSPOSED;
    place->ndim = t->ndim;
    for (int d = 0; d < t->ndim; d++)
        place->shape[d] = t->dim[place->transposed ? t->ndim - 1 - d : d].size;
    place->divided = ours = row->how == STACKED;
    if (row->how == BY_HEAD)
        place->run = wf_nn_gpt_complete(model).head_dim;
    wide = place->transposed ? t->ndim - 1 : ours;
    if (row->part == EACH) {
        place->pieces = t->dim[0].size;
    } else if (row->part != WHOLE) {
        const member first = row->part <= V ? Q : GATE, last = row->part <= V ? V : UP;

        place->shape[wide] = 0;
        for (member p = first; p <= last; p++) {
            const int64_t rows = rows_of(p, model, t->dim[ours].size);

            place->offset += p < row->part ? rows : 0;
            place->shape[wide] += rows;
        }
        if (place->run) { /* a head's parts one after the other */
            place->offset = (row->part - first) * place->run;
            place->apart = (last - first + 1) * place->run;
        }
    }
    return true;
}

void wf_hf_place_piece(const wf_hf_place *place, int64_t i, wf_hf_place *one)
{
    const wf_hf_place from = *place;
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

wf_part wf_hf_part(const wf_hf_place *place, const wf_tensor *parameter)
{
    wf_part part = {.ndim = place->ndim};

    for (int d = 0; d < part.ndim; d++) {
        int ours = place->transposed ? part.ndim - 1 - d : d;

        part.start[d] = parameter->start[ours];
        if (ours == place->divided && !place->run)
            part.start[d] += place->offset;
        part.local[d] = parameter->local[ours];
    }
    return part;
}

int64_t wf_hf_row(const wf_hf_place *place, const wf_part *part, int64_t row, int64_t *together)
{
    const int64_t at = (part->ndim ? part->start[0] : 0) + row;

    *together = place->run ? place->run - at % place->run : INT64_MAX;
    return place->run ? place->offset + at / place->run * place->apart + at % place->run : at;
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
