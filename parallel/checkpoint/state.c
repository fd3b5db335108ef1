/* parallel/checkpoint/state.c - what a checkpoint holds of a trainer; see the header. */
#include "parallel/checkpoint/state_internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct order {
    const char *path;
    int64_t i;
} order;

static int by_path(const void *a, const void *b)
{
    return strcmp(((const order *)a)->path, ((const order *)b)->path);
}

/* Begins an entry of parameter i. */
static wf_index_tensor *add_entry(wf_state *s, int64_t i, const wf_tensor *t)
{
    wf_index_tensor *entry = &s->index.tensor[s->index.count];

    s->parameter[s->index.count] = s->trained.parameter[i];
    entry->path = strdup(s->trained.parameter[i]->path);
    entry->ndim = t->ndim;
    memcpy(entry->dim, t->dim, sizeof entry->dim);
    s->index.count++;
    return entry->path ? entry : NULL;
}

static bool same_dims(const wf_tensor *a, const wf_tensor *b)
{
    bool same = a->ndim == b->ndim;

    for (int d = 0; same && d < a->ndim; d++)
        same = wf_dim_equal(a->dim[d], b->dim[d]);
    return same;
}

/* Adds the entry of a parameter with what has its shape, and one of each other state. */
static bool describe(wf_state *s, int64_t i)
{
    const wf_par_train_state *t = &s->trained;
    const wf_par_parameter_state *h = wf_par_state_of(t->parameter[i]);
    wf_tensor *master = t->parameter[i]->tensor; /* sharded like its moments or less */
    int64_t at = s->index.count;
    wf_index_tensor *entry = add_entry(s, i, master);

    if (!entry)
        return false;
    s->tensor[at][0] = master;
    entry->kinds = WF_INDEX_VALUE;
    entry->layout = wf_saved_layout_of(h->optimizer, h->owning_rank);
    for (int k = 0; k < WF_NN_KEPT; k++) {
        wf_tensor *state = wf_nn_optimizer_moment(t->optimizer, i, k);
        bool own = state && !(same_dims(state, master) && state->layout == h->optimizer);
        int64_t to = own ? s->index.count : at;
        wf_index_tensor *e = own ? add_entry(s, i, state) : entry;

        if (!e)
            return false;
        s->tensor[to][1 + k] = state;
        e->kinds |= state ? 2u << k : 0;
        if (own)
            e->layout = wf_saved_layout_of(state->layout, h->owning_rank);
    }
    return true;
}

int64_t wf_state_kept(int64_t count, wf_nn_parameter **parameter)
{
    bool adapted = wf_par_is_adapted(count, parameter);
    int64_t kept = 0;

    for (int64_t i = 0; i < count; i++)
        if (!adapted || !parameter[i]->frozen)
            parameter[kept++] = parameter[i];
    return kept;
}

wf_status wf_state_open(wf_state *s, const wf_par_trainer *trainer, wf_error *error)
{
    wf_par_train_state t = wf_par_trainer_state(trainer);
    order *orders = calloc((size_t)t.count + 1, sizeof *orders);
    size_t most = (size_t)t.count * (1 + WF_NN_STATES) + 1;
    bool good = orders != NULL;
    bool adapted = wf_par_is_adapted(t.count, t.parameter);
    int64_t kept = 0;

    *s = (wf_state){.trained = t};
    s->tensor = calloc(most, sizeof *s->tensor);
    s->index.tensor = calloc(most, sizeof *s->index.tensor);
    s->parameter = calloc(most, sizeof *s->parameter);
    good = good && s->tensor && s->index.tensor && s->parameter;
    for (int64_t i = 0; good && i < t.count; i++)
        if (!adapted || !t.parameter[i]->frozen)
            orders[kept++] = (order){t.parameter[i]->path, i};
    if (good)
        qsort(orders, (size_t)kept, sizeof *orders, by_path);
    for (int64_t i = 0; good && i < kept; i++)
        good = describe(s, orders[i].i);
    free(orders);
    s->index.mesh = wf_saved_mesh_of(t.par->mesh);
    strncpy(s->index.strategy, wf_par_strategy_of(t.par), sizeof s->index.strategy - 1);
    for (int a = 0; a < s->index.mesh.n_axes; a++)
        s->coordinate[a] = wf_mesh_coordinate(t.par->mesh, a);
    if (good)
        return WF_OK;
    return wf_error_set(error, WF_ENOMEM, "no memory for the list of %lld parameters",
                        (long long)t.count);
}

void wf_state_drop_options(wf_state *s)
{
    for (int64_t i = 0; i < 2 * s->index.option_count; i++)
        free(s->index.option[i]);
    free(s->index.option);
    s->index.option = NULL;
    s->index.option_count = 0;
}

void wf_state_close(wf_state *s)
{
    wf_state_drop_options(s);
    for (int64_t i = 0; i < s->index.count; i++)
        free(s->index.tensor[i].path);
    free(s->index.tensor);
    free(s->tensor);
    free(s->parameter);
    *s = (wf_state){.tensor = NULL};
}

wf_part wf_state_part(const wf_state *s, int64_t i)
{
    const wf_index_tensor *t = &s->index.tensor[i];

    return wf_saved_part(&s->index.mesh, &t->layout, t->ndim, t->dim, s->coordinate);
}

bool wf_state_writes(const wf_state *s, int64_t i)
{
    const wf_index_tensor *t = &s->index.tensor[i];
    int coordinate[WF_MAX_AXES];

    memcpy(coordinate, s->coordinate, sizeof coordinate);
    wf_saved_writer(&s->index.mesh, &t->layout, t->ndim, i, coordinate);
    return memcmp(coordinate, s->coordinate, sizeof coordinate) == 0;
}

bool wf_state_counts_here(const wf_state *s, int64_t i, int kind)
{
    return wf_par_counts_here(s->trained.par, s->parameter[i], s->tensor[i][kind]);
}
