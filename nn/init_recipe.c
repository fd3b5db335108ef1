/* nn/init_recipe.c - recording and replaying what parameters start from. */
#include "nn/init_recipe.h"
#include "core/numerics/bits.h"
#include "core/numerics/digest.h"
#include "nn/parameter.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct wf_nn_step step;

static wf_status apply_fill(wf_tensor *t, const float *arg, uint64_t stream)
{
    (void)stream;
    return wf_init_fill(t, arg[0]);
}

static wf_status apply_normal(wf_tensor *t, const float *arg, uint64_t stream)
{
    return wf_init_normal(t, arg[0], arg[1], stream);
}

static wf_status apply_uniform(wf_tensor *t, const float *arg, uint64_t stream)
{
    return wf_init_uniform(t, arg[0], arg[1], stream);
}

static wf_status apply_truncated(wf_tensor *t, const float *arg, uint64_t stream)
{
    return wf_init_truncated(t, arg[0], arg[1], arg[2], arg[3], stream);
}

static wf_status apply_scale(wf_tensor *t, const float *arg, uint64_t stream)
{
    (void)stream;
    return wf_init_scale(t, arg[0]);
}

static const wf_nn_init_op fill = {"fill", 1, .apply = apply_fill};
static const wf_nn_init_op normal = {"normal", 2, .apply = apply_normal};
static const wf_nn_init_op uniform = {"uniform", 2, .apply = apply_uniform};
static const wf_nn_init_op truncated = {"truncated_normal", 4, .apply = apply_truncated};
static const wf_nn_init_op scale = {"scale", 1, true, .apply = apply_scale};

/* Names in use: ours, then others' in the order of their first use, by any thread. */
static const wf_nn_init_op *const ours[] = {&fill, &normal, &uniform, &truncated, &scale};
enum { OURS = sizeof ours / sizeof *ours, OTHERS = 128 };
static _Atomic(const wf_nn_init_op *) others[OTHERS];

/* Returns the op that has the name of this one: itself, if it is the first to have it; NULL:
   full. */
static const wf_nn_init_op *owner_of_name(const wf_nn_init_op *op)
{
    for (int i = 0; i < OURS; i++)
        if (strcmp(ours[i]->name, op->name) == 0)
            return ours[i];
    for (int i = 0; i < OTHERS; i++) {
        const wf_nn_init_op *known = NULL;

        if (atomic_compare_exchange_strong(&others[i], &known, op))
            return op;
        if (strcmp(known->name, op->name) == 0)
            return known;
    }
    return NULL;
}

static wf_status check_op(wf_context *ctx, const wf_nn_init_op *op)
{
    int ways = (op->elements != NULL) + (op->whole != NULL) + (op->apply != NULL);
    const wf_nn_init_op *owner;

    if (!op->name || ways != 1 || op->args < 0 || op->args > WF_INIT_ARGS)
        return wf_fail(
            ctx, WF_EINVAL,
            "initialisation %s has %d functions and %d numbers: it needs a name, one "
            "of elements, whole and apply, and 0 to %d numbers",
            op->name ? op->name : "(no name)", ways, op->args, WF_INIT_ARGS);
    if (op->whole && op->modifies)
        return wf_fail(ctx, WF_EINVAL,
                       "initialisation %s makes the whole tensor, so it cannot modify what was "
                       "there: let it set everything, and scale afterwards",
                       op->name);
    owner = owner_of_name(op);
    if (!owner)
        return wf_fail(
            ctx, WF_EINVAL,
            "initialisation %s: there are %d of others' already; give the numbers as "
            "arguments of one op",
            op->name, OTHERS);
    if (owner != op)
        return wf_fail(ctx, WF_EINVAL,
                       "another initialisation is called %s: recipes are printed and hashed by "
                       "name, so give this one a name of its own",
                       op->name);
    return WF_OK;
}

static const char *name_of(const wf_nn_parameter *p)
{
    return p->path[0] ? p->path : "(not named yet)";
}

