/* parallel/models/gpt/gguf_rotation.c - how heads rotate in a GGUF file; see
   gguf_source_internal.h. */
#include "parallel/models/gpt/gguf_source_internal.h"
#include <math.h>
#include <string.h>

static bool has_long_rope(const wf_gguf_source *s)
{
    return wf_gguf_has_long_rope(s->arch);
}

/* Keys of YaRN that llama.cpp reads of no architecture that is here, and what it computes
   without; NAN: YaRN's factor of cosines and sines. A file that says another number is refused,
   and one that says any beside another scaling. */
static const struct {
    const char *key;
    double value;
} of_yarn[] = {{"rope.scaling.yarn_ext_factor", 1},
               {"rope.scaling.yarn_attn_factor", NAN},
               {"rope.scaling.yarn_beta_fast", 32},
               {"rope.scaling.yarn_beta_slow", 1}};

enum { OF_YARN = sizeof of_yarn / sizeof *of_yarn };

static bool is(const wf_par_gguf_text *text, const char *word)
{
    return text->bytes == (int64_t)strlen(word) &&
           memcmp(text->text, word, (size_t)text->bytes) == 0;
}

static void refuse(wf_gguf_source *s, const char *key, const char *why)
{
    if (s->error->code == WF_OK)
        wf_error_set(s->error, WF_EUNSUPPORTED, "%.900s: key \"%s.%s\" %s", s->path, s->arch,
                     key, why);
}

/* Returns the factor of a scaling, of which 0 is none; an older key stands in for it. */
static double read_factor(wf_gguf_source *s)
{
    return wf_gguf_number_or(s, "rope.scaling.factor",
                             wf_gguf_number_or(s, "rope.scale_linear", 0));
}

/* Reads YaRN. Cosines and sines are multiplied with YaRN's own factor and "attn_factor". */
static void read_yarn(wf_gguf_source *s, wf_nn_gpt_config *m)
{
    const double factor = read_factor(s);
    const wf_rope_scaling r = {
        .kind = WF_ROPE_YARN,
        .factor = factor > 0 ? factor : 1,
        .original_positions =
            (double)wf_gguf_size_or(s, "rope.scaling.original_context_length", m->positions),
        .beta_fast = wf_gguf_number_or(s, "rope.scaling.yarn_beta_fast", 0),
        .beta_slow = wf_gguf_number_or(s, "rope.scaling.yarn_beta_slow", 0)};
    const double by = wf_gguf_number_or(s, "rope.scaling.attn_factor", 1);

    m->rope_scaling = r;
    if (by != 1)
        m->rope_scaling.attention_factor = wf_gguf_yarn_attention(m, by);
    for (int i = 0; i < OF_YARN; i++) {
        const double said = wf_gguf_number_or(s, of_yarn[i].key, 0),
                     computed = isnan(of_yarn[i].value) ? wf_gguf_yarn_attention(m, by)
                                                        : of_yarn[i].value;

        if (said != 0 && (float)said != (float)computed)
            refuse(s, of_yarn[i].key,
                   "is not what llama.cpp computes, which does not read it: an extrapolation "
                   "factor of 1, beta_fast 32, beta_slow 1, and an attention factor of 0.1 "
                   "ln(\"rope.scaling.factor\") + 1 times \"rope.scaling.attn_factor\"");
    }
}

/* Reads the scaling that keys say. Without a type a factor is linear; two lists of factors are
   read after this. */
static void read_scaling(wf_gguf_source *s, wf_nn_gpt_config *m)
{
    char text[WF_GGUF_KEY];
    const wf_par_gguf_key *k =
        wf_par_gguf_find(s->g, wf_gguf_full_key(s, "rope.scaling.type", text), WF_PAR_GGUF_TEXT,
                         false, s->error);
    const wf_par_gguf_text *type = k ? k->values : NULL;
    const bool lists = has_long_rope(s) && wf_gguf_tensor_find(s->g, WF_GGUF_LONG_FACTORS);
    double factor;

    if (type && is(type, "yarn")) {
        read_yarn(s, m);
        return;
    }
    for (int i = 0; i < OF_YARN; i++)
        if (wf_gguf_number_or(s, of_yarn[i].key, 0) != 0)
            refuse(s, of_yarn[i].key, "is read where \"rope.scaling.type\" is \"yarn\" alone");
    if (type && is(type, "none"))
        return;
    if (type && !is(type, "linear") && !(lists && is(type, "longrope"))) {
        refuse(s, "rope.scaling.type",
               "is neither none, linear nor yarn, nor longrope beside a Phi-3's two lists of "
               "factors, which are what is read");
        return;
    }
    factor = read_factor(s);
    if (factor != 0 && factor != 1)
        m->rope_scaling = (wf_rope_scaling){.kind = WF_ROPE_LINEAR, .factor = factor};
}

