/* parallel/models/gpt/hf_names.c - names and shapes of transformers; see the header. */
#include "parallel/models/gpt/hf_names_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ours, with N for the number of a block; theirs; the third of a side-by-side tensor, or -1. */
typedef struct known {
    const char *ours, *theirs;
    bool transposed;
    int third;
} known;

static const known gpt2[] = {
    {"embed.table", "transformer.wte.weight", false, -1},
    {"position.table", "transformer.wpe.weight", false, -1},
    {"block.N.norm1.gain", "transformer.h.N.ln_1.weight", false, -1},
    {"block.N.norm1.bias", "transformer.h.N.ln_1.bias", false, -1},
    {"block.N.attn.qkv.q.weight", "transformer.h.N.attn.c_attn.weight", true, 0},
    {"block.N.attn.qkv.k.weight", "transformer.h.N.attn.c_attn.weight", true, 1},
    {"block.N.attn.qkv.v.weight", "transformer.h.N.attn.c_attn.weight", true, 2},
    {"block.N.attn.qkv.q.bias", "transformer.h.N.attn.c_attn.bias", false, 0},
    {"block.N.attn.qkv.k.bias", "transformer.h.N.attn.c_attn.bias", false, 1},
    {"block.N.attn.qkv.v.bias", "transformer.h.N.attn.c_attn.bias", false, 2},
    {"block.N.attn.out.weight", "transformer.h.N.attn.c_proj.weight", true, -1},
    {"block.N.attn.out.bias", "transformer.h.N.attn.c_proj.bias", false, -1},
    {"block.N.norm2.gain", "transformer.h.N.ln_2.weight", false, -1},
    {"block.N.norm2.bias", "transformer.h.N.ln_2.bias", false, -1},
    {"block.N.mlp.up.weight", "transformer.h.N.mlp.c_fc.weight", true, -1},
    {"block.N.mlp.up.bias", "transformer.h.N.mlp.c_fc.bias", false, -1},
    {"block.N.mlp.down.weight", "transformer.h.N.mlp.c_proj.weight", true, -1},
    {"block.N.mlp.down.bias", "transformer.h.N.mlp.c_proj.bias", false, -1},
    {"norm.gain", "transformer.ln_f.weight", false, -1},
    {"norm.bias", "transformer.ln_f.bias", false, -1},
    {NULL, NULL, false, -1}};

static const known llama[] = {
    {"embed.table", "model.embed_tokens.weight", false, -1},
    {"block.N.norm1.gain", "model.layers.N.input_layernorm.weight", false, -1},
    {"block.N.attn.qkv.q.weight", "model.layers.N.self_attn.q_proj.weight", false, -1},
    {"block.N.attn.qkv.k.weight", "model.layers.N.self_attn.k_proj.weight", false, -1},
    {"block.N.attn.qkv.v.weight", "model.layers.N.self_attn.v_proj.weight", false, -1},
    {"block.N.attn.qkv.q.bias", "model.layers.N.self_attn.q_proj.bias", false, -1},
    {"block.N.attn.qkv.k.bias", "model.layers.N.self_attn.k_proj.bias", false, -1},
    {"block.N.attn.qkv.v.bias", "model.layers.N.self_attn.v_proj.bias", false, -1},
    {"block.N.attn.out.weight", "model.layers.N.self_attn.o_proj.weight", false, -1},
    {"block.N.norm2.gain", "model.layers.N.post_attention_layernorm.weight", false, -1},
    {"block.N.mlp.gate_up.gate.weight", "model.layers.N.mlp.gate_proj.weight", false, -1},
    {"block.N.mlp.gate_up.up.weight", "model.layers.N.mlp.up_proj.weight", false, -1},
    {"block.N.mlp.down.weight", "model.layers.N.mlp.down_proj.weight", false, -1},
    {"norm.gain", "model.norm.weight", false, -1},
    {"head.weight", "lm_head.weight", false, -1},
    {NULL, NULL, false, -1}};

bool wf_hf_matches(const char *pattern, const char *path, int64_t *block)
{
    for (; *pattern; pattern++) {
        if (*pattern == 'N') {
            char *end;

            *block = strtoll(path, &end, 10);
            if (end == path)
                return false;
            path = end;
        } else if (*pattern != *path++) {
            return false;
        }
    }
    return !*path;
}

void wf_hf_write_name(char text[WF_HF_NAME], const char *theirs, int64_t block)
{
    const char *n = strstr(theirs, ".N.");

    if (n)
        snprintf(text, WF_HF_NAME, "%.*s.%lld.%s", (int)(n - theirs), theirs, (long long)block,
                 n + 3);
    else
        snprintf(text, WF_HF_NAME, "%s", theirs);
}

bool wf_hf_place_of(const wf_nn_gpt_config *model, const wf_nn_parameter *parameter,
                    wf_hf_place *place)
{
    const wf_tensor *t = parameter->tensor;
    const known *row = model->arch == WF_NN_LLAMA ? llama : gpt2;
    int64_t block = 0;
    int wide; /* the dim of theirs that has our dim 0 in it */

    while (row->ours && !wf_hf_matches(row->ours, parameter->path, &block))
        row++;
    if (!row->ours)
        return false;
    memset(place, 0, sizeof *place);
    wf_hf_write_name(place->name, row->theirs, block);
    place->base = model->arch == WF_NN_LLAMA ? "model." : "transformer.";
    place->transposed = row->transposed;
    place->ndim = t->ndim;
    for (int d = 0; d < t->ndim; d++)
        place->shape[d] = t->dim[row->transposed ? t->ndim - 1 - d : d].size;
    wide = row->transposed ? t->ndim - 1 : 0;
    if (row->third >= 0) {
        place->offset = row->third * place->shape[wide];
        place->shape[wide] *= 3;
    }
    return true;
}

wf_part wf_hf_part(const wf_hf_place *place, const wf_tensor *parameter)
{
    wf_part part = {.ndim = place->ndim};

    for (int d = 0; d < part.ndim; d++) {
        int ours = place->transposed ? part.ndim - 1 - d : d;

        part.start[d] = parameter->start[ours] + (ours == 0 ? place->offset : 0);
        part.local[d] = parameter->local[ours];
    }
    return part;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

bool wf_hf_idle(const char *name)
{
    return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
           ends_with(name, ".rotary_emb.inv_freq");
}