/* Returns true where something can be recorded: p was made, and is still fake. */
static bool open_for(const wf_nn_parameter *p)
{
    if (!p || !p->tensor)
        return false;
    if (wf_tensor_is_fake(p->tensor))
        return true;
    wf_fail(p->tensor->ctx, WF_EINVAL,
            "parameter %s is real already: its recipe is recorded while it is fake",
            name_of(p));
    return false;
}

void wf_nn_recipe_clear(wf_nn_parameter *p)
{
    for (int i = 0; i < p->recipe.count; i++)
        wf_nn_parameter_free(p->recipe.step[i].of);
    p->recipe.count = 0;
}

void wf_nn_init_apply(wf_nn_parameter *p, const wf_nn_init_op *op, const float *arg)
{
    step *s;

    if (!open_for(p) || check_op(p->tensor->ctx, op) != WF_OK)
        return;
    if (!op->modifies)
        wf_nn_recipe_clear(p);
    if (p->recipe.count == WF_NN_STEPS) {
        wf_fail(p->tensor->ctx, WF_EINVAL,
                "the recipe of parameter %s has %d steps, %s would be one more: join some of "
                "them, in an op of one's own for instance",
                name_of(p), WF_NN_STEPS, op->name);
        return;
    }
    s = &p->recipe.step[p->recipe.count++];
    *s = (step){.op = op};
    if (op->args > 0)
        memcpy(s->arg, arg, (size_t)op->args * sizeof *arg);
}

void wf_nn_init_fill(wf_nn_parameter *p, float value)
{
    wf_nn_init_apply(p, &fill, &value);
}

void wf_nn_init_normal(wf_nn_parameter *p, float mean, float deviation)
{
    wf_nn_init_apply(p, &normal, (const float[]){mean, deviation});
}

void wf_nn_init_uniform(wf_nn_parameter *p, float low, float high)
{
    wf_nn_init_apply(p, &uniform, (const float[]){low, high});
}

void wf_nn_init_truncated_normal(wf_nn_parameter *p, float mean, float deviation, float low,
                                 float high)
{
    wf_nn_init_apply(p, &truncated, (const float[]){mean, deviation, low, high});
}

void wf_nn_init_scale(wf_nn_parameter *p, float factor)
{
    wf_nn_init_apply(p, &scale, &factor);
}

static bool same_dims(const wf_tensor *a, const wf_tensor *b)
{
    bool same = a->ndim == b->ndim;

    for (int i = 0; same && i < a->ndim; i++)
        same = a->dim[i].size == b->dim[i].size;
    return same;
}

/* Does p take numbers of `target`, itself or by way of those whose numbers it takes? */
static bool leads_to(const wf_nn_parameter *p, const wf_nn_parameter *target)
{
    for (int i = 0; i < p->recipe.count; i++) {
        const wf_nn_parameter *of = p->recipe.step[i].of;

        if (of && (of == target || leads_to(of, target)))
            return true;
    }
    return false;
}

/* Appends the steps of `from`, with its numbers; those that are p's own already stay p's
   own. */
void wf_nn_init_copy(wf_nn_parameter *p, wf_nn_parameter *from)
{
    wf_nn_recipe copy;
    char a[128], b[128];

    if (!open_for(p) || !from || !from->tensor || from == p)
        return;
    if (!same_dims(p->tensor, from->tensor)) {
        wf_fail(p->tensor->ctx, WF_ESHAPE,
                "parameter %s, %s, cannot copy %s, %s: shapes differ", name_of(p),
                wf_tensor_describe(p->tensor, a, sizeof a), name_of(from),
                wf_tensor_describe(from->tensor, b, sizeof b));
        return;
    }
    copy = from->recipe;
    for (int i = 0; i < copy.count; i++) {
        wf_nn_parameter *of = copy.step[i].of ? copy.step[i].of : from;

        if (of != p && leads_to(of, p)) {
            wf_fail(p->tensor->ctx, WF_EINVAL,
                    "parameters %s and %s would copy each other's numbers: copy both from a "
                    "third",
                    name_of(p), name_of(of));
            return;
        }
        copy.step[i].of = of == p ? NULL : of;
    }
    for (int i = 0; i < copy.count; i++)
        wf_nn_tie(copy.step[i].of);
    wf_nn_recipe_clear(p);
    p->recipe = copy;
}

