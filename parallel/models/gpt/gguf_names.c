/* parallel/models/gpt/gguf_names.c - see the header. */
#include "parallel/models/gpt/gguf_names_internal.h"
#include "parallel/models/gpt/hf_names_internal.h"
#include <stdio.h>
#include <string.h>

#define POST_ATTENTION "blk.N.post_attention_norm.weight"
#define POST_MLP       "blk.N.post_ffw_norm.weight"

/* Ours, with N for the number of a block, and theirs. */
static const struct {
    const char *ours, *theirs;
} names[] = {{"embed.table", "token_embd.weight"},
             {"position.table", "position_embd.weight"},
             {"block.N.norm1.gain", "blk.N.attn_norm.weight"},
             {"block.N.norm1.bias", "blk.N.attn_norm.bias"},
             {"block.N.attn.qkv.q.weight", "blk.N.attn_q.weight"},
             {"block.N.attn.qkv.k.weight", "blk.N.attn_k.weight"},
             {"block.N.attn.qkv.v.weight", "blk.N.attn_v.weight"},
             {"block.N.attn.qkv.q.bias", "blk.N.attn_q.bias"},
             {"block.N.attn.qkv.k.bias", "blk.N.attn_k.bias"},
             {"block.N.attn.qkv.v.bias", "blk.N.attn_v.bias"},
             {"block.N.attn.q_norm.gain", "blk.N.attn_q_norm.weight"},
             {"block.N.attn.k_norm.gain", "blk.N.attn_k_norm.weight"},
             {"block.N.attn.out.weight", "blk.N.attn_output.weight"},
             {"block.N.attn.out.bias", "blk.N.attn_output.bias"},
             {"block.N.norm2.gain", "blk.N.ffn_norm.weight"},
             {"block.N.norm2.bias", "blk.N.ffn_norm.bias"},
             {"block.N.mlp.gate_up.gate.weight", "blk.N.ffn_gate.weight"},
             {"block.N.mlp.gate_up.up.weight", "blk.N.ffn_up.weight"},
             {"block.N.mlp.gate_up.gate.bias", "blk.N.ffn_gate.bias"},
             {"block.N.mlp.gate_up.up.bias", "blk.N.ffn_up.bias"},
             {"block.N.mlp.up.weight", "blk.N.ffn_up.weight"},
             {"block.N.mlp.up.bias", "blk.N.ffn_up.bias"},
             {"block.N.mlp.down.weight", "blk.N.ffn_down.weight"},
             {"block.N.mlp.down.bias", "blk.N.ffn_down.bias"},
             {"block.N.moe.router", "blk.N.ffn_gate_inp.weight"},
             {"block.N.moe.gate", "blk.N.ffn_gate_exps.weight"},
             {"block.N.moe.up", "blk.N.ffn_up_exps.weight"},
             {"block.N.moe.down", "blk.N.ffn_down_exps.weight"},
             {"block.N.moe.shared.gate_up.gate.weight", "blk.N.ffn_gate_shexp.weight"},
             {"block.N.moe.shared.gate_up.up.weight", "blk.N.ffn_up_shexp.weight"},
             {"block.N.moe.shared.down.weight", "blk.N.ffn_down_shexp.weight"},
             {"block.N.post1.gain", POST_ATTENTION},
             {"block.N.post2.gain", POST_MLP},
             {"norm.gain", "output_norm.weight"},
             {"norm.bias", "output_norm.bias"},
             {"head.weight", "output.weight"},
             {"head.bias", "output.bias"}};

static bool is_gain(const char *ours)
{
    return strcmp(ours + strlen(ours) - strlen(".gain"), ".gain") == 0;
}

/* Returns the name of a parameter: norms after branches have another one. */
static const char *theirs_of(const wf_nn_gpt_config *m, const char *ours, const char *theirs)
{
    if (m->order == WF_NN_POST_NORM && strcmp(ours, "block.N.norm1.gain") == 0)
        return POST_ATTENTION;
    if (m->order == WF_NN_POST_NORM && strcmp(ours, "block.N.norm2.gain") == 0)
        return POST_MLP;
    return theirs;
}

/* The letter of "blk.N.attn_q.weight" and the like; 0: another name. */
static char of_qkv(const char *theirs)
{
    const char *found = strstr(theirs, ".attn_");

    return found && found[7] == '.' ? found[6] : '\0';
}

bool wf_gguf_location_of(const char *architecture, const wf_nn_gpt_config *model,
                         const wf_nn_parameter *parameter, wf_gguf_location *location)
{
    const wf_gguf_layout f = wf_gguf_layout_of(architecture, model);
    const wf_nn_gpt_config m = wf_nn_gpt_complete(model);
    const int64_t queries = m.heads * m.head_dim, keys = m.kv_heads * m.head_dim;
    int64_t block = 0, rows = parameter->tensor->dim[0].size;
    char name[WF_HF_NAME], letter;
    size_t i = 0;

    while (f.found && i < sizeof names / sizeof *names &&
           !wf_hf_matches(names[i].ours, parameter->path, &block))
        i++;
    if (!f.found || i == sizeof names / sizeof *names)
        return false;
    *location =
        (wf_gguf_location){.rows = rows, .added = m.gain_offset && is_gain(names[i].ours)};
    wf_hf_write_name(name, theirs_of(&m, names[i].ours, names[i].theirs), block);
    letter = of_qkv(name);
    if (strstr(name, ".ffn_gate.") && f.one_mlp) { /* it comes before what it gates */
        location->rows = 2 * rows;
        snprintf(location->name, sizeof location->name, "blk.%lld.ffn_up%s", (long long)block,
                 strrchr(name, '.'));
        return true;
    }
    if (strstr(name, ".ffn_up.") && f.one_mlp) {
        location->row = rows;
        location->rows = 2 * rows;
    }
    if (letter && f.one_qkv) { /* they come in this order */
        location->row = letter == 'q' ? 0 : letter == 'k' ? queries : queries + keys;
        location->rows = queries + 2 * keys;
        snprintf(location->name, sizeof location->name, "blk.%lld.attn_qkv%s", (long long)block,
                 strrchr(name, '.'));
        return true;
    }
    if (f.rotates_neighbours && (letter == 'q' || letter == 'k'))
        location->heads = letter == 'q' ? model->heads : model->kv_heads;
    snprintf(location->name, sizeof location->name, "%.63s", name);
    return true;
}

int64_t wf_gguf_row(const wf_gguf_location *location, int64_t rows, int64_t row)
{
    int64_t head, i;

    if (!location->heads)
        return row;
    head = rows / location->heads;
    i = row % head;
    return row - i + i / 2 + i % 2 * (head / 2);
}

int64_t wf_gguf_file_row(const wf_gguf_location *location, int64_t rows, int64_t row)
{
    int64_t head, i;

    if (!location->heads)
        return row;
    head = rows / location->heads;
    i = row % head;
    return row - i + (i < head / 2 ? 2 * i : 2 * (i - head / 2) + 1);
}
