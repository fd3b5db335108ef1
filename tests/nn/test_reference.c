/*
 * tests/nn/test_reference.c - a tiny GPT-2 and a tiny Llama against PyTorch and Hugging Face.
 *
 * tests/reference/make_reference.py made the files: weights, and what those libraries compute
 * from them in double. Here the same weights go through Weft on several layouts, each rank with
 * its own part of them, and
 *
 *     logits      differ by 1e-4 at most
 *     gradients   each by 1e-5 of max(its own norm, 1e-3 of the whole gradient's norm)
 *     10 steps of AdamW: the losses differ by 1e-4, the gradients' norms by 1e-4 of themselves
 *
 * ctest: builds plain
 */
#include "parallel/shard/gradient_reduce_internal.h"
#include "parallel/models/gpt/gpt.h"
#include "parallel/train/train.h"
#include "tests/nn/model_ranks.h"
#include "tests/nn/safetensors_file.h"
#include <math.h>

enum { STEPS = 10, RANKS = 8 };

/* The errors of a rank, each in units of what is allowed. */
typedef struct distance {
    double logits, gradient, loss, norm;
    int64_t named; /* parameters that the file has */
} distance;

typedef struct reference {
    safetensors *file;
    safetensors_entry tokens, targets, logits, losses, norms;
    wf_nn_gpt_config config;
    wf_par_train_options train;
    distance off[RANKS];
} reference;

/* Weft's path without the names of groups: block.0.attn.qkv.q.weight is block.0.attn.q.weight.
 */
static void name_in_file(char *name, size_t size, const char *prefix, const char *path)
{
    static const char *const groups[] = {".qkv", ".gate_up"};

    snprintf(name, size, "%s%s", prefix, path);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        char *at = strstr(name, groups[i]);

        if (at)
            memmove(at, at + strlen(groups[i]), strlen(at + strlen(groups[i])) + 1);
    }
}

/* The file's tensor for a parameter, of its very shape. */
static bool find(const reference *ref, const char *prefix, const wf_nn_parameter *p,
                 safetensors_entry *e)
{
    char name[2 * WF_NN_PATH];

    name_in_file(name, sizeof name, prefix, p->path);
    if (!safetensors_find(ref->file, name, "F32", e) || e->ndim != p->tensor->ndim)
        return false;
    for (int i = 0; i < e->ndim; i++)
        if (e->dim[i] != p->tensor->dim[i].size)
            return false;
    return true;
}

static wf_status set_parameters(model_rank *r, const reference *ref)
{
    wf_rank *rank = r->rank;

    for (int64_t i = 0; i < r->count; i++) {
        wf_tensor *t = r->parameter[i]->tensor;
        int64_t n = wf_tensor_local_count(t);
        float *x = t->data;
        safetensors_entry e;

        NEED(find(ref, "", r->parameter[i], &e));
        for (int64_t k = 0; k < n; k++)
            x[k] = ((const float *)e.data)[whole_index(t, k)];
    }
    return WF_OK;
}

static wf_tensor *whole_batch(model_rank *r, const safetensors_entry *e)
{
    const wf_dim dims[] = {wf_dim_batch(e->dim[0]), wf_dim_chunked(e->dim[1])};

    return wf_distribute(r->ctx, e->data, WF_I32, 2, dims, wf_par_batch_layout(r->par));
}

/* Each rank its own part, in the layout in which logits come. A NaN is as far off as can be. */
static wf_status compare_logits(model_rank *r, const reference *ref, distance *off)
{
    wf_rank *rank = r->rank;
    const float *want = ref->logits.data;
    wf_tensor *y;

    wf_scope_open(r->ctx);
    y = wf_nn_gpt_logits(r->model, whole_batch(r, &ref->tokens));
    NEED(y && wf_tensor_count(y) == ref->logits.count);
    for (int64_t i = 0; i < wf_tensor_local_count(y); i++) {
        double d = fabs((double)((const float *)y->data)[i] - (double)want[whole_index(y, i)]);

        if (!(d / 1e-4 <= off->logits))
            off->logits = isnan(d) ? (double)INFINITY : d / 1e-4;
    }
    wf_scope_close(r->ctx);
    return WF_OK;
}

static double norm_of(const float *a, const float *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (b ? (double)b[i] : 0);

        sum += d * d;
    }
    return sqrt(sum);
}

/* grad[i], retained, of the mean loss over the file's batch: one micro-step by hand. */
static wf_status take_gradients(model_rank *r, const reference *ref, wf_tensor **grad)
{
    wf_par_gradients *g = wf_par_gradients_open(r->par, 0, r->count, r->parameter);
    wf_tensor *loss, *seed;
    wf_tape *tape;

    if (!g)
        return wf_context_status(r->ctx);
    wf_scope_open(r->ctx);
    tape = wf_tape_open(r->ctx);
    loss = wf_nn_gpt_loss(r->model, whole_batch(r, &ref->tokens), whole_batch(r, &ref->targets),
                          1.0f / (float)ref->tokens.count);
    if (loss) {
        seed = wf_tensor_new(r->ctx, WF_F32, 2, loss->dim, loss->layout, WF_MEMORY_ACTIVATION);
        for (int64_t i = 0; seed && i < wf_tensor_local_count(seed); i++)
            ((float *)seed->data)[i] = 1.0f / (float)ref->tokens.count;
        wf_backward(loss, seed, false);
    }
    wf_tape_close(tape);
    wf_par_gradients_micro(g, NULL, 0, 1, 0);
    if (wf_context_status(r->ctx) == WF_OK && wf_par_gradients_micro_end(g) == WF_OK)
        wf_par_gradients_finish(g, grad);
    wf_scope_close(r->ctx);
    wf_par_gradients_close(g);
    return wf_context_status(r->ctx);
}

