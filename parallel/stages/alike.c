/* parallel/stages/alike.c - pipeline ranks that do the same as others; see the header. */
#include "parallel/stages/pipeline_internal.h"
#include <string.h>

static bool stages_alike(const wf_par_pipeline *p, int a, int b)
{
    int64_t steps = p->first[a + 1] - p->first[a];

    if (a == b)
        return true;
    if (p->first[b + 1] - p->first[b] != steps || p->shares[a] || p->shares[b] || a == 0 ||
        b == 0 || a + 1 == p->stages || b + 1 == p->stages)
        return false;
    for (int64_t i = 0; i < steps; i++)
        if (p->borders.step[p->first[a] + i].kind != p->borders.step[p->first[b] + i].kind)
            return false;
    return true;
}

/* Returns the first stage of a rank from `stage` on; the number of stages: there is none. */
static int next_stage(const wf_par_pipeline *p, int rank, int stage)
{
    while (stage < p->stages && wf_pipe_table_rank(p->table, stage) != rank)
        stage++;
    return stage;
}

bool wf_par_ranks_alike(const wf_par_pipeline *p, int rank, int other, int *like)
{
    int a = next_stage(p, rank, 0), b = next_stage(p, other, 0);

    for (; a < p->stages && b < p->stages && stages_alike(p, a, b);
         a = next_stage(p, rank, a + 1), b = next_stage(p, other, b + 1))
        like[a] = b;
    return a == p->stages && b == p->stages;
}

/* Returns the length of a module's path where `module` is at it or below it; else 0. */
static size_t covered(const char *path, const char *module)
{
    size_t n = strlen(path);

    return strncmp(path, module, n) == 0 && (!module[n] || module[n] == '.') ? n : 0;
}

/* Returns module k of a step; NULL: it has no such one. */
static const wf_par_step_module *module_of(const wf_par_pipeline *p, int64_t step, int k)
{
    for (int64_t i = 0; i < p->modules; i++)
        if (p->module[i].step == step && k-- == 0)
            return &p->module[i];
    return NULL;
}

/* Replaces the first n bytes by a path. */
static bool replace(char module[WF_MEMORY_MODULE], size_t n, const char *path)
{
    size_t length = strlen(path), below = strlen(module + n) + 1;

    if (length + below > WF_MEMORY_MODULE)
        return false;
    memmove(module + length, module + n, below);
    memcpy(module, path, length);
    return true;
}

/* Puts a module of `stage` instead of the one like it, in stage `from`. */
static bool put_module(const wf_par_pipeline *p, int stage, int from,
                       char module[WF_MEMORY_MODULE])
{
    for (int64_t i = 0; i < p->first[stage + 1] - p->first[stage]; i++) {
        const wf_par_step_module *m, *to;

        for (int k = 0; (m = module_of(p, p->first[from] + i, k)); k++) {
            size_t n = covered(m->path, module);

            to = module_of(p, p->first[stage] + i, k);
            if (n && to)
                return replace(module, n, to->path);
        }
    }
    return false;
}

void wf_par_alike_module(const wf_par_pipeline *p, int rank, const int *like,
                         char module[WF_MEMORY_MODULE])
{
    int s = next_stage(p, rank, 0);

    while (s < p->stages && !put_module(p, s, like[s], module))
        s = next_stage(p, rank, s + 1);
}
