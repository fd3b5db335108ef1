/* apps/tools/mesh_info.c - who would sit where: see mesh_info --help. */
#include "apps/tools/mesh_picture.h"
#include "core/files/input.h"
#include "apps/program.h"
#include "parallel/program/unknown_flag.h"
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HOSTS = 1024 };

enum { PP, REPLICATE, SHARD, EP, TP, AXES };

typedef struct request {
    wf_host_options host;
    const char *topology[MOST_HOSTS];
    int topologies;
    const char *plan, *svg;
    double n_hosts, tp, dp, replicate, bytes_tp, bytes_dp, network;
    bool help;
} request;

/* Everything read and found, to be freed together. */
typedef struct session {
    wf_host *read[MOST_HOSTS];
    const wf_host *host[MOST_HOSTS];
    const char *name[MOST_HOSTS];
    int n_hosts;
    wf_placement_axis axis[AXES]; /* n_axes of them: without ep where it is 1 */
    int n_axes;
    char bytes_from[256];
    wf_placement chosen, transposed;
} session;

static const char help_text[] =
    "mesh_info - place the ranks of a mesh on the devices of hosts\n"
    "\n"
    "Usage: mesh_info [--hosts N] [--topology MACHINE]... [--tp N] [--dp N] ...\n"
    "\n"
    "Places the ranks of a mesh on the devices of hosts, draws who sits where, and says why\n"
    "and what it would cost otherwise. Without --topology the host is this machine.\n"
    "\n"
    "  --topology MACHINE    a file in hwloc's XML, or hwloc's synthetic text; once for each\n"
    "                        host, the last one for all hosts that are left\n"
    "  --hosts N             how many (default: as many as --topology was given)\n"
    "  --devices KIND        auto (GPUs where there are any), gpus or cores\n"
    "  --nvlink              the GPUs of a host are joined by NVLink, though its description\n"
    "                        does not say so (hwloc without NVML cannot know)\n"
    "  --tp N, --dp N        ranks along the axes, as in gpt_train\n"
    "  --dp-replicate N      of --dp: groups that hold the same\n"
    "  --plan FILE           take sizes and bytes from gpt_train --plan --json FILE\n"
    "  --bytes-tp BYTES      that a rank receives over tp in a step (default: 1e8, assumed)\n"
    "  --bytes-dp BYTES      the same over each axis of data parallelism (default: 2e7)\n"
    "  --network GBIT        speed of a host's link, in Gbit/s (default: 50)\n"
    "  --svg FILE            draw it as a picture too\n"
    "  --version             version, commit, compiler and what is built in\n"
    "\n"
    "Examples\n"
    "  mesh_info --tp 2                                        cores of this machine\n"
    "  mesh_info --hosts 4 --topology dgx.xml --tp 8 --dp 4 --svg mesh.svg\n"
    "  mesh_info --hosts 2 --topology 'pack:2 l3:1 core:8 pu:1' --tp 4 --dp 8\n"
    "  gpt_train --plan --tp 8 --dp 4 --json plan.json && \\\n"
    "    mesh_info --hosts 4 --topology dgx.xml --plan plan.json\n"
    "\n"
    "Exit status: 0, also with a warning; 2 for a mistake in the flags, 3 for a file.\n";

static wf_status number(const char *flag, const char *text, double least, double *value,
                        wf_error *error)
{
    char *end;

    *value = strtod(text, &end);
    if (end == text || *end || !(*value >= least && *value <= 1e18))
        return wf_error_set(error, WF_EINVAL, "--%s %s: a number of at least %g", flag, text,
                            least);
    return WF_OK;
}

static wf_status count(const char *flag, const char *text, double *value, wf_error *error)
{
    wf_status status = number(flag, text, 1, value, error);

    if (status == WF_OK && (*value > 4096 || *value != (int)*value))
        return wf_error_set(error, WF_EINVAL, "--%s %s: a whole number from 1 to 4096", flag,
                            text);
    return status;
}

static wf_status set_devices(const char *word, wf_device_choice *choice, wf_error *error)
{
    static const char *const words[] = {"auto", "gpus", "cores"};

    for (int i = 0; i < 3; i++)
        if (strcmp(word, words[i]) == 0) {
            *choice = (wf_device_choice)i;
            return WF_OK;
        }
    return wf_error_set(error, WF_EINVAL, "--devices %s: auto, gpus or cores", word);
}

