/* apps/gpt_data/encoded.c - the token ids of a block's documents (encoded.h). */
#include "apps/gpt_data/encoded.h"
#include <stdlib.h>

void *app_encoded_new(void *arg)
{
    (void)arg;
    return calloc(1, sizeof(app_encoded));
}

void app_encoded_free(void *result)
{
    app_encoded *e = result;

    wf_tok_ids_free(&e->ids);
    wf_tok_ids_free(&e->trained);
    free(e->ends);
    free(e);
}

wf_status app_encoded_end(app_encoded *e, wf_error *error)
{
    if (e->count == e->room) {
        size_t room = 2 * e->room + 64, *ends = realloc(e->ends, room * sizeof *ends);

        if (!ends)
            return wf_error_set(error, WF_ENOMEM, "out of memory: documents of a block");
        e->ends = ends;
        e->room = room;
    }
    e->ends[e->count++] = e->ids.count;
    return WF_OK;
}

void app_encoded_clear(app_encoded *e)
{
    e->count = 0;
    e->ones = 0;
    e->ids.count = e->trained.count = 0;
}
