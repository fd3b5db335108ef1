/*
 * tests/bench/blas.c - OpenBLAS and BLIS.
 *
 * Both mistake some processors for older ones, and their environment may ask for one, so each
 * is asked for the kernels of this machine's instructions whatever was set, and the note says
 * which it took: a ratio against others means nothing. What is set has to be set before they
 * are loaded.
 */
#include "tests/bench/blas.h"
#include "tests/clock.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

typedef void cblas_call(int order, int ta, int tb, int m, int n, int k, float alpha,
                        const float *a, int lda, const float *b, int ldb, float beta, float *c,
                        int ldc);

static cblas_call *openblas_sgemm, *blis_sgemm;
static void (*openblas_threads)(int);
static void (*blis_threads)(int64_t);

void *bench_library(bench_report *report, const char *title, const char *names)
{
    char name[64];
    void *library = NULL;

    for (const char *list = names; !library && bench_next_word(&list, name, sizeof name);)
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        bench_note(report, "%s is not here (%s)", title, names);
    return library;
}

bool bench_function(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);

    memcpy(function, &found, sizeof found);
    return found != NULL;
}

double bench_blas_now(const bench_blas *blas, int threads)
{
    if (!blas->own_threads || threads != 1)
        return bench_now(threads);
    return wf_test_clock(CLOCK_PROCESS_CPUTIME_ID) - wf_test_clock(CLOCK_THREAD_CPUTIME_ID);
}

static bool multiply(cblas_call *sgemm, const bench_product *p)
{
    sgemm(ROW_MAJOR, p->a_trans ? TRANS : NO_TRANS, p->b_trans ? TRANS : NO_TRANS, (int)p->m,
          (int)p->n, (int)p->k, 1, p->a, (int)(p->a_trans ? p->m : p->k), p->b,
          (int)(p->b_trans ? p->k : p->n), 0, p->c, (int)p->n);
    return true;
}

static bool multiply_openblas(bench_blas_call *call)
{
    return multiply(openblas_sgemm, &call->product);
}

static bool multiply_blis(bench_blas_call *call)
{
    return multiply(blis_sgemm, &call->product);
}

static void set_blis_threads(int threads)
{
    blis_threads(threads);
}

static bool wide(void)
{
    return strcmp(bench_fma_name(), "AVX-512") == 0;
}

static bool load_openblas(bench_report *report, bench_blas *blas)
{
    const char *want = wide() ? "SkylakeX" : "Haswell";
    char *(*core)(void);
    void *library;

    setenv("OPENBLAS_CORETYPE", want, 1);
    unsetenv("OPENBLAS_L2_SIZE");
    library = bench_library(report, "OpenBLAS", "libopenblas.so.0,libopenblas.so");
    if (!library)
        return false;
    if (!bench_function(library, "openblas_set_num_threads", &openblas_threads) ||
        !bench_function(library, "openblas_get_corename", &core) ||
        !bench_function(library, "cblas_sgemm", &openblas_sgemm)) {
        bench_note(report, "this OpenBLAS has no cblas_sgemm that we can use");
        return false;
    }
    bench_note(report, "OpenBLAS: %s kernels%s", core(),
               strcmp(core(), want) ? ", NOT the ones asked for" : "");
    *blas = (bench_blas){
        .name = "openblas", .set_threads = openblas_threads, .multiply = multiply_openblas};
    return true;
}

/* BLIS ends the process where a build lacks the kernels asked for, so a child tries it. */
static bool blis_has(const char *number, void (*init)(void))
{
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        close(STDERR_FILENO);
        setenv("BLIS_ARCH_TYPE", number, 1);
        init();
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* Ask for kernels by name; their numbers differ between versions. */
static void choose_blis(const char *(*name)(int), void (*init)(void))
{
    const char *want = wide() ? "skx" : "haswell";

    unsetenv("BLIS_ARCH_TYPE");
    for (int i = 0; i < 8; i++) { /* these are among the first of all versions */
        char number[8] = {(char)('0' + i), '\0'};

        if (strcmp(name(i), want) == 0 && blis_has(number, init))
            setenv("BLIS_ARCH_TYPE", number, 1);
    }
    init();
}

static bool load_blis(bench_report *report, bench_blas *blas)
{
    void *library = bench_library(report, "BLIS", "libblis.so.4,libblis.so.5,libblis.so");
    const char *(*name)(int);
    int (*chosen)(void);
    void (*init)(void);

    if (!library)
        return false;
    if (!bench_function(library, "bli_thread_set_num_threads", &blis_threads) ||
        !bench_function(library, "bli_arch_string", &name) ||
        !bench_function(library, "bli_arch_query_id", &chosen) ||
        !bench_function(library, "bli_init", &init) ||
        !bench_function(library, "cblas_sgemm", &blis_sgemm)) {
        bench_note(report, "this BLIS has no cblas_sgemm that we can use");
        return false;
    }
    choose_blis(name, init);
    bench_note(report, "BLIS: %s kernels", name(chosen()));
    *blas = (bench_blas){
        .name = "blis", .set_threads = set_blis_threads, .multiply = multiply_blis};
    return true;
}

int bench_blas_load(bench_report *report, bench_blas blas[BENCH_BLAS])
{
    int count = 0;

    /* Their threads would wait awake for the next product, on cores that whoever has the next
       turn wants; all are faster so. */
    setenv("OMP_WAIT_POLICY", "passive", 0);
    setenv("OPENBLAS_THREAD_TIMEOUT", "4", 0); /* 2^4 cycles */
    count += load_openblas(report, &blas[count]);
    count += bench_onednn_load(report, &blas[count]);
    count += load_blis(report, &blas[count]);
    return bench_blas_check(report, false, blas, count);
}
