/*
 * kernels/cpu/rope_table.c - the last few tables of cosines and sines, for all ranks of the
 * process: queries and keys, all blocks, both passes and every rank want the same one, and a
 * sine costs as much as sixteen elements that are rotated by it.
 */
#include "kernels/cpu/rope_table_internal.h"
#include "core/numerics/math.h"
#include "kernels/attention_internal.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 4 };

typedef struct table {
    wf_rope_table seen;
    struct table *next; /* after it those that were wanted longer ago */
    int users;
    wf_rope_angles angles;
    double angle[]; /* [half], and then the floats */
} table;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static table *tables; /* under the lock */

void wf_rope_fill(const wf_rope_angles *angles, int64_t position, float *cosine, float *sine)
{
    double by = angles->attention;

    if (angles->scaling.kind == WF_ROPE_TEMPERATURE)
        by *= 1 + angles->scaling.factor * wf_logd(wf_rope_warmth(&angles->scaling, position));
    for (int64_t i = 0; i < angles->half; i++) {
        double s, c;

        wf_sincos((double)position * angles->angle[i], &s, &c);
        cosine[i] = (float)(c * by);
        sine[i] = (float)(s * by);
    }
}

/* Returns true where positions have the same factor beside `attention`. */
static bool same_warmth(const wf_rope_scaling *a, const wf_rope_scaling *b)
{
    bool one = a->kind == WF_ROPE_TEMPERATURE, other = b->kind == WF_ROPE_TEMPERATURE;

    return one == other &&
           (!one || (a->factor == b->factor && a->original_positions == b->original_positions));
}

static bool same(const wf_rope_angles *a, const wf_rope_angles *b)
{
    return same_warmth(&a->scaling, &b->scaling) && a->first == b->first &&
           a->tokens == b->tokens && a->half == b->half && a->attention == b->attention &&
           memcmp(a->angle, b->angle, (size_t)a->half * sizeof *a->angle) == 0;
}

static table *make(const wf_rope_angles *angles)
{
    size_t half = (size_t)angles->half, n = (size_t)angles->tokens * half;
    table *t = malloc(sizeof *t + half * sizeof(double) + 2 * n * sizeof(float));
    float *cosine, *sine;

    if (!t)
        return NULL;
    memcpy(t->angle, angles->angle, half * sizeof(double));
    cosine = (float *)(t->angle + half);
    sine = cosine + n;
    t->users = 0;
    t->angles = *angles;
    t->angles.angle = t->angle;
    t->seen = (wf_rope_table){.cosine = cosine, .sine = sine};
    for (int64_t i = 0; i < angles->tokens; i++)
        wf_rope_fill(angles, angles->first + i, cosine + i * angles->half,
                     sine + i * angles->half);
    return t;
}

/* Frees tables without a user beyond the newest few. */
static void trim(void)
{
    table **at = &tables;

    for (int i = 0; *at; i++) {
        table *t = *at;

        if (i < KEPT || t->users) {
            at = &t->next;
        } else {
            *at = t->next;
            free(t);
        }
    }
}

const wf_rope_table *wf_rope_table_take(const wf_rope_angles *angles)
{
    table **at, *t;

    pthread_mutex_lock(&lock);
    for (at = &tables; *at && !same(&(*at)->angles, angles); at = &(*at)->next)
        ;
    t = *at;
    if (t)
        *at = t->next;
    else
        t = make(angles); /* other threads that need it wait for it here */
    if (t) {
        t->users++;
        t->next = tables;
        tables = t;
        trim();
    }
    pthread_mutex_unlock(&lock);
    return t ? &t->seen : NULL;
}

void wf_rope_table_give(const wf_rope_table *seen)
{
    table *t = (table *)(uintptr_t)seen; /* it begins with what is seen */

    pthread_mutex_lock(&lock);
    t->users--;
    pthread_mutex_unlock(&lock);
}
