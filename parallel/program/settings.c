/* parallel/program/settings.c - settings of a run that checkpoints keep; see
   services_internal.h. */
#include "core/status.h"
#include "parallel/program/services_internal.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

char *wf_services_settings(wf_services *s)
{
    wf_flag flags[WF_FLAGS + 1] = {{NULL, 0, NULL, 0, 0, NULL, NULL, NULL}};
    int n = 0;

    for (const wf_flag *own = s->program->flags; own && own->name && n < WF_FLAGS - 1; own++)
        flags[n++] = *own;
    wf_services_list_training(s, flags, &n, WF_FLAGS - 1);
    flags[n++] =
        (wf_flag){.name = "steps", .kind = WF_FLAG_COUNT, .value = &s->program->job.steps};
    return wf_flags_json(flags);
}

void wf_services_report_settings(void *services, const wf_par_checkpoint *checkpoint)
{
    const wf_services *s = services;
    const char *saved = wf_par_checkpoint_option(checkpoint, "settings"), *name;
    json_t *there = saved ? json_loads(saved, 0, NULL) : NULL, *value;
    json_t *here = json_loads(s->settings, 0, NULL);

    json_object_foreach(here, name, value)
    {
        json_t *before = json_object_get(there, name);
        char *a = before && !json_equal(before, value)
                      ? json_dumps(before, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10))
                      : NULL;
        char *b = a ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10)) : NULL;

        if (b)
            wf_par_report_line(NULL, "from here on --%s is %s; the checkpoint was made with %s",
                               name, b, wf_text_visible(a));
        free(a);
        free(b);
    }
    json_decref(here);
    json_decref(there);
}