/* Steps differ in their random numbers, and the first one has those of the path. */
static uint64_t stream_of(const char *path, int i)
{
    uint64_t stream = wf_digest_path(path);

    return i ? wf_mix64(stream + (uint64_t)i) : stream;
}

static wf_status run_step(const step *s, wf_tensor *t, uint64_t stream)
{
    if (s->op->elements)
        return wf_init_elements(t, s->op->elements, s->arg, stream);
    if (s->op->whole)
        return wf_init_whole(t, s->op->whole, s->arg, stream);
    return s->op->apply(t, s->arg, stream);
}

wf_status wf_nn_replay(const wf_nn_parameter *p, wf_tensor *t)
{
    wf_status status = WF_OK;
    const char *outside;

    if (!t)
        return WF_EINVAL;
    outside = wf_context_enter(t->ctx, p->path[0] ? p->path : "a parameter without a path");
    for (int i = 0; i < p->recipe.count && status == WF_OK; i++) {
        const wf_nn_parameter *of = p->recipe.step[i].of ? p->recipe.step[i].of : p;

        if (!of->path[0])
            status = wf_fail(t->ctx, WF_EINVAL,
                             "the numbers of a recipe follow from a path, and %s has none: "
                             "wf_nn_name_tree comes before, on the tree that it is in",
                             of == p ? "this parameter" : "the parameter that it copies");
        else
            status = run_step(&p->recipe.step[i], t, stream_of(of->path, i));
    }
    wf_context_enter(t->ctx, outside);
    return status;
}

typedef struct writer {
    char *text;
    size_t size, at;
} writer;

static void put(writer *w, const char *what)
{
    int n = snprintf(w->text + w->at, w->size - w->at, "%s", what);

    w->at += (size_t)n < w->size - w->at ? (size_t)n : w->size - w->at - 1;
}

/* Writes the shortest decimal number that reads back as x. */
static void put_number(writer *w, float x)
{
    char text[32];

    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x)
            break;
    }
    put(w, text);
}

char *wf_nn_recipe_print(const wf_nn_parameter *p, char *text, size_t size)
{
    writer w = {text, size, 0};

    if (size == 0)
        return text;
    text[0] = '\0';
    for (int i = 0; i < p->recipe.count; i++) {
        const step *s = &p->recipe.step[i];
        bool last = i + 1 == p->recipe.count || s[1].of != s->of;

        if (s->op == &scale) {
            put(&w, " * ");
            put_number(&w, s->arg[0]);
        } else {
            put(&w, i ? " then " : "");
            put(&w, s->op->name);
            for (int k = 0; k < s->op->args; k++) {
                put(&w, k ? ", " : "(");
                put_number(&w, s->arg[k]);
            }
            put(&w, s->op->args ? ")" : "()");
        }
        if (s->of && last) {
            put(&w, " of ");
            put(&w, name_of(s->of));
        }
    }
    return text;
}

static uint64_t mixed(uint64_t hash, uint64_t more)
{
    return wf_mix64(hash ^ more);
}

uint64_t wf_nn_recipe_hash(const wf_nn_parameter *p)
{
    uint64_t hash = 0;

    for (int i = 0; i < p->recipe.count; i++) {
        const step *s = &p->recipe.step[i];

        hash = mixed(hash, wf_digest_path(s->op->name));
        for (int k = 0; k < s->op->args; k++) {
            uint32_t bits;

            memcpy(&bits, &s->arg[k], sizeof bits);
            hash = mixed(hash, bits);
        }
        hash = mixed(hash, s->of ? wf_digest_path(s->of->path) : 0);
    }
    return hash;
}
