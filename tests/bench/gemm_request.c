/* tests/bench/gemm_request.c - what a command line asks of bench gemm: shapes, settings and
 * forms. */
#include "tests/bench/gemm.h"
#include <stdio.h>
#include <string.h>

int bench_gemm_shapes(const bench_options *o, bench_shape shapes[BENCH_SHAPES], wf_error *error)
{
    static const int64_t rows[] = {256, 1024, 4096};
    static const int64_t sides[][2] = {
        {768, 768}, {768, 3072}, {3072, 768}, {256, 1024}, {768, 50304}};
    const char *list = o->shapes ? o->shapes : o->quick ? "64x96x80" : "";
    static const bench_shape_rule rule = {
        .numbers = 3, .most = {1 << 20, 1 << 20, 1 << 20}, .text = "MxKxN, like 1024x768x3072"};
    int64_t read[BENCH_SHAPES][BENCH_SHAPE];
    int count = bench_shapes(list, &rule, read, error);

    for (int i = 0; i < count; i++)
        shapes[i] = (bench_shape){read[i][0], read[i][1], read[i][2]};
    for (int i = 0; count < 15 && !o->shapes && !o->quick; i++, count++)
        shapes[count] = (bench_shape){rows[i % 3], sides[i / 3][0], sides[i / 3][1]};
    return count;
}

int bench_gemm_settings(const bench_options *o, bench_setting settings[BENCH_SETTINGS])
{
    int cores = o->cores < BENCH_CALLERS ? o->cores : BENCH_CALLERS, count = 0;

    if (o->threads)
        settings[count++] = (bench_setting){.threads = (int)o->threads, .callers = 1};
    else
        settings[count++] = (bench_setting){.threads = 1, .callers = 1};
    if (!o->threads && cores > 1) {
        settings[count++] = (bench_setting){.threads = cores, .callers = 1};
        settings[count++] = (bench_setting){.threads = 1, .callers = cores};
    }
    for (int i = 0; i < count; i++) {
        bench_setting *s = &settings[i];
        int n = s->callers > 1 ? s->callers : s->threads;

        snprintf(s->name, sizeof s->name, "%d %s%s", n, s->callers > 1 ? "rank" : "thread",
                 n > 1 ? "s" : "");
    }
    return count;
}

bool bench_gemm_forms_are_good(const bench_options *o, wf_error *error)
{
    const char *list = o->forms ? o->forms : "";
    char form[8];

    while (bench_next_word(&list, form, sizeof form)) {
        if (strspn(form, "NT") != 2 || form[2])
            wf_error_set(error, WF_EINVAL, "form %s is none of NN, NT, TN and TT", form);
    }
    return error->code == WF_OK;
}
