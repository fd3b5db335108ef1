/* apps/tools/gguf_import.c - see the header. */
#include "apps/tools/gguf_import.h"
#include "apps/tools/gguf_tokenizer.h"
#include "core/files/output.h"
#include <stdio.h>
#include <string.h>

static wf_status write_file(wf_output_folder *folder, const app_gguf_file *f, wf_error *error)
{
    wf_output *output = wf_output_open_in(folder, f->name, error);

    if (!output)
        return error->code;
    fwrite(f->text, 1, f->bytes, wf_output_stream(output));
    return wf_output_publish(output, error);
}

/* Writes the ids that wf_par_pretrained_save takes; it writes all else. */
static wf_status write_ids(wf_output_folder *folder, const app_gguf_tokenizer *t,
                           wf_error *error)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    char text[256] = "{";
    size_t n = 1;

    for (int i = 0; i < 3; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\"%s\": ", i ? ", " : "", keys[i]);
        n += (size_t)(t->id[i] < 0
                          ? snprintf(text + n, sizeof text - n, "null")
                          : snprintf(text + n, sizeof text - n, "%lld", (long long)t->id[i]));
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "}\n");
    return write_file(folder, &(app_gguf_file){"config.json", text, n}, error);
}

static wf_status write_all(const char *folder, const app_gguf_tokenizer *t, wf_error *error)
{
    wf_output_folder *into = wf_output_folder_open(folder, error);

    for (int i = 0; i < t->file_count && error->code == WF_OK; i++)
        write_file(into, &t->file[i], error);
    if (error->code == WF_OK)
        write_ids(into, t, error);
    wf_output_folder_close(into);
    return error->code;
}

wf_status app_gguf_import(const char *file, const wf_nn_gpt_config *config, const char *folder,
                          bool tokenizer, wf_error *error)
{
    app_gguf_tokenizer t = {.id = {-1, -1, -1, -1, -1, -1}};
    wf_par_gguf *gguf = tokenizer ? wf_par_gguf_open(file, error) : NULL;

    if (gguf)
        app_gguf_tokenizer_open(&t, gguf, file, config, error);
    if (error->code == WF_OK)
        write_all(folder, &t, error);
    app_gguf_tokenizer_close(&t);
    wf_par_gguf_close(gguf);
    return error->code;
}
