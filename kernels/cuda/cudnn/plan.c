/* kernels/cuda/cudnn/plan.c - from a graph of cuDNN's operations to a plan that runs. */
#include "kernels/cuda/cudnn/graph_internal.h"
#include <string.h>

enum { CANDIDATES = 16 };

/* Makes the graph's own descriptor, anew for every query. */
static wf_cudnn_descriptor whole_graph(wf_cudnn_graph *g)
{
    wf_cudnn_descriptor d = wf_cudnn_new(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);

    wf_cudnn_set(g, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops,
                 g->op);
    wf_cudnn_finalize(g, d, "a graph");
    return d;
}

wf_cudnn_descriptor wf_cudnn_properties(wf_cudnn_graph *g, int ordinal, const char *json)
{
    wf_cudnn_descriptor d = wf_cudnn_new(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    int32_t id = ordinal;

    if (json)
        wf_cudnn_set(g, d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                     (int64_t)strlen(json), json);
    else
        wf_cudnn_set(g, d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &id);
    wf_cudnn_finalize(g, d, "the properties of a GPU");
    return d;
}

/* Reads up to `room` values of an attribute; returns how many there are of them. */
static int64_t get(wf_cudnn_graph *g, wf_cudnn_descriptor d, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, int64_t room, void *values)
{
    int64_t count = 0;

    if (g->failed || g->api->cudnnBackendGetAttribute(d, name, type, room, &count, values) !=
                         CUDNN_STATUS_SUCCESS)
        return 0;
    return count < room ? count : room;
}

/* Reads the engine of a configuration; false where that is not possible. */
static bool read_engine(wf_cudnn_graph *g, wf_cudnn_descriptor config, wf_cudnn_engine *e)
{
    wf_cudnn_descriptor engine = wf_cudnn_new(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    wf_cudnn_descriptor choice[WF_CUDNN_KNOBS];
    int64_t n;

    if (get(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &engine) != 1 ||
        get(g, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &e->index) != 1)
        return false;
    for (int i = 0; i < WF_CUDNN_KNOBS; i++)
        if (g->api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                                                 &choice[i]) != CUDNN_STATUS_SUCCESS)
            choice[i] = NULL;
    n = get(g, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            WF_CUDNN_KNOBS, choice);
    e->n_knobs = 0;
    for (int64_t i = 0; i < n; i++, e->n_knobs++) {
        get(g, choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
            &e->knob[i]);
        get(g, choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &e->value[i]);
    }
    for (int i = 0; i < WF_CUDNN_KNOBS; i++)
        if (choice[i])
            g->api->cudnnBackendDestroyDescriptor(choice[i]);
    return true;
}

int wf_cudnn_engines(wf_cudnn_graph *g, wf_cudnn_descriptor properties, int room,
                     wf_cudnn_engine *engine)
{
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    wf_cudnn_descriptor graph = whole_graph(g), config[CANDIDATES];
    wf_cudnn_descriptor heuristic = wf_cudnn_new(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t count;
    int n = 0;

    wf_cudnn_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    wf_cudnn_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    wf_cudnn_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 1, &properties);
    wf_cudnn_finalize(g, heuristic, "which engines serve a graph");
    for (int i = 0; i < CANDIDATES; i++)
        config[i] = wf_cudnn_new(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    count = get(g, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                CANDIDATES, config);
    for (int64_t i = 0; i < count && n < room; i++)
        n += read_engine(g, config[i], &engine[n]);
    return n;
}

static wf_cudnn_descriptor configured(wf_cudnn_graph *g, wf_cudnn_descriptor properties,
                                      const wf_cudnn_engine *e)
{
    wf_cudnn_descriptor graph = whole_graph(g), choice[WF_CUDNN_KNOBS], config;
    wf_cudnn_descriptor engine = wf_cudnn_new(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);

    wf_cudnn_set(g, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                 &graph);
    wf_cudnn_set(g, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &e->index);
    wf_cudnn_set(g, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                 &properties);
    wf_cudnn_finalize(g, engine, "an engine");
    for (int i = 0; i < e->n_knobs; i++) {
        choice[i] = wf_cudnn_new(g, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        wf_cudnn_set(g, choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                     &e->knob[i]);
        wf_cudnn_set(g, choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                     &e->value[i]);
        wf_cudnn_finalize(g, choice[i], "a knob of an engine");
    }
    config = wf_cudnn_new(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    wf_cudnn_set(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                 &engine);
    if (e->n_knobs)
        wf_cudnn_set(g, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                     CUDNN_TYPE_BACKEND_DESCRIPTOR, e->n_knobs, choice);
    wf_cudnn_finalize(g, config, "an engine's configuration");
    return config;
}

wf_cudnn_descriptor wf_cudnn_plan(wf_cudnn_graph *g, wf_cudnn_descriptor properties,
                                  const wf_cudnn_engine *engine, int64_t *workspace)
{
    int before = g->n_all;
    wf_cudnn_descriptor config = configured(g, properties, engine);
    wf_cudnn_descriptor plan = wf_cudnn_new(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);

    wf_cudnn_set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    wf_cudnn_set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 1, &properties);
    wf_cudnn_finalize(g, plan, "a plan");
    if (get(g, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
            workspace) == 1)
        return plan;
    g->failed = false; /* another engine may serve */
    while (g->n_all > before)
        g->api->cudnnBackendDestroyDescriptor(g->all[--g->n_all]);
    return NULL;
}
