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

static bool describe(wf_state *s, int64_t at, int64_t i)
{
    const wf_par_train_state *t = &s->trained;
    wf_index_tensor *entry = &s->index.tensor[at];
    wf_tensor *master = t->parameter[i]->tensor; /* at rest, split like its moments or less */

    s->parameter[at] = t->parameter[i];
    s->tensor[at][0] = master;
    for (int k = 0; k < WF_NN_KEPT; k++)
        s->tensor[at][1 + k] = wf_nn_optimizer_moment(t->optimizer, i, k);
    for (int k = 0; k < WF_INDEX_KINDS; k++)
        entry->kinds |= s->tensor[at][k] ? 1u << k : 0;
    entry->path = strdup(t->parameter[i]->path);
    entry->ndim = master->ndim;
    memcpy(entry->dim, master->dim, sizeof entry->dim);
    entry->layout = wf_saved_layout_of(wf_par_state_of(t->parameter[i])->optimizer,
                                       wf_par_state_of(t->parameter[i])->owning_rank);
    s->index.count++;
    return entry->path != NULL;
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
    bool good = orders != NULL;
    bool adapted = wf_par_is_adapted(t.count, t.parameter);
    int64_t kept = 0;

    *s = (wf_state){.trained = t};
    s->tensor = calloc((size_t)t.count + 1, sizeof *s->tensor);
    s->index.tensor = calloc((size_t)t.count + 1, sizeof *s->index.tensor);
    s->parameter = calloc((size_t)t.count + 1, sizeof *s->parameter);
    good = good && s->tensor && s->index.tensor && s->parameter;
    for (int64_t i = 0; good && i < t.count; i++)
        if (!adapted || !t.parameter[i]->frozen)
            orders[kept++] = (order){t.parameter[i]->path, i};
    if (good)
        qsort(orders, (size_t)kept, sizeof *orders, by_path);
    for (int64_t i = 0; good && i < kept; i++)
        good = describe(s, i, orders[i].i);
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
