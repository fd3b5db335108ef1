/* nn/text/tokenizer/steps.c - lists of steps, and texts that grow. */
#include "nn/text/tokenizer/encode_internal.h"
#include <stdlib.h>
#include <string.h>

bool wf_tok_bytes_add(wf_tok_bytes *text, const void *bytes, size_t n)
{
    if (text->room - text->bytes < n) {
        size_t room = text->room + text->room / 2 + n + 64;
        char *data = realloc(text->data, room);

        if (!data)
            return false;
        text->data = data;
        text->room = room;
    }
    if (n)
        memcpy(text->data + text->bytes, bytes, n);
    text->bytes += n;
    return true;
}

bool wf_tok_ids_room(wf_tok_ids *ids, size_t more)
{
    size_t room = ids->room + ids->room / 2 + more + 64;
    int32_t *data;

    if (ids->room - ids->count >= more)
        return true;
    data = realloc(ids->data, room * sizeof *data);
    if (!data)
        return false;
    ids->data = data;
    ids->room = room;
    return true;
}

wf_status wf_tok_ids_append(wf_tok_ids *ids, int32_t id, wf_error *error)
{
    if (!wf_tok_ids_room(ids, 1))
        return wf_error_set(error, WF_ENOMEM, "out of memory: ids of a text");
    ids->data[ids->count++] = id;
    return WF_OK;
}

void wf_tok_ids_free(wf_tok_ids *ids)
{
    free(ids->data);
    *ids = (wf_tok_ids){0};
}

void wf_tok_bytes_free(wf_tok_bytes *text)
{
    free(text->data);
    *text = (wf_tok_bytes){0};
}

wf_tok_step *wf_tok_step_add(wf_tok_step_list *list, wf_tok_step_kind kind)
{
    wf_tok_step *step = list->count < WF_TOK_MOST_STEPS ? &list->steps[list->count++] : NULL;

    if (step)
        *step = (wf_tok_step){.kind = kind,
                              .inert = kind == WF_TOK_STEP_NFC ? wf_tok_inert_new() : NULL};
    return step;
}

bool wf_tok_step_text(char **to, size_t *bytes, const char *text, size_t n)
{
    *to = malloc(n + 1);
    *bytes = n;
    if (!*to)
        return false;
    memcpy(*to, text, n);
    (*to)[n] = '\0';
    return true;
}

void wf_tok_steps_free(wf_tok_step_list *list)
{
    for (int i = 0; i < list->count; i++) {
        wf_tok_pattern_free(&list->steps[i].pattern);
        free(list->steps[i].text);
        free(list->steps[i].with);
        free(list->steps[i].inert);
    }
    list->count = 0;
}
