/*
 * tests/mesh/comm_buffers.h - what a rank gives to a collective of several buffers: poisoned
 * memory, sizes from nothing to many, uneven and empty parts.
 */
#ifndef WF_TESTS_MESH_COMM_BUFFERS_H
#define WF_TESTS_MESH_COMM_BUFFERS_H

#include "tests/mesh/ranks.h"

enum { N_BUFFERS = 6, MOST = 9001 };

static const int64_t counts[N_BUFFERS] = {0, 1, 5, 17, 1000, MOST};

/* One rank's buffers of a collective, each of `most` floats, poisoned. */
typedef struct buffers {
    wf_comm_buffer buffer[N_BUFFERS];
    float *in[N_BUFFERS], *out[N_BUFFERS];
    int64_t *cuts, *out_cuts;
} buffers;

static inline void open_buffers(buffers *s, int64_t most, int size)
{
    size_t floats = (size_t)most * N_BUFFERS + 1;
    float *memory = malloc(2 * floats * sizeof *memory);

    memset(memory, 0xa5, 2 * floats * sizeof *memory);
    for (int64_t b = 0; b < N_BUFFERS; b++) {
        s->in[b] = memory + b * most;
        s->out[b] = memory + (int64_t)floats + b * most;
    }
    s->cuts = malloc(2 * N_BUFFERS * (size_t)(size + 1) * sizeof *s->cuts);
    s->out_cuts = s->cuts + N_BUFFERS * (size + 1);
    for (int b = 0; b < N_BUFFERS; b++)
        s->buffer[b] = (wf_comm_buffer){.in = s->in[b],
                                        .out = s->out[b],
                                        .count = counts[b],
                                        .cuts = s->cuts + b * (size + 1),
                                        .out_cuts = s->out_cuts + b * (size + 1)};
}

static inline void close_buffers(buffers *s)
{
    free(s->in[0]);
    free(s->cuts);
}

static inline wf_collective all_of(const buffers *s, wf_collective_kind kind)
{
    return (wf_collective){
        .kind = kind, .n_buffers = N_BUFFERS, .buffers = s->buffer, .device = test_device()};
}

/* Uneven cuts with empty parts: member i has (i + b) % 3 shares, the last one what is left. */
static inline void cut(int64_t *cuts, int size, int64_t count, int b)
{
    int64_t share = count / (2 * size);

    cuts[0] = 0;
    for (int i = 0; i < size; i++)
        cuts[i + 1] = i + 1 == size ? count : cuts[i] + share * ((i + b) % 3);
}

#endif
