/* nn/text/tokenizer/trainer_write.c - a trained vocabulary as tokenizer.json. */
#include "nn/text/tokenizer/load_internal.h"
#include "nn/text/tokenizer/trainer_internal.h"
#include "core/files/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of all tokens, one after the other. */
typedef struct spelling {
    wf_tok_bytes bytes;
    size_t *end; /* by id */
} spelling;

static const char *token(const spelling *s, int32_t id, size_t *n)
{
    size_t begin = id ? s->end[id - 1] : 0;

    *n = s->end[id] - begin;
    return s->bytes.data + begin;
}

static bool write_merges(spelling *s, const wf_tok_trained_merge *merges, int32_t count)
{
    s->end = malloc((256 + (size_t)count) * sizeof *s->end);
    for (int32_t id = 0; s->end && id < 256 + count; id++) {
        bool ok = true;

        for (int part = 0; part < (id < 256 ? 1 : 2) && ok; part++) {
            const wf_tok_trained_merge *m = id < 256 ? NULL : &merges[id - 256];
            char byte = (char)id;
            size_t n = 1;

            if (m) {
                wf_tok_bytes copy = {0};
                const char *text = token(s, part ? m->right : m->left, &n);

                ok = wf_tok_bytes_add(&copy, text, n) &&
                     wf_tok_bytes_add(&s->bytes, copy.data, n);
                wf_tok_bytes_free(&copy);
            } else {
                ok = wf_tok_bytes_add(&s->bytes, &byte, 1);
            }
        }
        if (!ok)
            return false;
        s->end[id] = s->bytes.bytes;
    }
    return s->end != NULL;
}

/* Prints a token as a string of JSON, of GPT-2's letters. */
static void print_token(FILE *file, const spelling *s, int32_t id)
{
    size_t n;
    const char *text = token(s, id, &n);

    fputc('"', file);
    for (size_t i = 0; i < n; i++) {
        uint8_t letter[4];
        int bytes = wf_tok_letter_of_byte((uint8_t)text[i], letter);

        if (*letter == '"' || *letter == '\\')
            fputc('\\', file);
        fwrite(letter, 1, (size_t)bytes, file);
    }
    fputc('"', file);
}

static void print_pattern(FILE *file)
{
    for (const char *at = wf_tok_scan_pattern("llama3"); *at; at++) {
        if (*at == '\\')
            fputc('\\', file);
        fputc(*at, file);
    }
}

static void print_all(FILE *file, const spelling *s, const wf_tok_trained_merge *merges,
                      int32_t count)
{
    static const char level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                "\"trim_offsets\": true, \"use_regex\": false}";

    fprintf(
        file,
        "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
        "  \"added_tokens\": [\n    {\"id\": %d, \"content\": \"<|endoftext|>\", "
        "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
        "\"special\": true}\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": {\"type\": "
        "\"Sequence\", \"pretokenizers\": [\n    {\"type\": \"Split\", \"pattern\": "
        "{\"Regex\": \"",
        256 + count);
    print_pattern(file);
    fprintf(file,
            "\"}, \"behavior\": \"Isolated\", \"invert\": false},\n    %s\n  ]},\n"
            "  \"post_processor\": null,\n  \"decoder\": %s,\n  \"model\": {\n    \"type\": "
            "\"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
            "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
            "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": "
            "false,\n"
            "    \"vocab\": {\n",
            level, level);
    for (int32_t id = 0; id < 256 + count; id++) {
        fputs("      ", file);
        print_token(file, s, id);
        fprintf(file, ": %d,\n", id);
    }
    fprintf(file, "      \"<|endoftext|>\": %d\n    },\n    \"merges\": [", 256 + count);
    for (int32_t i = 0; i < count; i++) {
        fputs(i ? ",\n      [" : "\n      [", file);
        print_token(file, s, merges[i].left);
        fputs(", ", file);
        print_token(file, s, merges[i].right);
        fputc(']', file);
    }
    fputs("\n    ]\n  }\n}\n", file);
}

static wf_status write_file(wf_output_folder *folder, const char *name, const spelling *s,
                            const wf_tok_trained_merge *merges, int32_t count, wf_error *error)
{
    wf_output *output = wf_output_open_in(folder, name, error);
    FILE *file = wf_output_stream(output);

    if (!output)
        return error->code;
    if (file && s)
        print_all(file, s, merges, count);
    else if (file)
        fputs("{\n  \"eos_token\": \"<|endoftext|>\"\n}\n", file);
    return wf_output_publish(output, error);
}

wf_status wf_tok_train(const wf_tok_counter *counter, int32_t vocabulary, const char *folder,
                       int32_t *size, wf_error *error)
{
    int32_t most = vocabulary - 257, count = -1;
    wf_tok_trained_merge *merges = malloc(((size_t)most + 1) * sizeof *merges);
    spelling s = {0};
    wf_output_folder *into = wf_output_folder_open(folder, error);

    if (merges && into)
        count = wf_tok_train_merges(counter, most, merges);
    if (into && (count < 0 || !write_merges(&s, merges, count)))
        wf_error_set(error, WF_ENOMEM, "out of memory: a vocabulary of %d tokens", vocabulary);
    else if (into && write_file(into, "tokenizer.json", &s, merges, count, error) == WF_OK)
        write_file(into, "tokenizer_config.json", NULL, NULL, 0, error);
    wf_output_folder_close(into);
    *size = 257 + count;
    free(merges);
    free(s.end);
    wf_tok_bytes_free(&s.bytes);
    return error->code;
}
