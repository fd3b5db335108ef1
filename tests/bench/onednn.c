/*
 * tests/bench/onednn.c - oneDNN's two products: sgemm, and the matmul primitive, of which
 * sometimes one and sometimes the other is faster. Versions 2 and 3 name the parts of a
 * primitive differently; what version 2 keeps in structs of its own is held in space that is
 * large enough here.
 */
#include "tests/bench/blas.h"
#include <dlfcn.h>
#include <stdlib.h>

enum { CPU = 1, IN_ORDER = 1 };             /* dnnl_cpu, dnnl_stream_default_flags */
enum { BF16 = 2, F32 = 3 };                 /* dnnl_bf16, dnnl_f32 */
enum { ARG_A = 1, ARG_B = 33, ARG_C = 17 }; /* DNNL_ARG_SRC, _WEIGHTS, _DST */
enum { LARGE = 1 << 14 };

typedef struct argument {
    int which;
    void *memory;
} argument;

/* Every function returns 0 for success, the dims of the library are int64_t. */
static struct onednn {
    int version;
    void *engine;
    int (*sgemm)(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                 int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
    int (*engine_create)(void **engine, int kind, size_t index);
    int (*stream_create)(void **stream, void *engine, unsigned flags);
    int (*stream_wait)(void *stream);
    int (*stream_destroy)(void *stream);
    int (*primitive_create)(void **primitive, void *description);
    int (*primitive_desc_destroy)(void *description);
    int (*primitive_destroy)(void *primitive);
    int (*memory_create)(void **memory, void *description, void *engine, void *data);
    int (*memory_destroy)(void *memory);
    int (*execute)(void *primitive, void *stream, int count, argument *arguments);
    /* version 2 */
    int (*memory_init)(void *description, int ndims, const int64_t *dims, int type,
                       const int64_t *strides);
    int (*matmul_init)(void *matmul, void *a, void *b, void *bias, void *c);
    int (*desc_create)(void **description, void *matmul, void *attr, void *engine, void *hint);
    /* version 3 */
    int (*memory_desc)(void **description, int ndims, const int64_t *dims, int type,
                       const int64_t *strides);
    int (*memory_desc_destroy)(void *description);
    int (*matmul_desc)(void **description, void *engine, void *a, void *b, void *bias, void *c,
                       void *attr);
} dnn;

static void (*omp_threads)(int);

static void set_threads(int threads)
{
    omp_threads(threads);
}

static bool multiply_sgemm(bench_blas_call *call)
{
    const bench_product *p = &call->product;

    return dnn.sgemm(p->a_trans ? 'T' : 'N', p->b_trans ? 'T' : 'N', p->m, p->n, p->k, 1, p->a,
                     p->a_trans ? p->m : p->k, p->b, p->b_trans ? p->k : p->n, 0, p->c,
                     p->n) == 0;
}

/* The three matrices as the library sees them: dims, strides and types of A, B and C. */
typedef struct sides {
    int64_t dims[3][2], strides[3][2];
    int type[3];
    void *data[3];
} sides;

static sides sides_of(const bench_product *p)
{
    return (sides){.dims = {{p->m, p->k}, {p->k, p->n}, {p->m, p->n}},
                   .strides = {{p->a_trans ? 1 : p->k, p->a_trans ? p->m : 1},
                               {p->b_trans ? 1 : p->n, p->b_trans ? p->k : 1},
                               {p->n, 1}},
                   .type = {p->bf16 ? BF16 : F32, p->bf16 ? BF16 : F32, F32},
                   .data = {(void *)p->a, (void *)p->b, p->c}};
}

static bool describe_2(bench_blas_call *call, sides *s, void **description)
{
    char *space = calloc(4, LARGE), *side[3] = {space, space + LARGE, space + 2 * LARGE};
    char *matmul = space + 3 * LARGE;
    bool good = space != NULL;

    for (int i = 0; good && i < 3; i++)
        good = dnn.memory_init(side[i], 2, s->dims[i], s->type[i], s->strides[i]) == 0 &&
               dnn.memory_create(&call->memory[i], side[i], dnn.engine, s->data[i]) == 0;
    good = good && dnn.matmul_init(matmul, side[0], side[1], NULL, side[2]) == 0 &&
           dnn.desc_create(description, matmul, NULL, dnn.engine, NULL) == 0;
    free(space);
    return good;
}

static bool describe_3(bench_blas_call *call, sides *s, void **description)
{
    void *side[3] = {NULL, NULL, NULL};
    bool good = true;

    for (int i = 0; good && i < 3; i++)
        good = dnn.memory_desc(&side[i], 2, s->dims[i], s->type[i], s->strides[i]) == 0 &&
               dnn.memory_create(&call->memory[i], side[i], dnn.engine, s->data[i]) == 0;
    good = good &&
           dnn.matmul_desc(description, dnn.engine, side[0], side[1], NULL, side[2], NULL) == 0;
    for (int i = 0; i < 3; i++) {
        if (side[i])
            dnn.memory_desc_destroy(side[i]);
    }
    return good;
}

/* The primitive is made by the thread that runs it: it remembers how many threads it may use.
 */
static bool prepare(bench_blas_call *call)
{
    sides s = sides_of(&call->product);
    void *description = NULL;
    bool good = dnn.version == 2 ? describe_2(call, &s, &description)
                                 : describe_3(call, &s, &description);

    good = good && dnn.primitive_create(&call->primitive, description) == 0 &&
           dnn.stream_create(&call->stream, dnn.engine, IN_ORDER) == 0;
    if (description)
        dnn.primitive_desc_destroy(description);
    return good;
}

static bool multiply_matmul(bench_blas_call *call)
{
    if (!call->stream && !prepare(call))
        return false;
    return dnn.execute(call->primitive, call->stream, 3,
                       (argument[]){{ARG_A, call->memory[0]},
                                    {ARG_B, call->memory[1]},
                                    {ARG_C, call->memory[2]}}) == 0 &&
           dnn.stream_wait(call->stream) == 0;
}

static void close_matmul(bench_blas_call *call)
{
    if (call->stream)
        dnn.stream_destroy(call->stream);
    if (call->primitive)
        dnn.primitive_destroy(call->primitive);
    for (int i = 0; i < 3; i++) {
        if (call->memory[i])
            dnn.memory_destroy(call->memory[i]);
    }
}

static bool find_functions(void *library)
{
    bool all =
        bench_function(library, "dnnl_sgemm", &dnn.sgemm) &&
        bench_function(library, "dnnl_engine_create", &dnn.engine_create) &&
        bench_function(library, "dnnl_stream_create", &dnn.stream_create) &&
        bench_function(library, "dnnl_stream_wait", &dnn.stream_wait) &&
        bench_function(library, "dnnl_stream_destroy", &dnn.stream_destroy) &&
        bench_function(library, "dnnl_primitive_create", &dnn.primitive_create) &&
        bench_function(library, "dnnl_primitive_destroy", &dnn.primitive_destroy) &&
        bench_function(library, "dnnl_primitive_desc_destroy", &dnn.primitive_desc_destroy) &&
        bench_function(library, "dnnl_memory_create", &dnn.memory_create) &&
        bench_function(library, "dnnl_memory_destroy", &dnn.memory_destroy) &&
        bench_function(library, "dnnl_primitive_execute", &dnn.execute);

    if (dnn.version == 2)
        return all &&
               bench_function(library, "dnnl_memory_desc_init_by_strides", &dnn.memory_init) &&
               bench_function(library, "dnnl_matmul_desc_init", &dnn.matmul_init) &&
               bench_function(library, "dnnl_primitive_desc_create", &dnn.desc_create);
    return all && dnn.version == 3 &&
           bench_function(library, "dnnl_memory_desc_create_with_strides", &dnn.memory_desc) &&
           bench_function(library, "dnnl_memory_desc_destroy", &dnn.memory_desc_destroy) &&
           bench_function(library, "dnnl_matmul_primitive_desc_create", &dnn.matmul_desc);
}

int bench_onednn_load(bench_report *report, bench_blas blas[2])
{
    typedef struct version {
        int major, minor, patch;
    } version;
    const version *(*get_version)(void);
    void *library, *omp;

    /* Threads that spin after their work would slow down whoever comes next. */
    setenv("OMP_WAIT_POLICY", "passive", 1);
    library = bench_library(report, "oneDNN", "libdnnl.so.3,libdnnl.so.2,libdnnl.so");
    if (!library)
        return 0;
    omp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!omp || !bench_function(omp, "omp_set_num_threads", &omp_threads) ||
        !bench_function(library, "dnnl_version", &get_version)) {
        bench_note(report, "this oneDNN is not one over GNU OpenMP");
        return 0;
    }
    dnn.version = get_version()->major;
    if (!find_functions(library) || dnn.engine_create(&dnn.engine, CPU, 0) != 0) {
        bench_note(report, "this oneDNN lacks the functions of versions 2 and 3");
        return 0;
    }
    bench_note(report, "oneDNN: version %d.%d.%d", get_version()->major, get_version()->minor,
               get_version()->patch);
    blas[0] = (bench_blas){"onednn", set_threads, multiply_sgemm, NULL};
    blas[1] = (bench_blas){"onednn_matmul", set_threads, multiply_matmul, close_matmul};
    return 2;
}