/* Refuses a factor of cosines and sines where nothing here multiplies with one. */
static void check_attention_factor(wf_gguf_source *s, const wf_nn_gpt_config *m)
{
    if (m->rope_scaling.kind != WF_ROPE_LONG && m->rope_scaling.kind != WF_ROPE_YARN &&
        s->error->code == WF_OK && wf_gguf_number_or(s, "rope.scaling.attn_factor", 1) != 1)
        refuse(s, "rope.scaling.attn_factor",
               "is read beside two lists of factors, and of YaRN, alone");
}

/* A vector of one F32 for each of some pairs of a head; false: it is not there, or an error. */
static bool read_pairs(wf_gguf_source *s, const wf_file *file, const char *name, int64_t pairs,
                       int64_t most, float *to)
{
    const wf_gguf_tensor *t = wf_gguf_tensor_find(s->g, name);

    if (!t || s->error->code != WF_OK)
        return false;
    s->used[t - s->g->tensor] = true;
    if (t->ndim != 1 || t->type != WF_GGUF_F32 || t->shape[0] != pairs || pairs > most)
        wf_error_set(
            s->error, WF_EDATA,
            "%.900s: tensor \"%s\" is not one F32 for each pair of a head that is rotated",
            s->path, t->name);
    else
        wf_file_read(file, to, (size_t)t->bytes, s->g->data + t->begin, s->error);
    return s->error->code == WF_OK;
}

/* Llama 3.1's scaling is in a file as what each frequency is divided by. */
static void read_factors(wf_gguf_source *s, const wf_file *file, wf_nn_gpt_config *m)
{
    enum { MOST = 1024 };
    static const char name[] = "rope_freqs.weight";
    float factors[MOST];

    if (!read_pairs(s, file, name, m->head_dim / 2, MOST, factors))
        return;
    if (m->rope_scaling.kind != WF_ROPE_UNSCALED || m->position != WF_NN_ROPE)
        wf_error_set(
            s->error, WF_EDATA,
            "%.900s: tensor \"%s\" scales what keys scale already, or what is not rotated",
            s->path, name);
    else if (!wf_gguf_find_scaling(m, factors))
        wf_error_set(s->error, WF_EUNSUPPORTED,
                     "%.900s: the factors in \"%s\" are of no scaling as Llama 3.1 has it",
                     s->path, name);
}

/* Two lists of factors; without the key llama.cpp multiplies with 1. */
static void read_long_factors(wf_gguf_source *s, const wf_file *file, wf_nn_gpt_config *m)
{
    wf_rope_factors f = {.count = wf_nn_gpt_rotary(m) / 2};
    double factor;

    if (!read_pairs(s, file, WF_GGUF_LONG_FACTORS, f.count, WF_ROPE_PAIRS, f.long_factor) ||
        !read_pairs(s, file, WF_GGUF_SHORT_FACTORS, f.count, WF_ROPE_PAIRS, f.short_factor))
        return;
    if (m->rope_scaling.kind != WF_ROPE_UNSCALED)
        refuse(s, "rope.scaling.factor", "scales what two lists of factors scale already");
    m->rope_factors = f;
    m->rope_scaling = (wf_rope_scaling){.kind = WF_ROPE_LONG,
                                        .original_positions = (double)wf_gguf_size_or(
                                            s, "rope.scaling.original_context_length", 0)};
    factor = wf_gguf_number_or(s, "rope.scaling.attn_factor", 1);
    if (s->error->code == WF_OK && (float)wf_gguf_attention_factor(m) != (float)factor)
        m->rope_scaling.attention_factor = factor;
}

void wf_gguf_read_rotation(wf_gguf_source *s, const wf_file *file, wf_nn_gpt_config *m)
{
    int64_t turns = wf_gguf_size_or(s, "rope.dimension_count", m->head_dim);
    const char *wrong;
    char text[WF_GGUF_KEY];

    if (s->error->code != WF_OK)
        return;
    if (turns != m->head_dim && (!wf_gguf_part_rotates(s->arch) || turns > m->head_dim)) {
        wf_error_set(
            s->error, WF_EUNSUPPORTED,
            "%.900s: key \"%s.rope.dimension_count\" says that a part of a head is rotated",
            s->path, s->arch);
        return;
    }
    m->rotary = (double)turns / (double)m->head_dim;
    if (has_long_rope(s)) {
        const wf_par_gguf_key *k =
            wf_par_gguf_find(s->g, wf_gguf_full_key(s, "attention.sliding_window", text),
                             WF_PAR_GGUF_I64, false, s->error);

        m->window =
            k && *(const int64_t *)k->values < m->positions ? *(const int64_t *)k->values : 0;
        if (m->window < 0)
            wf_error_set(s->error, WF_EDATA, "%.900s: key \"%s\" is less than 0", s->path,
                         text);
    }
    read_scaling(s, m);
    if (has_long_rope(s))
        read_long_factors(s, file, m);
    check_attention_factor(s, m);
    wrong = s->error->code == WF_OK ? wf_nn_gpt_rope_wrong(m) : NULL;
    if (wrong)
        wf_error_set(s->error, WF_EDATA, "%.900s: its keys of RoPE: %s", s->path, wrong);
    else
        read_factors(s, file, m);
}
