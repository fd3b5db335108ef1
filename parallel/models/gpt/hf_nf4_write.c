/* parallel/models/gpt/hf_nf4_write.c - matrices of a folder that is written as bitsandbytes
   stores NF4; see hf_nf4_internal.h. */
#include "parallel/models/gpt/hf_nf4_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const beside[WF_HF_NF4_ENTRIES] = {"",
                                                      ".absmax",
                                                      ".nested_absmax",
                                                      ".nested_quant_map",
                                                      ".quant_map",
                                                      ".quant_state.bitsandbytes__nf4"};

wf_status wf_hf_nf4_describe(const char *name, int64_t height, int64_t width,
                             wf_safetensors_entry *entry, wf_error *error)
{
    int64_t numbers = height * width, blocks = wf_nf4_blocks(numbers);
    const struct {
        wf_safetensors_dtype dtype;
        int64_t count;
    } parts[WF_HF_NF4_ENTRIES] = {
        {WF_ST_U8, (numbers + 1) / 2},      {WF_ST_U8, blocks},
        {WF_ST_F32, wf_nf4_nested(blocks)}, {WF_ST_F32, WF_DYNAMIC8_LEVELS},
        {WF_ST_F32, WF_NF4_LEVELS},         {WF_ST_U8, WF_HF_NF4_STATE}};

    for (int i = 0; i < WF_HF_NF4_ENTRIES; i++) {
        size_t size = strlen(name) + strlen(beside[i]) + 1;

        entry[i] = (wf_safetensors_entry){.name = malloc(size),
                                          .dtype = parts[i].dtype,
                                          .ndim = i ? 1 : 2,
                                          .shape = {parts[i].count, 1}};
        if (!entry[i].name)
            return wf_error_set(error, WF_ENOMEM, "no memory for a list of tensors");
        snprintf(entry[i].name, size, "%s%s", name, beside[i]);
    }
    return WF_OK;
}

/* Spaces fill it up: its size is known before its numbers are. */
static void format_state(char text[WF_HF_NF4_STATE + 1], int64_t height, int64_t width,
                         float offset)
{
    int n = snprintf(text, WF_HF_NF4_STATE + 1,
                     "{\"quant_type\": \"nf4\", \"blocksize\": %d, \"dtype\": \"float32\", "
                     "\"shape\": [%" PRId64 ", %" PRId64 "], \"nested_blocksize\": %d, "
                     "\"nested_dtype\": \"float32\", \"nested_offset\": %.9g}",
                     WF_NF4_BLOCK, height, width, WF_NF4_NESTED, (double)offset);

    memset(text + n, ' ', (size_t)(WF_HF_NF4_STATE - n));
}

/* Rows of a matrix that is stored whole are flat where they begin on bytes; else numbers move
   up. */
static void flatten(const wf_nf4_part *part, const uint8_t *rows, uint8_t *flat)
{
    int64_t at = 0;

    for (int64_t r = 0; r < part->rows; r++, rows += wf_nf4_row_bytes(part))
        for (int64_t c = 0; c < part->columns; c++, at++) {
            int code = c % 2 ? rows[c / 2] & 15 : rows[c / 2] >> 4;

            flat[at / 2] = (uint8_t)(at % 2 ? flat[at / 2] | code : code << 4);
        }
}

wf_status wf_hf_nf4_write(const wf_file *file, int64_t data, const wf_safetensors_entry *entry,
                          int64_t height, int64_t width, const float *values, wf_error *error)
{
    const wf_nf4_part part = {
        .height = height, .width = width, .rows = height, .columns = width};
    int64_t blocks = wf_nf4_blocks(height * width), nested = wf_nf4_nested(blocks);
    float *absmax = malloc((size_t)blocks * sizeof *absmax + 1);
    float *scales = malloc((size_t)(1 + nested) * sizeof *scales);
    uint8_t *code = malloc((size_t)blocks + 1);
    uint8_t *rows = malloc((size_t)height * wf_nf4_row_bytes(&part) + 1);
    uint8_t *flat = malloc((size_t)(height * width) / 2 + 1);
    char state[WF_HF_NF4_STATE + 1];
    const void *const from[WF_HF_NF4_ENTRIES] = {
        flat, code, scales ? scales + 1 : NULL, wf_dynamic8_signed, wf_nf4_levels, state};

    if (absmax && scales && code && rows && flat) {
        wf_nf4_absmax(&part, values, absmax);
        wf_nf4_scales(blocks, absmax, code, scales);
        wf_nf4_pack(&part, values, absmax, code, rows);
        flatten(&part, rows, flat);
        format_state(state, height, width, scales[0]);
    } else {
        wf_error_set(error, WF_ENOMEM, "no memory to write \"%s\"", entry->name);
    }
    for (int i = 0; i < WF_HF_NF4_ENTRIES && error->code == WF_OK; i++)
        wf_file_write(file, from[i], (size_t)(entry[i].end - entry[i].begin),
                      data + entry[i].begin, error);
    free(absmax);
    free(scales);
    free(code);
    free(rows);
    free(flat);
    return error->code;
}
