/*
 * tests/bench/onednn.c - oneDNN's two products: sgemm, and the matmul primitive, of which
 * sometimes one and sometimes the other is faster. A primitive is made once and runs many
 * times, on operands that lie plainly, row by row or transposed, as in training with PyTorch:
 * an order of the library's own choice would have to be made anew for weights that change with
 * every step.
 *
 * Version 3, on OpenMP, on TBB or on SYCL, whose CPU is a driver of OpenCL with threads of its
 * own. Of these runtimes each says in its own way how many threads work.
 */
#include "tests/bench/blas.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CPU = 1, IN_ORDER = 1 };                 /* dnnl_cpu, dnnl_stream_default_flags */
enum { BF16 = 2, F32 = 3 };                     /* dnnl_bf16, dnnl_f32 */
enum { ARG_A = 1, ARG_B = 33, ARG_C = 17 };     /* DNNL_ARG_SRC, _WEIGHTS, _DST */
enum { ON_OMP = 2, ON_TBB = 4, ON_SYCL = 512 }; /* DNNL_RUNTIME_OMP, _TBB, _SYCL */

typedef struct argument {
    int which;
    void *memory;
} argument;

/* dnnl_version_t */
typedef struct version {
    int major, minor, patch;
    const char *hash;
    unsigned cpu_runtime, gpu_runtime;
} version;

/* Every function returns 0 for success, the dims of the library are int64_t. */
static struct onednn {
    void *engine;
    const version *(*version)(void);
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
    int (*memory_set)(void *memory, void *data);
    int (*memory_destroy)(void *memory);
    int (*execute)(void *primitive, void *stream, int count, argument *arguments);
    int (*memory_desc)(void **description, int ndims, const int64_t *dims, int type,
                       const int64_t *strides);
    int (*memory_desc_destroy)(void *description);
    int (*matmul_desc)(void **description, void *engine, void *a, void *b, void *bias, void *c,
                       void *attr);
} dnn;

static void (*omp_threads)(int);

static void set_omp_threads(int threads)
{
    omp_threads(threads);
}

/* TBB's class global_control: the most threads that work at once in all of the process. */
typedef struct tbb_control {
    size_t most;
    intptr_t reserved;
    int parameter; /* 0: max_allowed_parallelism */
} tbb_control;

static struct tbb {
    pthread_mutex_t lock;
    tbb_control control; /* most 0: there is none yet */
    void (*create)(tbb_control *control);
    void (*destroy)(tbb_control *control);
} tbb = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void set_tbb_threads(int threads)
{
    pthread_mutex_lock(&tbb.lock);
    if (tbb.control.most != (size_t)threads) {
        if (tbb.control.most > 0)
            tbb.destroy(&tbb.control);
        tbb.control = (tbb_control){.most = (size_t)threads};
        tbb.create(&tbb.control);
    }
    pthread_mutex_unlock(&tbb.lock);
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

static bool describe(bench_blas_call *call, sides *s, void **description)
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
    bool good = describe(call, &s, &description);

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
    if (dnn.memory_set(call->memory[1], (void *)call->product.b) != 0)
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

/* Finds what says how many threads work, in what the library was linked with; NULL: there is
   none, or the runtime is not known here. */
static void (*find_threads(void *library))(int)
{
    unsigned runtime = dnn.version()->cpu_runtime;

    if (runtime == ON_OMP)
        return bench_function(library, "omp_set_num_threads", &omp_threads) ? set_omp_threads
                                                                            : NULL;
    if ((runtime == ON_TBB || runtime == ON_SYCL) &&
        bench_function(library, "_ZN3tbb6detail2r16createERNS0_2d114global_controlE",
                       &tbb.create) &&
        bench_function(library, "_ZN3tbb6detail2r17destroyERNS0_2d114global_controlE",
                       &tbb.destroy))
        return set_tbb_threads;
    return NULL;
}

static bool find_functions(void *library)
{
    return bench_function(library, "dnnl_sgemm", &dnn.sgemm) &&
           bench_function(library, "dnnl_engine_create", &dnn.engine_create) &&
           bench_function(library, "dnnl_stream_create", &dnn.stream_create) &&
           bench_function(library, "dnnl_stream_wait", &dnn.stream_wait) &&
           bench_function(library, "dnnl_stream_destroy", &dnn.stream_destroy) &&
           bench_function(library, "dnnl_primitive_create", &dnn.primitive_create) &&
           bench_function(library, "dnnl_primitive_destroy", &dnn.primitive_destroy) &&
           bench_function(library, "dnnl_primitive_desc_destroy",
                          &dnn.primitive_desc_destroy) &&
           bench_function(library, "dnnl_memory_create", &dnn.memory_create) &&
           bench_function(library, "dnnl_memory_set_data_handle", &dnn.memory_set) &&
           bench_function(library, "dnnl_memory_destroy", &dnn.memory_destroy) &&
           bench_function(library, "dnnl_primitive_execute", &dnn.execute) &&
           bench_function(library, "dnnl_memory_desc_create_with_strides", &dnn.memory_desc) &&
           bench_function(library, "dnnl_memory_desc_destroy", &dnn.memory_desc_destroy) &&
           bench_function(library, "dnnl_matmul_primitive_desc_create", &dnn.matmul_desc);
}

/* Names the driver of OpenCL that was installed beside the library, unless the environment
   names one: no list of the system's has it. */
static void name_driver(void *library)
{
    char folder[PATH_MAX], path[PATH_MAX + 32];

    if (dlinfo(library, RTLD_DI_ORIGIN, folder) != 0)
        return;
    snprintf(path, sizeof path, "%s/libintelocl.so", folder);
    if (access(path, R_OK) == 0)
        setenv("OCL_ICD_FILENAMES", path, 0);
}

int bench_onednn_load(bench_report *report, bench_blas blas[2])
{
    void (*set_threads)(int);
    void *library;
    bool sycl;

    /* Threads that spin after their work would slow down whoever comes next. */
    setenv("OMP_WAIT_POLICY", "passive", 1);
    setenv("ONEDNN_VERBOSE", "none", 0); /* its errors would stand among the rows */
    library = bench_library(report, "oneDNN", "libdnnl.so.3,libdnnl.so");
    if (!library)
        return 0;
    if (!bench_function(library, "dnnl_version", &dnn.version) || dnn.version()->major != 3 ||
        !find_functions(library)) {
        bench_note(report, "this oneDNN lacks the functions of version 3");
        return 0;
    }
    set_threads = find_threads(library);
    if (!set_threads) {
        bench_note(report, "this oneDNN is on none of OpenMP, TBB and SYCL");
        return 0;
    }
    sycl = dnn.version()->cpu_runtime == ON_SYCL;
    if (sycl)
        name_driver(library);
    if (dnn.engine_create(&dnn.engine, CPU, 0) != 0) {
        bench_note(report, "this oneDNN finds no CPU%s",
                   sycl ? ": OCL_ICD_FILENAMES has to name OpenCL's driver, libintelocl.so"
                        : "");
        return 0;
    }
    bench_note(report, "oneDNN: version %d.%d.%d on %s", dnn.version()->major,
               dnn.version()->minor, dnn.version()->patch,
               sycl                             ? "SYCL"
               : set_threads == set_omp_threads ? "OpenMP"
                                                : "TBB");
    blas[0] =
        (bench_blas){.name = "onednn", .set_threads = set_threads, .multiply = multiply_sgemm};
    blas[1] = (bench_blas){.name = "onednn_matmul",
                           .set_threads = set_threads,
                           .multiply = multiply_matmul,
                           .close = close_matmul,
                           .own_threads = sycl};
    return 2;
}