static wf_status set_flag(request *q, int flag, const char *value, wf_error *error)
{
    switch (flag) {
    case 'h':
        return count("hosts", value, &q->n_hosts, error);
    case 't':
        return count("tp", value, &q->tp, error);
    case 'd':
        return count("dp", value, &q->dp, error);
    case 'r':
        return count("dp-replicate", value, &q->replicate, error);
    case 'T':
        return number("bytes-tp", value, 0, &q->bytes_tp, error);
    case 'D':
        return number("bytes-dp", value, 0, &q->bytes_dp, error);
    case 'N':
        return number("network", value, 1e-3, &q->network, error);
    case 'k':
        return set_devices(value, &q->host.devices, error);
    case 'm':
        if (q->topologies == MOST_HOSTS)
            return wf_error_set(error, WF_EINVAL, "more than %d hosts", MOST_HOSTS);
        q->topology[q->topologies++] = value;
        return WF_OK;
    case 'p':
        q->plan = value;
        return WF_OK;
    case 's':
        q->svg = value;
        return WF_OK;
    case 'n':
        q->host.nvlink = true;
        return WF_OK;
    default:
        q->help = true;
        return WF_OK;
    }
}

static wf_status parse(int argc, char **argv, request *q, wf_error *error)
{
    static const struct option flags[] = {
        {"hosts", 1, NULL, 'h'},        {"topology", 1, NULL, 'm'}, {"tp", 1, NULL, 't'},
        {"dp", 1, NULL, 'd'},           {"plan", 1, NULL, 'p'},     {"svg", 1, NULL, 's'},
        {"dp-replicate", 1, NULL, 'r'}, {"bytes-tp", 1, NULL, 'T'}, {"bytes-dp", 1, NULL, 'D'},
        {"network", 1, NULL, 'N'},      {"devices", 1, NULL, 'k'},  {"nvlink", 0, NULL, 'n'},
        {"help", 0, NULL, 'H'},         {NULL, 0, NULL, 0}};
    wf_status status = WF_OK;
    int flag;

    opterr = 0;
    while (status == WF_OK && (flag = getopt_long(argc, argv, "", flags, NULL)) != -1)
        status = flag == '?' ? wf_flag_refused("mesh_info", argc, argv, flags, error)
                             : set_flag(q, flag, optarg, error);
    if (status == WF_OK && optind < argc)
        return wf_error_set(error, WF_EINVAL, "unexpected argument '%s'; see mesh_info --help",
                            argv[optind]);
    if (status == WF_OK && q->plan &&
        (q->tp > 0 || q->dp > 0 || q->replicate > 0 || q->bytes_tp >= 0 || q->bytes_dp >= 0))
        return wf_error_set(error, WF_EINVAL,
                            "--plan says sizes and bytes, so --tp, --dp, --dp-replicate, "
                            "--bytes-tp and --bytes-dp cannot be given with it");
    if (status == WF_OK && q->n_hosts > 0 && q->n_hosts < q->topologies)
        return wf_error_set(error, WF_EINVAL, "--hosts %.0f, but %d machines are given",
                            q->n_hosts, q->topologies);
    return status;
}

static wf_status read_plan(session *s, const char *path, wf_error *error)
{
    json_error_t why;
    FILE *file = wf_input_open(path);
    json_t *plan, *mesh, *collectives, *row;
    size_t i;

    if (!file)
        return wf_error_set(error, WF_EIO, "cannot read %s: %s", path, strerror(errno));
    plan = json_loadf(file, 0, &why);
    fclose(file);
    mesh = json_object_get(plan, "mesh");
    collectives = json_object_get(plan, "collectives");
    if (!json_is_object(mesh) || !json_is_array(collectives)) {
        json_decref(plan);
        return wf_error_set(error, WF_EIO,
                            "%s is not a plan that gpt_train --plan --json wrote%s%s", path,
                            plan ? "" : ": ", plan ? "" : why.text);
    }
    for (int a = 0; a < AXES; a++) {
        const json_t *size = json_object_get(mesh, s->axis[a].name);

        s->axis[a].size = size ? (int)json_integer_value(size) : 1;
        s->axis[a].bytes = 0;
        json_array_foreach(collectives, i, row)
        {
            const char *axis = json_string_value(json_object_get(row, "axis"));

            if (axis && strcmp(axis, s->axis[a].name) == 0)
                s->axis[a].bytes += json_number_value(json_object_get(row, "bytes"));
        }
    }
    snprintf(s->bytes_from, sizeof s->bytes_from, "from %s", path);
    json_decref(plan);
    return WF_OK;
}