static wf_status compare_gradients(model_rank *r, const reference *ref, distance *off)
{
    wf_rank *rank = r->rank;
    wf_tensor **grad = calloc((size_t)r->count + 1, sizeof *grad);
    double whole = (double)((const float *)ref->norms.data)[0];

    NEED(grad);
    GOOD(take_gradients(r, ref, grad));
    wf_scope_open(r->ctx);
    for (int64_t i = 0; i < r->count; i++) {
        wf_tensor *g = wf_whole(grad[i]);
        safetensors_entry e;
        double d;

        NEED(g && find(ref, "grad.", r->parameter[i], &e) && wf_tensor_count(g) == e.count);
        d = norm_of(g->data, e.data, e.count) / 1e-5 /
            fmax(norm_of(e.data, NULL, e.count), 1e-3 * whole);
        if (!(d <= off->gradient))
            off->gradient = isnan(d) ? (double)INFINITY : d;
        off->named++;
        wf_tensor_release(grad[i]);
    }
    wf_scope_close(r->ctx);
    free(grad);
    return WF_OK;
}

/* Every step sees the same batch. */
static wf_status read_batch(void *self, int64_t step, int64_t first, int64_t count,
                            void *const *field, wf_error *error)
{
    const reference *ref = self;
    int64_t length = ref->tokens.dim[1];
    size_t bytes = (size_t)(count * length) * sizeof(int32_t);

    (void)step;
    if (first + count > ref->tokens.dim[0])
        return wf_error_set(error, WF_EINVAL, "sequences that the file does not have");
    memcpy(field[0], (const int32_t *)ref->tokens.data + first * length, bytes);
    memcpy(field[1], (const int32_t *)ref->targets.data + first * length, bytes);
    return WF_OK;
}

static wf_status compare_training(model_rank *r, const reference *ref, distance *off)
{
    const wf_par_data data = {.read = read_batch, .self = (void *)ref};
    wf_par_trainer *t = wf_par_trainer_open(r->par, &r->model->base, &ref->train);
    wf_par_step result;

    for (int64_t step = 1; t && step <= STEPS; step++) {
        double loss = (double)((const float *)ref->losses.data)[step - 1];
        double norm = (double)((const float *)ref->norms.data)[step - 1];

        if (wf_par_train_step(t, step, &data, &result) != WF_OK)
            break;
        off->loss = fmax(off->loss, fabs((double)result.loss - loss) / 1e-4);
        off->norm = fmax(off->norm, fabs(result.grad_norm - norm) / norm / 1e-4);
    }
    wf_par_trainer_close(t);
    return wf_context_status(r->ctx);
}

static wf_status compare(model_rank *r, void *arg)
{
    reference *ref = arg;
    distance *off = &ref->off[r->rank->index];

    *off = (distance){.named = 0};
    GOOD(set_parameters(r, ref));
    GOOD(compare_logits(r, ref, off));
    GOOD(compare_gradients(r, ref, off));
    return compare_training(r, ref, off);
}

static int64_t size_of(const safetensors *file, const char *key)
{
    return (int64_t)safetensors_number(file, key);
}

static void settings(reference *ref)
{
    const safetensors *f = ref->file;
    double lr = safetensors_number(f, "lr");

    ref->config = *wf_nn_gpt_family(safetensors_text(f, "arch"));
    ref->config.vocabulary = size_of(f, "vocab_size");
    ref->config.positions = size_of(f, "max_seq_len");
    ref->config.layers = size_of(f, "n_layer");
    ref->config.heads = size_of(f, "n_head");
    ref->config.kv_heads = size_of(f, "n_kv_head");
    ref->config.width = size_of(f, "n_embd");
    ref->config.ffn = size_of(f, "ffn");
    ref->config.eps = (float)safetensors_number(f, "norm_eps");
    ref->config.rope_base = safetensors_number(f, "rope_theta");
    ref->train = (wf_par_train_options){
        .global_batch = ref->tokens.dim[0],
        .micro_batch = 1,
        .field = WF_PAR_GPT_FIELDS(ref->tokens.dim[1]),
        .clip = (float)safetensors_number(f, "clip_grad"),
        .optimizer = {.method = WF_NN_ADAMW,
                      .beta1 = (float)safetensors_number(f, "beta1"),
                      .beta2 = (float)safetensors_number(f, "beta2"),
                      .eps = (float)safetensors_number(f, "eps"),
                      .weight_decay = (float)safetensors_number(f, "weight_decay")},
        .schedule = {.lr = lr, .min_lr = lr, .warmup = 0, .steps = STEPS},
        .loss = wf_par_gpt_loss};
}

