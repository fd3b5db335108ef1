/* tests/nn/gguf_file.c - see the header. */
#include "tests/nn/gguf_file.h"
#include "tests/nn/model_ranks.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t take(gguf_file *f, size_t n)
{
    uint64_t x = 0;

    f->bad |= n > f->count - f->at;
    if (!f->bad)
        memcpy(&x, f->bytes + f->at, n);
    f->at += f->bad ? 0 : n;
    return x;
}

static void take_text(gguf_file *f, char text[GGUF_NAME])
{
    uint64_t n = take(f, 8);

    f->bad |= n > f->count - f->at;
    snprintf(text, GGUF_NAME, "%.*s", f->bad || n >= GGUF_NAME ? 0 : (int)n, f->bytes + f->at);
    f->at += f->bad ? 0 : n;
}

static void take_value(gguf_file *f, uint64_t kind)
{
    static const size_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    char text[GGUF_NAME];

    f->bad |= kind >= sizeof bytes / sizeof *bytes;
    if (f->bad)
        return;
    if (kind == 8) {
        take_text(f, text);
    } else if (kind == 9) {
        uint64_t of = take(f, 4), n = take(f, 8);

        f->bad |= of == 9;
        for (uint64_t i = 0; i < n && !f->bad; i++)
            take_value(f, of);
    } else {
        take(f, bytes[kind]);
    }
}

size_t gguf_value(gguf_file *f, const char *key, uint64_t kind)
{
    size_t found = 0;
    char name[GGUF_NAME];

    f->at = 24;
    for (uint64_t i = 0; i < f->keys && !f->bad; i++) {
        uint64_t k;

        take_text(f, name);
        k = take(f, 4);
        if (strcmp(name, key) == 0 && k == kind)
            found = f->at;
        take_value(f, k);
    }
    return found;
}

uint32_t gguf_number(gguf_file *f, const char *key)
{
    size_t at = gguf_value(f, key, 4);
    uint32_t x = UINT32_MAX;

    if (at)
        memcpy(&x, f->bytes + at, sizeof x);
    return x;
}

static uint64_t bytes_of(const gguf_tensor *t)
{
    uint64_t n = 1;

    for (uint32_t d = 0; d < t->dims; d++)
        n *= t->size[d];
    return t->type == 0 ? 4 * n : t->type == 8 ? n / 32 * 34 : 2 * n;
}

static void zeros(const gguf_file *f, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        CU_ASSERT_EQUAL(f->bytes[i], 0);
}

static void check_positions(gguf_file *f)
{
    size_t end = f->at;

    for (uint64_t i = 0; i < f->tensors; i++) {
        gguf_tensor *t = &f->tensor[i];

        CU_ASSERT_EQUAL(t->offset % 32, 0);
        CU_ASSERT_EQUAL(f->data + t->offset, (end + 31) / 32 * 32);
        zeros(f, end, f->data + t->offset);
        end = f->data + t->offset + bytes_of(t);
        CU_ASSERT_FATAL(end <= f->count);
        t->data = f->bytes + f->data + t->offset;
    }
    CU_ASSERT_EQUAL(end, f->count);
}

void gguf_read(gguf_file *f, const char *path)
{
    FILE *from = fopen(path, "rb");
    struct stat s;

    memset(f, 0, sizeof *f);
    CU_ASSERT_PTR_NOT_NULL_FATAL(from);
    CU_ASSERT_FATAL(fstat(fileno(from), &s) == 0);
    f->count = (size_t)s.st_size;
    f->bytes = malloc(f->count + 1);
    CU_ASSERT_EQUAL(fread(f->bytes, 1, f->count, from), f->count);
    fclose(from);
    CU_ASSERT(take(f, 4) == 0x46554747 && take(f, 4) == 3); /* "GGUF", version 3 */
    f->tensors = take(f, 8);
    f->keys = take(f, 8);
    gguf_value(f, "", 0); /* goes behind the keys */
    CU_ASSERT_FATAL(!f->bad && f->tensors <= GGUF_TENSORS);
    for (uint64_t i = 0; i < f->tensors; i++) {
        gguf_tensor *t = &f->tensor[i];

        take_text(f, t->name);
        t->dims = (uint32_t)take(f, 4);
        CU_ASSERT_FATAL(t->dims >= 1 && t->dims <= 4);
        for (uint32_t d = 0; d < t->dims; d++)
            t->size[d] = take(f, 8);
        t->type = (uint32_t)take(f, 4);
        t->offset = take(f, 8);
    }
    CU_ASSERT_FALSE(f->bad);
    f->data = (f->at + 31) / 32 * 32;
    check_positions(f);
}

const gguf_tensor *gguf_find(const gguf_file *f, const char *name)
{
    for (uint64_t i = 0; i < f->tensors; i++)
        if (strcmp(f->tensor[i].name, name) == 0)
            return &f->tensor[i];
    return NULL;
}

wf_status gguf_save(const char *folder, wf_par_gguf_type type, const wf_par_gguf_key *keys,
                    int64_t count, const char *path, wf_error *error)
{
    wf_context *ctx = lone_context(1);
    wf_nn_gpt_config config;
    wf_nn_gpt *model;

    CU_ASSERT_EQUAL_FATAL(wf_par_pretrained_config(folder, &config, error), WF_OK);
    model = wf_nn_gpt_new(ctx, &config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(model);
    wf_par_pretrained_save_gguf(
        model,
        &(wf_par_gguf_options){
            .folder = folder, .type = type, .name = "a model", .key_count = count, .key = keys},
        path, error);
    wf_nn_free(&model->base);
    close_lone(ctx, WF_OK);
    return error->code;
}
