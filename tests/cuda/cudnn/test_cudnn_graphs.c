/*
 * tests/cuda/cudnn/test_cudnn_graphs.c - attention's graphs, without a GPU: cuDNN takes the
 * properties of one from a file, and its driver is a mock in which every call succeeds. So
 * cuDNN checks shapes, finds engines, compiles their kernels and says what workspace they need;
 * what they compute is not seen here. The properties are from public data sheets.
 *
 * WEFT_CUDNN_ALL in the environment makes plans of all cases, which takes half a minute.
 */
#include "kernels/cuda/cudnn/graph_internal.h"
#include "tests/harness.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 3, SM_90 = 1, ENGINES = 8 };
/* Forward, the gradient with dq summed in any order, and in one order. */
enum { FORWARD, ANY_ORDER, IN_ORDER, VARIANTS };

static const char *const device[DEVICES] = {"sm_80", "sm_90", "sm_100"};
static char json[DEVICES][4096];
static const wf_cudnn_api *api;

static const wf_cudnn_heads gpt2 = {
    .batch = 4, .heads = 12, .groups = 12, .tokens = 1024, .dim = 64};
static const wf_cudnn_heads llama = {
    .batch = 1, .heads = 32, .groups = 8, .tokens = 1024, .dim = 128};
static const wf_cudnn_heads odd = {
    .batch = 2, .heads = 5, .groups = 5, .tokens = 1000, .dim = 80};

static bool has_properties(int i)
{
    char path[512];
    size_t n;
    FILE *file;

    snprintf(path, sizeof path, "%s/%s.json", WEFT_DEVICES, device[i]);
    file = fopen(path, "r");
    n = file ? fread(json[i], 1, sizeof json[i] - 1, file) : 0;
    if (file)
        fclose(file);
    return n > 0;
}

static wf_cudnn_heads variant(const wf_cudnn_heads *h, int which)
{
    wf_cudnn_heads v = *h;

    v.backward = which != FORWARD;
    v.order = which == IN_ORDER ? WF_CUDNN_BY_SCORES : WF_CUDNN_ANY_ORDER;
    return v;
}

/* Engines of a case on a device, and (plan) the workspace of the best that has a plan; -1:
   none */
static int64_t serve(const wf_cudnn_heads *h, int on, bool plan, wf_cudnn_engine *best)
{
    wf_cudnn_engine engine[ENGINES];
    wf_cudnn_graph g;
    wf_cudnn_descriptor properties;
    int64_t workspace = -1;
    int n;

    wf_cudnn_graph_begin(&g, api);
    wf_cudnn_attention_graph(&g, h);
    properties = wf_cudnn_properties(&g, 0, json[on]);
    n = wf_cudnn_engines(&g, properties, ENGINES, engine);
    if (n > 0 && !plan) {
        *best = engine[0];
        workspace = 0;
    }
    for (int i = 0; i < n && workspace < 0; i++) {
        *best = engine[i];
        if (!wf_cudnn_plan(&g, properties, &engine[i], &workspace))
            workspace = -1;
    }
    if (workspace < 0)
        printf(
            "\n%s: %lld x %lld/%lld heads, %lld tokens, dim %lld, variant %d: %d engines; %s\n",
            device[on], (long long)h->batch, (long long)h->heads, (long long)h->groups,
            (long long)h->tokens, (long long)h->dim, h->backward + (int)h->order, n, g.text);
    wf_cudnn_graph_end(&g);
    return workspace;
}

/* Returns the workspace of an engine's plan on Hopper; -1: it has none. */
static int64_t workspace_of(const wf_cudnn_heads *h, const wf_cudnn_engine *engine)
{
    wf_cudnn_descriptor properties;
    wf_cudnn_graph g;
    int64_t workspace = -1;

    wf_cudnn_graph_begin(&g, api);
    wf_cudnn_attention_graph(&g, h);
    properties = wf_cudnn_properties(&g, 0, json[SM_90]);
    CU_ASSERT_PTR_NOT_NULL(wf_cudnn_plan(&g, properties, engine, &workspace));
    if (workspace < 0)
        printf("\n%s\n", g.text);
    wf_cudnn_graph_end(&g);
    return workspace;
}

