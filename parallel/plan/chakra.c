/* parallel/plan/chakra.c - see the header. */
#include "parallel/plan/chakra_internal.h"
#include "parallel/report/layout.h"
#include "parallel/plan/chakra_file_internal.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

typedef struct traces {
    const wf_plan_request *o;
    const char *folder;
    wf_output_folder *into;
    const wf_sim_machine *machine;
    int ranks, written, planned;
    wf_step_record mesh; /* without nodes */
    double bytes;
} traces;

/* A trace of a rank that this plan does not have would be taken for one of its own. */
static wf_status check_folder(const traces *t, wf_error *error)
{
    DIR *folder;
    const struct dirent *e;
    int rank = -1, end = 0;

    folder = opendir(t->folder);
    if (!folder)
        return wf_error_set(error, WF_EIO, "cannot read folder %s: %s", t->folder,
                            strerror(errno));
    while ((e = readdir(folder)) && error->code == WF_OK)
        if (sscanf(e->d_name, "weft.%d.et%n", &rank, &end) == 1 && end &&
            (size_t)end == strlen(e->d_name) && rank >= t->ranks)
            wf_error_set(error, WF_EINVAL,
                         "%s has %s, and this plan has ranks 0 to %d alone: remove that, or "
                         "give another folder",
                         t->folder, e->d_name, t->ranks - 1);
    closedir(folder);
    return error->code;
}

/* Checks that the folder has room for all files, by the size of the first. */
static wf_status check_room(const traces *t, int rank, int files, wf_error *error)
{
    char *name, needed[32], there[32], each[32];
    struct stat s = {.st_size = 0};
    struct statvfs room;
    double all, left;

    if (asprintf(&name, "%s/weft.%d.et", t->folder, rank) < 0)
        return wf_error_set(error, WF_ENOMEM, "no memory for the name of a trace");
    if (stat(name, &s) == 0 && statvfs(t->folder, &room) == 0) {
        all = (double)s.st_size * (files - 1);
        left = (double)room.f_bavail * (double)room.f_frsize;
        if (all > left)
            wf_error_set(error, WF_EIO,
                         "traces of %d ranks take %s each, %s more, and %s has %s left: "
                         ".rank N writes the one of rank N",
                         files, wf_size_text(each, (double)s.st_size),
                         wf_size_text(needed, all), t->folder, wf_size_text(there, left));
    }
    free(name);
    return error->code;
}

static wf_status write_one(traces *t, const wf_step_record *record, int rank, int files,
                           wf_error *error)
{
    if (wf_chakra_file_write(t->into, record, rank, error) != WF_OK)
        return error->code;
    return t->written++ == 0 ? check_room(t, rank, files, error) : WF_OK;
}

/* The members of all groups, by the numbers that collectives name: what ASTRA-sim takes as its
   configuration of communicator groups. */
static json_t *groups_json(const wf_step_record *r)
{
    json_t *groups = json_object();
    char key[16];
    int first, stride;

    for (int a = 0; a <= r->axes; a++)
        for (int rank = 0; rank < r->ranks; rank++) {
            int size = a < r->axes ? r->axis_size[a] : r->ranks;
            int number = wf_step_record_group(r, a, rank, &first, &stride);
            json_t *members;

            if (first != rank || size < 2)
                continue;
            members = json_array();
            for (int i = 0; i < size; i++)
                json_array_append_new(members, json_integer(first + i * stride));
            snprintf(key, sizeof key, "%d", number);
            json_object_set_new(groups, key, members);
        }
    return groups;
}

static wf_status write_groups(const traces *t, wf_error *error)
{
    json_t *groups = groups_json(&t->mesh);
    wf_output *output;

    if (!groups)
        return wf_error_set(error, WF_ENOMEM, "no memory for the groups of a trace");
    output = wf_output_open_in(t->into, "weft.groups.json", error);
    if (output) {
        json_dumpf(groups, wf_output_stream(output), JSON_COMPACT);
        fputc('\n', wf_output_stream(output));
        wf_output_publish(output, error);
    }
    json_decref(groups);
    return error->code;
}

static wf_status plan_one(traces *t, int rank, wf_step_record *record, wf_error *error)
{
    t->planned++;
    if (wf_step_record_make(t->o, t->machine, rank, &t->mesh, record, error) == WF_OK) {
        t->mesh = *record;
        t->mesh.count = 0;
    }
    return error->code;
}

static wf_status write_alone(traces *t, int rank, int files, wf_error *error)
{
    wf_step_record record;

    if (plan_one(t, rank, &record, error) == WF_OK)
        write_one(t, &record, rank, files, error);
    wf_step_record_free(&record);
    return error->code;
}

/*
 * The ranks of a pipeline coordinate. What is split over n ranks is cut at i L / n, so the
 * first part is the smallest and the last the largest: where the first and the last rank do the
 * same, so do all between them; else each is planned.
 */
static wf_status write_alike(traces *t, int first, int count, wf_error *error)
{
    wf_step_record record, last = {.count = 0};
    bool alike;

    if (plan_one(t, first, &record, error) == WF_OK && count > 1)
        plan_one(t, first + count - 1, &last, error);
    alike = error->code == WF_OK && (count == 1 || wf_step_record_alike(&record, &last));
    wf_step_record_free(&last);
    for (int i = 0; i < count && alike && error->code == WF_OK; i++)
        write_one(t, &record, first + i, t->ranks, error);
    wf_step_record_free(&record);
    for (int i = 0; i < count && !alike && error->code == WF_OK; i++)
        write_alone(t, first + i, t->ranks, error);
    return error->code;
}

wf_status wf_chakra_write(const wf_plan_request *o, const wf_sim_machine *machine, FILE *out,
                          wf_error *error)
{
    int ranks = (int)wf_plan_ranks(o), each = ranks / (int)o->pp;
    traces t = {.o = o, .folder = o->chakra, .machine = machine, .ranks = ranks};

    if (!wf_chakra_is_built())
        return wf_error_set(error, WF_EUNSUPPORTED,
                            ".chakra needs protobuf-c, and this program was built without it: "
                            "install it (Debian: libprotobuf-c-dev and protobuf-c-compiler; "
                            "scripts/install_packages.sh does), and build again");
    t.into = wf_output_folder_open(o->chakra, error);
    if (t.into)
        check_folder(&t, error);
    if (error->code == WF_OK && o->rank_given)
        write_alone(&t, (int)o->rank, 1, error);
    for (int p = 0; p < o->pp && !o->rank_given && error->code == WF_OK; p++)
        write_alike(&t, p * each, each, error);
    if (error->code == WF_OK && write_groups(&t, error) == WF_OK)
        fprintf(out,
                "%s: %d execution trace%s of %d ranks, of %d plans, and weft.groups.json\n",
                t.folder, t.written, t.written == 1 ? "" : "s", ranks, t.planned);
    wf_output_folder_close(t.into);
    return error->code;
}
