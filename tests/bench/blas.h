/* tests/bench/blas.h - other libraries' products, found at run time; none is needed to
   build. */
#ifndef WF_TESTS_BENCH_BLAS_H
#define WF_TESTS_BENCH_BLAS_H

#include "tests/bench/bench.h"

enum { BENCH_BLAS = 4 };

/* C [m, n] = A [m, k] B [k, n], row by row; a transposed operand lies in memory the other way.
 */
typedef struct bench_product {
    bool a_trans, b_trans;
    bool bf16; /* A and B are: oneDNN's matmul alone multiplies them */
    int64_t m, k, n;
    const void *a, *b;
    float *c;
} bench_product;

typedef struct bench_blas bench_blas;

/* One product that a thread repeats, with what a library wants to prepare for it. B may be
   other memory each time. */
typedef struct bench_blas_call {
    const bench_blas *blas;
    bench_product product;
    void *primitive, *stream, *memory[3];
} bench_blas_call;

struct bench_blas {
    const char *name;
    /* sets the threads of this thread's products from now on */
    void (*set_threads)(int threads);
    bool (*multiply)(bench_blas_call *call);
    void (*close)(bench_blas_call *call); /* NULL: nothing to do */
    /* a product runs on threads of the library's own, which serve one caller at a time */
    bool own_threads;
};

/* Returns the time on the clock of a library's products by so many threads: that of bench_now,
   or where one thread is the library's own, the processor time of all threads but this one. */
double bench_blas_now(const bench_blas *blas, int threads);

/* Those that are here, best kernels chosen; a note says of each what it is or why it is not. */
int bench_blas_load(bench_report *report, bench_blas blas[BENCH_BLAS]);

/* Adds oneDNN's two products (onednn.c): how many were found, 0 or 2. */
int bench_onednn_load(bench_report *report, bench_blas blas[2]);

/* Keeps those of `count` whose small products, in all forms, are the ones of Weft's kernels, to
   the bit since all sums are whole numbers; a note names each of the others. How many are kept
   (blas_check.c). */
int bench_blas_check(bench_report *report, bool bf16, bench_blas *blas, int count);

/* A library of one of several names by comma, or NULL and a note. */
void *bench_library(bench_report *report, const char *title, const char *names);

/* Finds a function, and returns true where it is there; through memory, since C does not
   convert pointers between data and code. */
bool bench_function(void *library, const char *name, void *function);

#endif
