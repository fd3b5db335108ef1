/*
 * tests/nn/test_points.c - points of modules: what a type lists is what its forward passes,
 * over all families of models, with adapters and documents; a point that is in no list is an
 * error by name.
 */
#include "nn/children.h"
#include "nn/documents.h"
#include "nn/layers/lora.h"
#include "tests/nn/model_ranks.h"

enum { MOST = 64, TOKENS = 4 };

/* The pairs of type and point that any module of the models has passed, and the types that
   there are. */
typedef struct passed {
    int n, types;
    struct {
        const wf_nn_type *type;
        char point[16];
    } at[MOST];
    const wf_nn_type *type[MOST];
} passed;

static bool has(const passed *p, const wf_nn_type *type, const char *point, size_t length)
{
    for (int i = 0; i < p->n; i++)
        if (p->at[i].type == type && strlen(p->at[i].point) == length &&
            memcmp(p->at[i].point, point, length) == 0)
            return true;
    return false;
}

/* Notes a point. Tokens of "dispatch" become others, as of an exchange, which passes points of
   its own. */
static void note(void *self, wf_nn_module *m, const char *point, int n, wf_tensor **x)
{
    passed *p = self;

    if (n > 1 && strcmp(point, "dispatch") == 0)
        x[1] = wf_tensor_alias(x[1]);
    if (p->n == MOST || has(p, m->type, point, strlen(point)))
        return;
    p->at[p->n].type = m->type;
    snprintf(p->at[p->n++].point, sizeof p->at->point, "%s", point);
}

typedef struct looking {
    passed *passed;
    const wf_nn_hooks *hooks;
} looking;

static void look(void *arg, wf_nn_module *m)
{
    looking *l = arg;
    passed *p = l->passed;
    int i = 0;

    while (i < p->types && p->type[i] != m->type)
        i++;
    if (i == p->types && i < MOST)
        p->type[p->types++] = m->type;
    wf_nn_hook_add(m, l->hooks);
}

static wf_tensor *numbers(wf_context *ctx)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(TOKENS)};

    return wf_tensor_fake(ctx, WF_I32, 2, dims, NULL);
}

static void run_model(const char *family, bool adapted, bool documents, bool sinks, passed *p)
{
    wf_context *ctx = lone_context(1);
    wf_nn_gpt_config config = *wf_nn_gpt_family(family);
    const wf_nn_lora_options lora = {
        .rank = 1, .alpha = 1, .site = 99, .targets = WF_NN_ALL_LINEAR};
    const wf_nn_hooks hooks = {.at = note, .self = p};
    looking l = {p, &hooks};
    wf_nn_gpt *m;

    config.vocabulary = 11;
    config.positions = TOKENS;
    config.layers = 1;
    config.sinks = sinks;
    config.heads = config.kv_heads = 2;
    config.width = 8;
    config.ffn = 8;
    config.head_dim = 8; /* every family turns an even share */
    m = wf_nn_gpt_new(ctx, &config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    if (adapted)
        CU_ASSERT_EQUAL(wf_nn_lora(&m->base, &lora), WF_OK);
    wf_nn_visit(&m->base, look, NULL, &l);
    wf_scope_open(ctx);
    if (documents)
        wf_nn_documents_switch(ctx, (wf_nn_documents){numbers(ctx), numbers(ctx)});
    CU_ASSERT_PTR_NOT_NULL(wf_nn_gpt_loss(m, numbers(ctx), numbers(ctx), 1));
    wf_scope_close(ctx);
    wf_nn_free(&m->base);
    close_lone(ctx, WF_OK);
}

static void lists_are_reached(void)
{
#define FAMILY(name, ...) #name,
    static const char *const families[] = {
#include "nn/models/gpt/families.def"
    };
#undef FAMILY
    passed p = {.n = 0};
    int points = 0;

    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (int way = 0; way < 8; way++)
            run_model(families[f], way & 1, way & 2, way & 4, &p);
    for (int t = 0; t < p.types; t++)
        for (const char *at = p.type[t]->points; at && *at; at += strspn(at, " ")) {
            size_t length = strcspn(at, " ");

            if (!has(&p, p.type[t], at, length))
                printf("\n    %s lists %.*s, which no model passed\n", p.type[t]->name,
                       (int)length, at);
            CU_ASSERT(has(&p, p.type[t], at, length));
            points++;
            at += length;
        }
    CU_ASSERT_EQUAL(points,
                    p.n); /* the other way round is an error of the first forward pass */
    CU_ASSERT(p.types >= 11 && points >= 16);
}

static void double_it(void *self, wf_nn_module *m, const char *point, int n, wf_tensor **x)
{
    (void)m;
    (void)n;
    if (strcmp(point, self) == 0)
        x[0] = wf_scale(x[0], 2);
}

static wf_tensor *row_of(wf_context *ctx, float value)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_width(3)};
    wf_tensor *t = three_of(ctx, value);

    return t ? wf_tensor_view(t, 2, dims, t->layout) : NULL;
}

