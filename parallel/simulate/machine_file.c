/* parallel/simulate/machine_file.c - machine files: JSON in and out; see the header. */
#include "core/files/output.h"
#include "core/shape.h"
#include "parallel/simulate/machine_internal.h"
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { VERSION = 1 };

typedef enum field_kind { NUMBER, WHOLE, SWITCH } field_kind;

/* A field by its path, where it lies, and its range; what is optional is 0 where it is missing.
   Rates and bandwidths have a least value, for who takes one to be in TFLOP/s or GB/s. */
typedef struct field {
    const char *group, *name;
    size_t offset;
    field_kind kind;
    bool optional;
    double least, most;
} field;

#define AT(member) offsetof(wf_sim_machine, member)

_Static_assert((int)WF_DTYPES <= WF_SIM_DTYPES, "a machine has a rate of each type");

static const field fields[] = {
    {"device", "memory", AT(memory), NUMBER, false, 1, 1e18},
#define AS_WIDE(name, word)                                                                    \
    {"device", word, AT(rate[WF_##name]), NUMBER, WF_##name != WF_BF16, 1e6, 1e21},
#define AS_NARROW(name, word) AS_WIDE(name, word)
#define AS_BLOCKS(name, word)
#define AS_OTHER(name, word)
#define DTYPE(name, type, text, word, kind, file) AS_##kind(name, word)
#include "core/dtype.def"
#undef DTYPE
    {"device", "products", AT(products), NUMBER, false, 1e-3, 1},
    {"device", "attention", AT(attention), NUMBER, false, 1e-3, 1},
    {"device", "bandwidth", AT(bandwidth), NUMBER, false, 1e6, 1e18},
    {"device", "launch", AT(launch), NUMBER, true, 0, 1},
    {"host", "devices", AT(devices), WHOLE, false, 1, 1 << 20},
    {"host", "cores", AT(cores), WHOLE, true, 0, 1 << 20},
    {"host", "background", AT(background), SWITCH, false, 0, 1},
    {"inside", "bandwidth", AT(inside.bandwidth), NUMBER, false, 1e6, 1e18},
    {"inside", "latency", AT(inside.latency), NUMBER, false, 0, 1},
    {"network", "bandwidth", AT(network.bandwidth), NUMBER, false, 1e6, 1e18},
    {"network", "latency", AT(network.latency), NUMBER, false, 0, 1},
};

enum { FIELDS = sizeof fields / sizeof *fields };

static wf_status wrong(const char *path, const field *f, const char *what, wf_error *error)
{
    return wf_error_set(error, WF_EDATA, "machine file %s: %s.%s %s", path, f->group, f->name,
                        what);
}

static wf_status read_field(const char *path, const json_t *json, const field *f,
                            wf_sim_machine *m, wf_error *error)
{
    const json_t *value = json_object_get(json_object_get(json, f->group), f->name);
    char *at = (char *)m + f->offset, range[96];
    double number = json_number_value(value);

    if (!value)
        return f->optional ? WF_OK : wrong(path, f, "is missing", error);
    if (f->kind == SWITCH) {
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value) ? WF_OK : wrong(path, f, "is not true or false", error);
    }
    snprintf(range, sizeof range, "is %g: give a number from %g to %g%s", number, f->least,
             f->most,
             strcmp(f->name, "bandwidth") == 0 ? ", in bytes/s"
             : f->most >= 1e21                 ? ", in FLOP/s"
                                               : "");
    if (!json_is_number(value) ||
        (!(number >= f->least && number <= f->most) && !(f->optional && number == 0)))
        return wrong(path, f, json_is_number(value) ? range : "is not a number", error);
    if (f->kind == NUMBER)
        *(double *)at = number;
    else if (number == (double)(int)number)
        *(int *)at = (int)number;
    else
        return wrong(path, f, "is not a whole number", error);
    return WF_OK;
}

static bool is_known(const char *group, const char *name)
{
    for (int i = 0; i < FIELDS; i++)
        if (strcmp(fields[i].group, group) == 0 && (!name || strcmp(fields[i].name, name) == 0))
            return true;
    return false;
}

/* Refuses unknown names, which are misspelt. Text is welcome as "sources" and "notes". */
static wf_status check_names(const char *path, json_t *json, wf_error *error)
{
    const char *group, *name;
    json_t *value, *inner;

    json_object_foreach(json, group, value)
    {
        if (strcmp(group, "weft_machine") == 0 || strcmp(group, "name") == 0 ||
            strcmp(group, "sources") == 0 || strcmp(group, "notes") == 0)
            continue;
        if (!is_known(group, NULL))
            return wf_error_set(error, WF_EDATA, "machine file %s: nothing is called %s", path,
                                group);
        json_object_foreach(value, name, inner) if (!is_known(group, name)) return wf_error_set(
            error, WF_EDATA, "machine file %s: nothing is called %s.%s", path, group, name);
    }
    return WF_OK;
}

static wf_status read_all(const char *path, json_t *json, wf_sim_machine *m, wf_error *error)
{
    const char *name = json_string_value(json_object_get(json, "name"));

    *m = (wf_sim_machine){.name = ""};
    if (json_integer_value(json_object_get(json, "weft_machine")) != VERSION)
        return wf_error_set(error, WF_EDATA,
                            "machine file %s: it begins with \"weft_machine\": %d, which this "
                            "one does not have",
                            path, VERSION);
    snprintf(m->name, sizeof m->name, "%s", name ? name : path);
    wf_text_visible(m->name);
    for (char *c = m->name; *c; c++)
        *c = *c == '\n' || *c == '\t' ? '?' : *c;
    if (check_names(path, json, error) != WF_OK)
        return error->code;
    for (int i = 0; i < FIELDS; i++)
        if (read_field(path, json, &fields[i], m, error) != WF_OK)
            return error->code;
    return WF_OK;
}

static wf_status take(const char *path, json_t *json, const json_error_t *read,
                      wf_sim_machine *m, wf_error *error)
{
    json_error_t why = *read;

    if (!json)
        return wf_error_set(error, why.line < 0 ? WF_EIO : WF_EDATA,
                            "machine file %s: %s (line %d)", path, why.text,
                            why.line < 0 ? 0 : why.line);
    read_all(path, json, m, error);
    json_decref(json);
    return error->code;
}

wf_status wf_sim_machine_read(const char *path, wf_sim_machine *m, wf_error *error)
{
    json_error_t why;
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &why);

    return take(path, json, &why, m, error);
}

wf_status wf_sim_machine_parse(const char *path, const char *text, size_t bytes,
                               wf_sim_machine *m, wf_error *error)
{
    json_error_t why;
    json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);

    return take(path, json, &why, m, error);
}

