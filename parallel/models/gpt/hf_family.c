/* parallel/models/gpt/hf_family.c - see the header. */
#include "parallel/models/gpt/hf_family_internal.h"
#include <float.h>
#include <stdio.h>
#include <string.h>

enum { DISTANCE_OF_ALL = 16 }; /* no family has as many above it */

#define FIELD(name)                                                                            \
    .offset = offsetof(wf_nn_gpt_config, name), .size = sizeof(((wf_nn_gpt_config *)0)->name)

static const wf_hf_family families[] = {
#define FAMILY(type, class, parent, base, ...) {#type, class, WF_HF_FAMILY_##parent, base},
#include "nn/models/gpt/families.def"
#undef FAMILY
};

/* clang-format off */
static const wf_hf_key keys[] = {
#define ROW(of, what, name, elsewhere) .family = WF_HF_FAMILY_##of, .kind = WF_HF_##what, .key = name, .others = elsewhere
#define INT(of, key, others, field, high, normal) \
    {ROW(of, INT, key, others), FIELD(field), .least = 1, .most = high, .standard = normal},
#define COUNT(of, key, others, field, high, normal) \
    {ROW(of, COUNT, key, others), FIELD(field), .least = 0, .most = high, .standard = normal},
#define WINDOW(of, key, others, field, low, high, normal) \
    {ROW(of, WINDOW, key, others), FIELD(field), .least = low, .most = high, .standard = normal},
#define SWITCH(of, key, others, field, normal) {ROW(of, SWITCH, key, others), FIELD(field), .standard = normal},
#define REAL(of, key, others, field, low, high, normal) \
    {ROW(of, REAL, key, others), FIELD(field), .least = low, .most = high, .standard = normal},
#define WHOLE(of, key, others, field, high, normal) \
    {ROW(of, WHOLE, key, others), FIELD(field), .least = 1, .most = high, .standard = normal},
#define CAP(of, key, others, field, low, high, normal) \
    {ROW(of, CAP, key, others), FIELD(field), .least = low, .most = high, .standard = normal},
#define ROOT(of, key, others, field, low, high, normal) \
    {ROW(of, ROOT, key, others), FIELD(field), .least = low, .most = high, .standard = normal},
#define INVERSE(of, key, others, field, low, high, normal) \
    {ROW(of, INVERSE, key, others), FIELD(field), .least = low, .most = high, .standard = normal},
#define BOOL(of, key, others, field, normal) {ROW(of, BOOL, key, others), FIELD(field), .standard = normal},
#define WORD(of, key, others, field, list, normal) \
    {ROW(of, WORD, key, others), FIELD(field), .words = list, .standard = normal},
#define SKIP(of, key, others, field) {ROW(of, SKIP, key, others), FIELD(field)},
#define FACTORS(of, key, others, field) {ROW(of, FACTORS, key, others), FIELD(field)},
#define LAYER_TYPES(of, key) {ROW(of, LAYER_TYPES, key, "")},
#define SPARSE_STEP(of, key) {ROW(of, SPARSE_STEP, key, "")},
#define MIXED_LAYERS(of, key) {ROW(of, MIXED_LAYERS, key, "")},
#define DENSE_LAYERS(of, key) {ROW(of, DENSE_LAYERS, key, "")},
#define MUST(of, key, others, list) {ROW(of, MUST, key, others), .words = list},
#define EACH(of, key, others, list) {ROW(of, EACH, key, others), .words = list},
#define IGNORE(of, key, reason) {ROW(of, IGNORE, key, "")},
#define WRITE_ONLY(of, key, field) {ROW(of, WRITE_ONLY, key, ""), FIELD(field)},
#include "parallel/models/gpt/hf_config.def"
};
/* clang-format on */

enum {
    FAMILIES = sizeof families / sizeof *families,
    KEYS = sizeof keys / sizeof *keys,
};
_Static_assert((int)KEYS <= (int)WF_HF_ROWS, "a list of rows is too short");

const wf_hf_family *wf_hf_family_at(int i)
{
    return i < FAMILIES ? &families[i] : NULL;
}

const wf_hf_family *wf_hf_family_find(const char *type)
{
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(families[i].type, type) == 0)
            return &families[i];
    return NULL;
}

int wf_hf_family_distance(const wf_hf_family *family, wf_hf_family_id other)
{
    int at = (int)(family - families), distance = 0;

    if (other == WF_HF_FAMILY_all)
        return DISTANCE_OF_ALL;
    for (; at != WF_HF_FAMILY_none; distance++, at = families[at].parent)
        if (at == (int)other)
            return distance;
    return -1;
}

int wf_hf_keys(const wf_hf_family *family, const wf_hf_key *rows[WF_HF_ROWS])
{
    int distance[KEYS], taken[KEYS], related = 0, n = 0;

    for (const wf_hf_key *row = keys; row < keys + KEYS; row++) {
        rows[related] = row;
        distance[related] = wf_hf_family_distance(family, row->family);
        related += distance[related] >= 0;
    }
    /* Rows of one key that are nearer to the family stand in for others. */
    for (int i = 0; i < related; i++) {
        bool is_replaced = false;

        for (int k = 0; k < related && !is_replaced; k++)
            is_replaced = distance[k] < distance[i] && strcmp(rows[k]->key, rows[i]->key) == 0;
        taken[n] = i;
        n += !is_replaced;
    }
    for (int i = 0; i < n; i++)
        rows[i] = rows[taken[i]];
    return n;
}

bool wf_hf_key_path(const wf_hf_key *row, const char **cursor, char path[WF_HF_PATH])
{
    size_t n;

    if (!*cursor) {
        *cursor = row->others;
        snprintf(path, WF_HF_PATH, "%s", row->key);
        return true;
    }
    *cursor += strspn(*cursor, " ");
    n = strcspn(*cursor, " ");
    snprintf(path, WF_HF_PATH, "%.*s", (int)n, *cursor);
    *cursor += n;
    return n > 0;
}

/* Returns true where a row of the family has this path, or, below it, one that begins with it
   and a dot. */
static bool has_row(const wf_hf_family *family, const char *path, bool below)
{
    size_t n = strlen(path);

    for (const wf_hf_key *row = keys; row < keys + KEYS; row++) {
        const char *cursor = NULL;
        char known[WF_HF_PATH];

        if (wf_hf_family_distance(family, row->family) < 0)
            continue;
        while (wf_hf_key_path(row, &cursor, known))
            if (strncmp(known, path, n) == 0 && known[n] == (below ? '.' : 0))
                return true;
    }
    return false;
}

bool wf_hf_key_known(const wf_hf_family *family, const char *path)
{
    return has_row(family, path, false);
}

bool wf_hf_key_has_members(const wf_hf_family *family, const char *path)
{
    return has_row(family, path, true);
}

void wf_hf_family_list(char *text, size_t size)
{
    size_t used = 0;

    for (int i = 0; i < FAMILIES && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s",
                                 i == 0              ? ""
                                 : i == FAMILIES - 1 ? " and "
                                                     : ", ",
                                 families[i].type);
}