static bool open_reference(reference *ref, const char *arch)
{
    char path[512];

    *ref = (reference){.file = NULL};
    snprintf(path, sizeof path, "%s/%s.safetensors", WEFT_REFERENCE, arch);
    ref->file = safetensors_open(path);
    CU_ASSERT_PTR_NOT_NULL(ref->file);
    if (!ref->file)
        return false;
    if (!safetensors_find(ref->file, "tokens", "I32", &ref->tokens) ||
        !safetensors_find(ref->file, "targets", "I32", &ref->targets) ||
        !safetensors_find(ref->file, "logits", "F32", &ref->logits) ||
        !safetensors_find(ref->file, "losses", "F32", &ref->losses) ||
        !safetensors_find(ref->file, "grad_norms", "F32", &ref->norms) ||
        ref->losses.count != STEPS || ref->norms.count != STEPS) {
        CU_FAIL("the file lacks a result");
        safetensors_close(ref->file);
        return false;
    }
    settings(ref);
    return true;
}

/* The worst of all ranks. */
static distance run(reference *ref, const wf_par_options *options)
{
    const model_test test = {*options, ref->config, compare, ref};
    distance worst = {.named = 0};

    memset(ref->off, 0, sizeof ref->off);
    on_model_ranks(&test);
    for (int i = 0; i < options->tp * options->dp; i++) {
        worst.logits = fmax(worst.logits, ref->off[i].logits);
        worst.gradient = fmax(worst.gradient, ref->off[i].gradient);
        worst.loss = fmax(worst.loss, ref->off[i].loss);
        worst.norm = fmax(worst.norm, ref->off[i].norm);
        worst.named = i && worst.named != ref->off[i].named ? -1 : ref->off[i].named;
    }
    return worst;
}

static void agrees(const char *arch)
{
    /* 3 and 8 ranks leave some without a head (Llama: without keys and values). */
    static const wf_par_options layout[] = {{.tp = 1, .dp = 1},
                                            {.tp = 1, .dp = 1, .exact_off = true},
                                            {.tp = 2, .dp = 2},
                                            {.tp = 3, .dp = 1, .sequence_parallel = true},
                                            {.tp = 4, .dp = 1, .sequence_parallel = true},
                                            {.tp = 8, .dp = 1}};
    reference ref;

    if (!open_reference(&ref, arch))
        return;
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        distance off = run(&ref, &layout[i]);

        CU_ASSERT(off.logits < 1);
        CU_ASSERT(off.gradient < 1);
        CU_ASSERT(off.loss < 1);
        CU_ASSERT(off.norm < 1);
        /* Each with its gradient, beside tokens, targets, logits, losses and norms. */
        CU_ASSERT_EQUAL(2 * off.named + 5, safetensors_count(ref.file));
        printf(
            "\n    tp %d, dp %d%s%s: of what is allowed, logits %.3f, gradients %.3f, losses "
            "%.3f, norms %.3f ",
            layout[i].tp, layout[i].dp, layout[i].sequence_parallel ? ", sequence" : "",
            layout[i].exact_off ? ", exact off" : "", off.logits, off.gradient, off.loss,
            off.norm);
    }
    safetensors_close(ref.file);
}

static void gpt2_agrees(void)
{
    agrees("gpt2");
}

static void llama_agrees(void)
{
    agrees("llama");
}

/* Run once with the settings as they have been changed, and put them back. */
static distance slip(reference *ref)
{
    static const wf_par_options one = {.tp = 1, .dp = 1};
    distance off = run(ref, &one);

    settings(ref);
    return off;
}

/* Mistakes that no curve would show are beyond what is allowed, each in what it touches. */
static void slips_show(void)
{
    reference ref;
    distance off;

    if (!open_reference(&ref, "llama"))
        return;
    ref.config.eps *= 2;
    off = slip(&ref);
    CU_ASSERT(off.logits > 1 && off.gradient > 1);
    ref.config.rope_base *= 1.001;
    off = slip(&ref);
    CU_ASSERT(off.logits > 1 && off.gradient > 1);
    ref.train.optimizer.beta2 += 0.001f;
    off = slip(&ref);
    CU_ASSERT(off.gradient < 1 && off.loss > 1);
    ref.train.optimizer.weight_decay = 0;
    off = slip(&ref);
    CU_ASSERT(off.gradient < 1 && off.loss > 1);
    ref.train.clip = 0;
    off = slip(&ref);
    CU_ASSERT(off.gradient < 1 && off.loss > 1);
    safetensors_close(ref.file);
}

int main(void)
{
    static const wf_test tests[] = {{"GPT-2 as Hugging Face computes it", gpt2_agrees},
                                    {"Llama as Hugging Face computes it", llama_agrees},
                                    {"small slips show", slips_show},
                                    {NULL, NULL}};

    return wf_test_main("reference", tests);
}
