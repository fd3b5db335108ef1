/*
 * tests/bench/ceiling.c - the products of a training step, by the libraries that are here: what
 * a step could reach at best if nothing but products took time. A busy machine slows products
 * and chains of multiply-adds unlike, so this limit says more there than their peak.
 */
#include "tests/bench/blas.h"
#include "tests/bench/models.h"
#include <math.h>
#include <stdlib.h>

enum { LAYER_PRODUCTS = 4, DIRECTIONS = 3, PRODUCTS = (LAYER_PRODUCTS + 1) * DIRECTIONS };

/* A library with so many threads. */
typedef struct performer {
    bench_ceiling *ceiling;
    int blas, threads;
    bench_blas_call call[PRODUCTS];
} performer;

struct bench_ceiling {
    bench_blas blas[BENCH_BLAS];
    int n_blas, n_performers;
    bench_product product[PRODUCTS];
    int64_t times[PRODUCTS]; /* in a step */
    float *memory[3];        /* A, B and C, as long as the largest shape needs */
    performer performer[BENCH_ENTRANTS];
};

/* y = x W^T, dx = dy W and dW = dy^T x of a layer from k to n. */
static void add_layer(bench_product *p, int64_t tokens, int64_t k, int64_t n)
{
    p[0] = (bench_product){.b_trans = true, .m = tokens, .k = k, .n = n};
    p[1] = (bench_product){.m = tokens, .k = n, .n = k};
    p[2] = (bench_product){.a_trans = true, .m = n, .k = tokens, .n = k};
}

static void list_products(bench_ceiling *c, const bench_model *model)
{
    const wf_nn_gpt_config *g = &model->config;
    const int64_t sides[LAYER_PRODUCTS + 1][2] = {{g->width, 3 * g->width},
                                                  {g->width, g->width},
                                                  {g->width, g->ffn},
                                                  {g->ffn, g->width},
                                                  {g->width, g->vocabulary}};

    for (int i = 0; i <= LAYER_PRODUCTS; i++) {
        add_layer(c->product + i * DIRECTIONS, model->batch * model->seq, sides[i][0],
                  sides[i][1]);
        for (int d = 0; d < DIRECTIONS; d++)
            c->times[i * DIRECTIONS + d] = i < LAYER_PRODUCTS ? g->layers : 1;
    }
}

static wf_status find_memory(bench_ceiling *c, wf_error *error)
{
    int64_t most[3] = {0, 0, 0};

    for (int i = 0; i < PRODUCTS; i++) {
        const bench_product *p = &c->product[i];
        const int64_t floats[3] = {p->m * p->k, p->k * p->n, p->m * p->n};

        for (int j = 0; j < 3; j++)
            most[j] = floats[j] > most[j] ? floats[j] : most[j];
    }
    for (int j = 0; j < 3; j++) {
        c->memory[j] = bench_memory_new((size_t)most[j] * sizeof(float), error);
        if (!c->memory[j])
            return error->code;
    }
    for (int i = 0; i < PRODUCTS; i++) {
        c->product[i].a = c->memory[0];
        c->product[i].b = c->memory[1];
        c->product[i].c = c->memory[2];
    }
    return WF_OK;
}

bench_ceiling *bench_ceiling_open(const bench_model *model, bench_report *report,
                                  wf_error *error)
{
    bench_ceiling *c = calloc(1, sizeof *c);

    if (!c) {
        wf_error_set(error, WF_ENOMEM, "no memory for a list of products");
        return NULL;
    }
    c->n_blas = bench_blas_load(report, c->blas);
    list_products(c, model);
    if (c->n_blas == 0)
        wf_error_set(error, WF_EINVAL, "--libraries needs one of OpenBLAS, oneDNN and BLIS");
    else
        find_memory(c, error);
    if (error->code == WF_OK)
        return c;
    bench_ceiling_close(c);
    return NULL;
}

void bench_ceiling_close(bench_ceiling *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_performers; i++) {
        const bench_blas *blas = &c->blas[c->performer[i].blas];

        for (int j = 0; j < PRODUCTS && blas->close; j++)
            blas->close(&c->performer[i].call[j]);
    }
    for (int j = 0; j < 3; j++)
        free(c->memory[j]);
    free(c);
}

/* Each product once, counted as often as it is in a step. */
static double run(void *arg, int64_t repeat)
{
    performer *p = arg;
    bench_ceiling *c = p->ceiling;
    const bench_blas *blas = &c->blas[p->blas];
    double seconds = 0;

    blas->set_threads(p->threads);
    for (int64_t r = 0; r < repeat; r++) {
        for (int i = 0; i < PRODUCTS; i++) {
            double start = bench_blas_now(blas, p->threads);

            if (!blas->multiply(&p->call[i]))
                return NAN;
            seconds += (double)c->times[i] * (bench_blas_now(blas, p->threads) - start);
        }
    }
    return seconds;
}

int bench_ceiling_entrants(bench_ceiling *c, int threads, bench_entrant *entrant)
{
    for (int i = 0; i < c->n_blas; i++) {
        performer *p = &c->performer[c->n_performers++];

        *p = (performer){.ceiling = c, .blas = i, .threads = threads};
        for (int j = 0; j < PRODUCTS; j++)
            p->call[j] = (bench_blas_call){.blas = &c->blas[i], .product = c->product[j]};
        entrant[i] = (bench_entrant){.run = run, .arg = p};
    }
    return c->n_blas;
}

double bench_ceiling_gflops(const bench_ceiling *c, const bench_entrant *entrant)
{
    double flops = 0, best = INFINITY;

    for (int i = 0; i < PRODUCTS; i++) {
        const bench_product *p = &c->product[i];

        flops += 2.0 * (double)c->times[i] * (double)(p->m * p->k) * (double)p->n;
    }
    for (int i = 0; i < c->n_blas; i++)
        best = fmin(best, entrant[i].seconds);
    return flops * 1e-9 / best;
}