/* Checks that the workspace that is promised before there is a plan suffices for it. */
static void check_workspace(const wf_cudnn_heads *h, int64_t workspace)
{
    int64_t most = wf_cudnn_attention_engine(h);

    CU_ASSERT(workspace >= 0);
    CU_ASSERT(workspace <= most);
    if (workspace > most)
        printf("\nworkspace %lld of at most %lld\n", (long long)workspace, (long long)most);
}

static void case_on(const wf_cudnn_heads *h, int on, int which, bool plan)
{
    wf_cudnn_heads v = variant(h, which);
    wf_cudnn_engine engine;

    check_workspace(&v, serve(&v, on, plan || getenv("WEFT_CUDNN_ALL"), &engine));
}

static void case_on_all(const wf_cudnn_heads *h)
{
    for (int on = 0; on < DEVICES; on++)
        for (int which = 0; which < VARIANTS; which++)
            case_on(h, on, which, false);
}

/* Plans of both directions on each architecture, with one_engine_serves_all. */
static void gpt2_has_plans(void)
{
    for (int on = 0; on < DEVICES; on++)
        for (int which = 0; which < VARIANTS; which++)
            case_on(&gpt2, on, which, on == SM_90 ? which == ANY_ORDER : which != ANY_ORDER);
}

static void grouped_heads_have_engines(void)
{
    case_on_all(&llama);
}

static void odd_lengths_have_engines(void)
{
    case_on_all(&odd);
}

/* Attention in a window, in both directions. */
static void windows_have_engines(void)
{
    wf_cudnn_heads h = gpt2;

    h.window = 256;
    case_on_all(&h);
    h.capped = true;
    for (int on = 0; on < DEVICES; on++)
        case_on(&h, on, FORWARD, false);
}

/* Scores under a cap: forward everywhere, the gradient in one order on Hopper alone. */
static void caps_have_engines(void)
{
    wf_cudnn_heads h = gpt2;

    h.capped = true;
    for (int on = 0; on < DEVICES; on++)
        case_on(&h, on, FORWARD, false);
    case_on(&h, SM_90, IN_ORDER, false);
}

/* The engine that adds tiles of dq in one order has a plan in little workspace, windows and
   caps as well. */
static void tiles_have_one_order(void)
{
    const wf_cudnn_engine engine = wf_cudnn_ordered_engine();
    wf_cudnn_heads h = gpt2;

    if (api->cudnnGetVersion() < 92500) {
        printf("(from cuDNN 9.25 on) ");
        return;
    }
    h.backward = true;
    h.order = WF_CUDNN_BY_TILES;
    h.window = 256;
    h.capped = true;
    check_workspace(&h, workspace_of(&h, &engine));
}

/* The engine that exact mode pins by a single head serves other numbers of heads. */
static void one_engine_serves_all(void)
{
    for (int which = FORWARD; which < VARIANTS; which += IN_ORDER) {
        wf_cudnn_heads one = variant(&gpt2, which), all = one;
        wf_cudnn_engine engine;

        one.batch = one.heads = one.groups = 1;
        check_workspace(&one, serve(&one, SM_90, false, &engine));
        check_workspace(&all, workspace_of(&all, &engine));
    }
}

/* A shape that no engine takes is reported, and breaks nothing. */
static void odd_dims_have_none(void)
{
    wf_cudnn_heads h = gpt2;
    wf_cudnn_engine engine;

    h.dim = 36;
    CU_ASSERT(serve(&h, SM_90, true, &engine) < 0);
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2's attention has plans on three architectures", gpt2_has_plans},
        {"grouped heads have engines", grouped_heads_have_engines},
        {"lengths that are no multiple of 64 have engines", odd_lengths_have_engines},
        {"windows have engines", windows_have_engines},
        {"caps have engines", caps_have_engines},
        {"tiles of dq have an engine with one order", tiles_have_one_order},
        {"one engine serves every number of heads", one_engine_serves_all},
        {"a dim of 36 has none", odd_dims_have_none},
        {NULL, NULL},
    };
    const char *why;

    if (!dlopen(WEFT_MOCK_DRIVER, RTLD_NOW | RTLD_GLOBAL)) {
        printf("%s\n", dlerror());
        return 1;
    }
    api = wf_cudnn_load(&why);
    if (!api) {
        printf("skipped: %s\n", why);
        return 77;
    }
    for (int i = 0; i < DEVICES; i++)
        if (!has_properties(i))
            return 1;
    return wf_test_main("cuDNN's graphs", tests);
}
