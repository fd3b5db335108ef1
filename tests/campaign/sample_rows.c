/*
 * tests/campaign/sample_rows.c - which tokens may be drawn of rows of logits, and their
 * probabilities, for scripts/peers/generation.py: sample_rows SIZE TEMPERATURE TOP_K TOP_P
 * MIN_P REPETITION reads rows of SIZE floats, each with 8 int32 before it that are a text's
 * ids, from stdin, and writes a double for each: 0 where it is not kept.
 */
#include "parallel/generate/sampling.h"
#include "core/numerics/math.h"
#include <stdio.h>
#include <stdlib.h>

enum { TEXT = 8 };

int main(int argc, char **argv)
{
    int64_t size = argc == 7 ? strtoll(argv[1], NULL, 10) : 0;
    wf_gen_sampling s = {.presence_penalty = 0};
    wf_gen_sampling_candidate *room = malloc((size_t)size * sizeof *room);
    float *logits = malloc((size_t)size * sizeof *logits);
    double *p = malloc((size_t)size * sizeof *p);
    int32_t ids[TEXT];

    if (size < 1 || !room || !logits || !p) {
        fprintf(stderr, "usage: sample_rows SIZE TEMPERATURE TOP_K TOP_P MIN_P REPETITION\n");
        return 2;
    }
    s.temperature = strtod(argv[2], NULL);
    s.top_k = strtoll(argv[3], NULL, 10);
    s.top_p = strtod(argv[4], NULL);
    s.min_p = strtod(argv[5], NULL);
    s.repetition_penalty = strtod(argv[6], NULL);
    while (fread(ids, sizeof *ids, TEXT, stdin) == TEXT &&
           fread(logits, sizeof *logits, (size_t)size, stdin) == (size_t)size) {
        const wf_gen_sampling_text text = {ids, TEXT, TEXT};
        int64_t n = wf_gen_sampling_filter(&s, &text, logits, size, room);
        double sum = 0;

        for (int64_t i = 0; i < size; i++)
            p[i] = 0;
        for (int64_t i = 0; i < n; i++)
            sum += p[room[i].id] = wf_expd(room[i].score - room[0].score);
        for (int64_t i = 0; i < n; i++)
            p[room[i].id] /= sum;
        fwrite(p, sizeof *p, (size_t)size, stdout);
    }
    free(room);
    free(logits);
    free(p);
    return fflush(stdout) == 0 ? 0 : 3;
}
