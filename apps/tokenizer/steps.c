/* apps/tokenizer/steps.c - lists of steps, and texts that grow. */
#include "apps/tokenizer/encode_internal.h"
#include <stdlib.h>
#include <string.h>

bool app_tokenizer_bytes_add(app_tokenizer_bytes *text, const void *bytes, size_t n)
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

bool app_tokenizer_ids_room(app_tokenizer_ids *ids, size_t more)
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

wf_status app_tokenizer_ids_append(app_tokenizer_ids *ids, int32_t id, wf_error *error)
{
    if (!app_tokenizer_ids_room(ids, 1))
        return wf_error_set(error, WF_ENOMEM, "out of memory: ids of a text");
    ids->data[ids->count++] = id;
    return WF_OK;
}

void app_tokenizer_ids_free(app_tokenizer_ids *ids)
{
    free(ids->data);
    *ids = (app_tokenizer_ids){0};
}

void app_tokenizer_bytes_free(app_tokenizer_bytes *text)
{
    free(text->data);
    *text = (app_tokenizer_bytes){0};
}

app_step *app_step_add(app_step_list *list, app_step_kind kind)
{
    app_step *step = list->count < APP_MOST_STEPS ? &list->steps[list->count++] : NULL;

    if (step)
        *step =
            (app_step){.kind = kind, .inert = kind == APP_STEP_NFC ? app_inert_new() : NULL};
    return step;
}

bool app_step_text(char **to, size_t *bytes, const char *text, size_t n)
{
    *to = malloc(n + 1);
    *bytes = n;
    if (!*to)
        return false;
    memcpy(*to, text, n);
    (*to)[n] = '\0';
    return true;
}

void app_steps_free(app_step_list *list)
{
    for (int i = 0; i < list->count; i++) {
        app_pattern_free(&list->steps[i].pattern);
        free(list->steps[i].text);
        free(list->steps[i].with);
        free(list->steps[i].inert);
    }
    list->count = 0;
}