wf_status wf_sim_machine_write(const wf_sim_machine *m, const char *path, wf_error *error)
{
    json_t *json = json_pack("{s:i, s:s, s:{}, s:{}, s:{}, s:{}}", "weft_machine", VERSION,
                             "name", m->name, "device", "host", "inside", "network");
    wf_output *output = json ? wf_output_open(path, error) : NULL;

    for (int i = 0; json && i < FIELDS; i++) {
        const char *at = (const char *)m + fields[i].offset;
        json_t *value;

        if (fields[i].kind == NUMBER && !isfinite(*(const double *)at)) {
            json_decref(json);
            return wf_error_set(error, WF_ENONFINITE,
                                "machine file %s: %s.%s is %g, which JSON cannot hold", path,
                                fields[i].group, fields[i].name, *(const double *)at);
        }
        value = fields[i].kind == NUMBER  ? json_real(*(const double *)at)
                : fields[i].kind == WHOLE ? json_integer(*(const int *)at)
                                          : json_boolean(*(const bool *)at);

        json_object_set_new(json_object_get(json, fields[i].group), fields[i].name, value);
    }
    if (!json)
        return wf_error_set(error, WF_ENOMEM, "no memory for machine file %s", path);
    if (output) {
        json_dumpf(json, wf_output_stream(output), JSON_INDENT(2));
        wf_output_publish(output, error);
    }
    json_decref(json);
    return error->code;
}
