/* parallel/models/gpt/hf_unknown.c - the keys of a config.json that no row of hf_config.def
   knows; see hf_config_internal.h. */
#include "parallel/models/gpt/hf_config_internal.h"
#include <stdio.h>
#include <string.h>

enum { UNKNOWN = 512 };

/* Adds the keys that no row knows to a list; those of an object that rows look into as well.
   null says nothing. */
static void list_unknown(const wf_hf_family *family, const char *above, const json_t *object,
                         char list[UNKNOWN])
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        char path[WF_HF_PATH];
        size_t used = strlen(list);

        if (!wf_json_printable(key) ||
            snprintf(path, sizeof path, "%s%s", above, key) >= (int)sizeof path)
            snprintf(path, sizeof path, "a key that cannot be printed");
        if (strchr(key, '.')) { /* no key, where paths have dots */
            snprintf(list + used, UNKNOWN - used, "%s\"%s\"", used ? ", " : "", key);
        } else if (json_is_object(value) && wf_hf_key_has_members(family, path)) {
            strncat(path, ".", sizeof path - strlen(path) - 1);
            list_unknown(family, path, value, list);
        } else if (!json_is_null(value) && !wf_hf_key_known(family, path)) {
            snprintf(list + used, UNKNOWN - used, "%s%s", used ? ", " : "", path);
        }
    }
}

wf_status wf_hf_check_unknown(const wf_json_source *s, const wf_hf_family *family)
{
    char list[UNKNOWN] = "";

    list_unknown(family, "", s->object, list);
    if (!*list)
        return WF_OK;
    return wf_error_set(s->error, WF_EUNSUPPORTED,
                        "%s: Weft does not know what these keys say of a %s: %s; where they "
                        "change nothing of what is computed, remove them from the file",
                        s->name, family->type, list);
}