static wf_status fill_axes(session *s, const request *q, wf_error *error)
{
    static const char *const names[AXES] = {"pp", "replicate", "shard", "ep", "tp"};
    int dp = q->dp > 0 ? (int)q->dp : 1, replicate = q->replicate > 0 ? (int)q->replicate : 1;
    double bytes_dp = q->bytes_dp < 0 ? 2e7 : q->bytes_dp;

    for (int a = 0; a < AXES; a++)
        s->axis[a] = (wf_placement_axis){names[a], 1, bytes_dp};
    if (q->plan)
        return read_plan(s, q->plan, error);
    if (dp % replicate)
        return wf_error_set(error, WF_EINVAL, "--dp-replicate %d does not divide --dp %d",
                            replicate, dp);
    s->axis[REPLICATE].size = replicate;
    s->axis[SHARD].size = dp / replicate;
    s->axis[TP] = (wf_placement_axis){"tp", q->tp > 0 ? (int)q->tp : 1,
                                      q->bytes_tp < 0 ? 1e8 : q->bytes_tp};
    snprintf(s->bytes_from, sizeof s->bytes_from, "%s",
             q->bytes_tp < 0 || q->bytes_dp < 0 ? "assumed: --plan knows them" : "as given");
    return WF_OK;
}

/* The axis of experts is one where a plan has it. */
static wf_status set_axes(session *s, const request *q, wf_error *error)
{
    wf_status status = fill_axes(s, q, error);

    s->n_axes = AXES;
    if (s->axis[EP].size == 1) {
        s->axis[EP] = s->axis[TP];
        s->n_axes = AXES - 1;
    }
    return status;
}

static wf_status read_hosts(session *s, const request *q, wf_error *error)
{
    wf_status status = WF_OK;

    s->n_hosts = q->n_hosts > 0 ? (int)q->n_hosts : q->topologies ? q->topologies : 1;
    if (s->n_hosts > MOST_HOSTS)
        return wf_error_set(error, WF_EINVAL, "%d hosts; %d at most", s->n_hosts, MOST_HOSTS);
    for (int h = 0; status == WF_OK && h < s->n_hosts; h++) {
        wf_host_options options = q->host;

        if (h && h >= q->topologies) {
            s->host[h] = s->host[h - 1];
            s->name[h] = s->name[h - 1];
            continue;
        }
        options.source = q->topologies ? q->topology[h] : NULL;
        status = wf_host_read(&options, &s->read[h], error);
        s->host[h] = s->read[h];
        s->name[h] = options.source ? options.source : "this machine";
    }
    return status;
}

static wf_status find_placement(session *s, const request *q, wf_error *error)
{
    const wf_placement_options options = {.n_hosts = s->n_hosts,
                                          .n_axes = s->n_axes,
                                          .host = s->host,
                                          .axis = s->axis,
                                          .network_gbit = q->network};
    app_mesh_picture picture = {&s->chosen, &s->transposed, s->name, s->bytes_from};
    char warning[512];
    wf_status status = wf_placement_find(&options, &s->chosen, error);

    if (status == WF_OK)
        status = wf_placement_transposed(&s->chosen, &s->transposed, error);
    if (status != WF_OK)
        return status;
    app_mesh_picture_text(&picture, stdout);
    fflush(stdout);
    if (wf_placement_warning(&s->chosen, warning, sizeof warning))
        fprintf(stderr, "mesh_info: warning: %s\n", warning);
    return q->svg ? app_mesh_picture_svg(&picture, q->svg, error) : WF_OK;
}

int main(int argc, char **argv)
{
    static request q = {.bytes_tp = -1, .bytes_dp = -1};
    static session s;
    wf_error error = {WF_OK, ""};
    wf_status status;

    app_program_begin();
    if (app_program_version_asked("mesh_info", argc, argv))
        return app_program_end("mesh_info", 0);
    status = parse(argc, argv, &q, &error);
    if (status == WF_OK && q.help) {
        fputs(help_text, stdout);
        return app_program_end("mesh_info", 0);
    }
    if (status == WF_OK)
        status = set_axes(&s, &q, &error);
    if (status == WF_OK)
        status = read_hosts(&s, &q, &error);
    if (status == WF_OK)
        status = find_placement(&s, &q, &error);
    wf_placement_free(&s.chosen);
    wf_placement_free(&s.transposed);
    for (int h = 0; h < s.n_hosts && h < MOST_HOSTS; h++)
        wf_host_free(s.read[h]);
    if (status == WF_OK)
        return app_program_end("mesh_info", 0);
    app_program_error("mesh_info", &error);
    return status == WF_EINVAL ? 2 : status == WF_EIO ? 3 : 1;
}
