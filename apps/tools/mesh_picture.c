/* apps/tools/mesh_picture.c - a placement as text. */
#include "apps/tools/mesh_picture.h"
#include "parallel/report/layout.h"
#include <stdlib.h>
#include <string.h>

int app_mesh_picture_rank(const wf_placement *p, int host, int device)
{
    for (int r = 0; r < p->ranks; r++)
        if (p->seat[r].host == host && p->seat[r].device == device)
            return r;
    return -1;
}

char *app_mesh_picture_location(const wf_placement *p, int rank, char *text, size_t size)
{
    int stride = p->ranks;
    size_t used = 0;

    *text = '\0';
    for (int a = 0; a < p->n_axes; a++) {
        stride /= p->axis[a].size;
        if (p->axis[a].size > 1 && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s %d", used ? ", " : "",
                                     p->axis[a].name, rank / stride % p->axis[a].size);
    }
    return text;
}

double app_mesh_picture_network(const wf_placement *p)
{
    double bytes[WF_LINKS], most = 0, *network = calloc((size_t)p->n_hosts, sizeof *network);

    if (!network)
        return 0;
    wf_placement_traffic(p, bytes, network);
    for (int h = 0; h < p->n_hosts; h++)
        most = network[h] > most ? network[h] : most;
    free(network);
    return most;
}

static void print_device(const wf_placement *p, int host, int d, FILE *out)
{
    const wf_host_device *device = &p->host[host]->device[d];
    int rank = app_mesh_picture_rank(p, host, d);
    char location[96];

    fprintf(out, "    %-8s %-13s", device->name, device->bus);
    if (rank < 0)
        fprintf(out, "free");
    else
        fprintf(out, "rank %-4d %s", rank,
                app_mesh_picture_location(p, rank, location, sizeof location));
    if (device->nic >= 0)
        fprintf(out, "; network by %s (%s)", p->host[host]->nic[device->nic].name,
                wf_link_name(device->nic_link));
    fprintf(out, "\n");
}

static void print_host(const app_mesh_picture *m, int h, FILE *out)
{
    const wf_placement *p = m->chosen;
    const wf_host *host = p->host[h];
    int package = -1;

    fprintf(out, "host %d, %s: %d package%s, %d %s, %d network card%s\n", h, m->name[h],
            host->packages, host->packages == 1 ? "" : "s", host->n_devices,
            host->gpus ? "GPUs" : "cores", host->n_nics, host->n_nics == 1 ? "" : "s");
    for (int d = 0; d < host->n_devices; d++) {
        if (host->device[d].package != package)
            fprintf(out, "  package %d\n", package = host->device[d].package);
        print_device(p, h, d, out);
    }
}

/* "tp: 4 groups of 8: 4 inside nvlink; each rank receives 160 MiB a step" */
static void print_axis(const wf_placement *p, int axis, FILE *out)
{
    const wf_placement_axis *a = &p->axis[axis];
    int count[WF_LINKS];
    const char *before = "";
    char size[32];

    if (a->size == 1)
        return;
    wf_placement_groups(p, axis, count);
    fprintf(out, "  %s: %d group%s of %d, worst link ", a->name, p->ranks / a->size,
            p->ranks == a->size ? "" : "s", a->size);
    for (int l = 0; l < WF_LINKS; l++)
        if (count[l]) {
            fprintf(out, "%s%s", before, wf_link_name((wf_link)l));
            if (count[l] != p->ranks / a->size)
                fprintf(out, " in %d", count[l]);
            before = ", ";
        }
    fprintf(out, "; each rank receives %s a step\n", wf_size_text(size, a->bytes));
}

static void print_why(const app_mesh_picture *m, FILE *out)
{
    const wf_placement *p = m->chosen;

    fprintf(out,
            "\nwhy: %s; a group costs its bytes times the weight of its worst link\n"
            "(bytes of a step %s)\n",
            p->exhaustive
                ? "the cheapest of all placements"
                : "groups packed most tightly, the cheapest over all axes to begin with",
            m->bytes_from);
    for (int a = p->n_axes - 1; a >= 0; a--)
        print_axis(p, a, out);
}

static void print_row(FILE *out, const char *what, double chosen, double transposed)
{
    char a[32], b[32];

    fprintf(out, "  %-32s %14s %14s\n", what, wf_size_text(a, chosen),
            wf_size_text(b, transposed));
}

static void print_alternative(const app_mesh_picture *m, FILE *out)
{
    double chosen[WF_LINKS], transposed[WF_LINKS];
    const wf_placement *p = m->chosen, *t = m->transposed;

    wf_placement_traffic(p, chosen, NULL);
    wf_placement_traffic(t, transposed, NULL);
    fprintf(out, "\n  %-32s %14s %14s\n", "bytes of a step by link", "chosen", "transposed");
    for (int l = 0; l < WF_LINKS; l++)
        if (chosen[l] > 0 || transposed[l] > 0)
            print_row(out, wf_link_name((wf_link)l), chosen[l], transposed[l]);
    if (p->n_hosts > 1)
        print_row(out, "into one host, at most", app_mesh_picture_network(p),
                  app_mesh_picture_network(t));
    fprintf(out, "  %-32s %11.3f ms %11.3f ms\n", "nominal time of a rank",
            p->cost / p->ranks * 1e-9, t->cost / t->ranks * 1e-9);
}

void app_mesh_picture_text(const app_mesh_picture *m, FILE *out)
{
    const wf_placement *p = m->chosen;
    const char *before = "";

    fprintf(out, "%d rank%s: ", p->ranks, p->ranks == 1 ? "" : "s");
    for (int a = 0; a < p->n_axes; a++) {
        fprintf(out, "%s%s %d", before, p->axis[a].name, p->axis[a].size);
        before = " x ";
    }
    fprintf(out, "\n\n");
    for (int h = 0; h < p->n_hosts; h++)
        print_host(m, h, out);
    print_why(m, out);
    print_alternative(m, out);
}