/* Each norm passes its points, joined with a sum or not: a plan's borders at them are never
   left out. */
static void norms_pass_theirs(void)
{
    static char in[] = "in", out[] = "out";
    wf_context *ctx = lone_context(1);
    wf_nn_norm *norm = wf_nn_rmsnorm_new(ctx, wf_dim_width(3), 1e-5f);
    const wf_nn_hooks hooks[] = {{.at = double_it, .self = in}, {.at = double_it, .self = out}};
    wf_tensor *x, *sum;
    float plain, alone, added;

    CU_ASSERT_PTR_NOT_NULL_FATAL(norm);
    wf_nn_name_tree(&norm->base);
    wf_scope_open(ctx);
    wf_tensor_release(norm->gain->tensor);
    norm->gain->tensor = wf_tensor_retain(three_of(ctx, 1));
    x = row_of(ctx, 3);
    plain = first_of(wf_nn_call(norm, x));
    for (int h = 0; h < 2; h++) {
        wf_nn_hook_add(norm, &hooks[h]);
        alone = first_of(wf_nn_call(norm, x));
        sum = x;
        added = first_of(wf_nn_add_norm(norm, &sum, row_of(ctx, 1), 0, 0));
        CU_ASSERT_DOUBLE_EQUAL(alone, h ? 2 * plain : plain, 1e-4);
        CU_ASSERT_DOUBLE_EQUAL(added, h ? 2 * plain : plain, 1e-4);
        CU_ASSERT_EQUAL(first_of(sum), 4); /* the tensor that passes "in" is the norm's alone */
        wf_nn_hook_remove(norm, &hooks[h]);
    }
    wf_scope_close(ctx);
    wf_nn_free(&norm->base);
    close_lone(ctx, WF_OK);
}

static wf_tensor *misspelt_forward(wf_nn_module *self, wf_tensor *x)
{
    return wf_nn_at(self, "inn", x);
}

static void unlisted_is_refused(void)
{
    static const char *const lists[] = {"in sum", "innn in", "", NULL};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        wf_context *ctx = lone_context(1);
        wf_nn_module *m = wf_nn_module_new(
            ctx, "mine", misspelt_forward,
            WF_PARAMETER("w", wf_nn_parameter_new(ctx, 1, (wf_dim[]){wf_dim_width(3)}, false)));
        char words[160];

        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        CU_ASSERT_EQUAL(wf_nn_points(m, lists[i]), WF_OK);
        wf_nn_name_tree(m);
        wf_scope_open(ctx);
        CU_ASSERT_PTR_NULL(wf_nn_call(m, three_of(ctx, 1)));
        wf_scope_close(ctx);
        snprintf(words, sizeof words,
                 "(mine) passes a point that it does not list: inn; its list is: %s; add it",
                 lists[i] && *lists[i] ? lists[i] : "empty");
        CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, words));
        wf_context_clear(ctx);
        CU_ASSERT(!wf_nn_acts(m, "sun"));
        CU_ASSERT_EQUAL(wf_context_status(ctx), WF_EINVAL);
        wf_nn_free(m);
        close_lone(ctx, WF_EINVAL);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"what types list, some model passes", lists_are_reached},
        {"norms pass their points, alone and joined with a sum", norms_pass_theirs},
        {"a point that is in no list", unlisted_is_refused},
        {NULL, NULL}};

    return wf_test_main("points", tests);
}
