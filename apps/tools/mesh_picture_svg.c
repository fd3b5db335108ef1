/*
 * apps/tools/mesh_picture_svg.c - a placement as SVG: hosts, in them packages, in them devices,
 * coloured by the group of the innermost axis that sits there; below, what each link carries.
 */
#include "apps/tools/mesh_picture.h"
#include "parallel/report/layout.h"
#include "parallel/report/svg.h"

enum {
    CELL_WIDTH = 140,
    CELL_HEIGHT = 58,
    GAP = 8,
    HEAD = 24,          /* a line of text above a box's contents */
    CELLS_IN_A_ROW = 4, /* cells of a package in a row */
    HOSTS_IN_A_ROW = 2,
    MARGIN = 20,
    ROW = 20,
    HOST_WIDTH = CELLS_IN_A_ROW * (CELL_WIDTH + GAP) + 3 * GAP
};

static void text(FILE *out, double x, double y, const char *class, const char *words)
{
    wf_svg_text(out, x, y, class, NULL, words);
}

static void box(FILE *out, double x, double y, double width, double height, const char *style)
{
    fprintf(out, "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" rx=\"5\" %s/>\n",
            x, y, width, height, style);
}

/* Returns how many devices of a package are listed from device `first` on. */
static int run_of_package(const wf_host *host, int first)
{
    int n = 0;

    while (first + n < host->n_devices &&
           host->device[first + n].package == host->device[first].package)
        n++;
    return n;
}

static int package_height(int devices)
{
    int rows = (devices + CELLS_IN_A_ROW - 1) / CELLS_IN_A_ROW;

    return HEAD + rows * (CELL_HEIGHT + GAP);
}

static int host_height(const wf_host *host)
{
    int height = HEAD + GAP;

    for (int d = 0; d < host->n_devices; d += run_of_package(host, d))
        height += package_height(run_of_package(host, d)) + GAP;
    return height;
}

/* Draws a device. Groups of the innermost axis cycle through the colours, with a long step from
   one to the next. */
static void draw_device(const wf_placement *p, int h, int d, double x, double y, FILE *out)
{
    const wf_host_device *device = &p->host[h]->device[d];
    int rank = app_mesh_picture_rank(p, h, d);
    char line[128], style[96];

    if (rank < 0)
        snprintf(style, sizeof style, "fill=\"#eeeeee\" stroke=\"#bbbbbb\"");
    else
        snprintf(style, sizeof style, "fill=\"hsl(%d, 65%%, 82%%)\" stroke=\"#666666\"",
                 rank / p->axis[p->n_axes - 1].size * 137 % 360);
    box(out, x, y, CELL_WIDTH, CELL_HEIGHT, style);
    if (rank >= 0) {
        snprintf(line, sizeof line, "rank %d", rank);
        text(out, x + 6, y + 17, "rank", line);
        text(out, x + 6, y + 32, "small",
             app_mesh_picture_location(p, rank, line, sizeof line));
    }
    snprintf(line, sizeof line, "%s%s%s", device->name, device->nic >= 0 ? ", " : "",
             device->nic >= 0 ? p->host[h]->nic[device->nic].name : "");
    text(out, x + 6, y + 49, "small", line);
}

static void draw_host(const app_mesh_picture *m, int h, double x, double y, FILE *out)
{
    const wf_host *host = m->chosen->host[h];
    char line[160];
    int n;

    box(out, x, y, HOST_WIDTH, host_height(host), "fill=\"#fafafa\" stroke=\"#333333\"");
    snprintf(line, sizeof line, "host %d: %s", h, m->name[h]);
    text(out, x + GAP, y + 17, "head", line);
    y += HEAD;
    for (int d = 0; d < host->n_devices; d += n) {
        n = run_of_package(host, d);
        box(out, x + GAP, y, HOST_WIDTH - 2 * GAP, package_height(n),
            "fill=\"#f0f2f5\" stroke=\"#aaaaaa\"");
        snprintf(line, sizeof line, "package %d", host->device[d].package);
        text(out, x + 2 * GAP, y + 16, "small", line);
        for (int i = 0; i < n; i++)
            draw_device(m->chosen, h, d + i,
                        x + 2 * GAP + i % CELLS_IN_A_ROW * (CELL_WIDTH + GAP),
                        y + HEAD + i / CELLS_IN_A_ROW * (CELL_HEIGHT + GAP), out);
        y += package_height(n) + GAP;
    }
}

static void draw_row(FILE *out, double y, const char *a, const char *b, const char *c)
{
    text(out, MARGIN, y, "line", a);
    text(out, MARGIN + 260, y, "line", b);
    text(out, MARGIN + 400, y, "line", c);
}

static void draw_bytes(const app_mesh_picture *m, double y, FILE *out)
{
    double chosen[WF_LINKS], transposed[WF_LINKS];
    char a[32], b[32];

    wf_placement_traffic(m->chosen, chosen, NULL);
    wf_placement_traffic(m->transposed, transposed, NULL);
    draw_row(out, y, "bytes of a step by link", "chosen", "transposed");
    for (int l = 0; l < WF_LINKS; l++)
        if (chosen[l] > 0 || transposed[l] > 0)
            draw_row(out, y += ROW, wf_link_name((wf_link)l), wf_size_text(a, chosen[l]),
                     wf_size_text(b, transposed[l]));
    snprintf(a, sizeof a, "%.3f ms", m->chosen->cost / m->chosen->ranks * 1e-9);
    snprintf(b, sizeof b, "%.3f ms", m->transposed->cost / m->chosen->ranks * 1e-9);
    draw_row(out, y + ROW, "nominal time of a rank", a, b);
}

static int used_links(const app_mesh_picture *m)
{
    double chosen[WF_LINKS], transposed[WF_LINKS];
    int n = 0;

    wf_placement_traffic(m->chosen, chosen, NULL);
    wf_placement_traffic(m->transposed, transposed, NULL);
    for (int l = 0; l < WF_LINKS; l++)
        n += chosen[l] > 0 || transposed[l] > 0;
    return n;
}

/* The taller of the hosts in the row that begins with h. */
static int row_height(const wf_placement *p, int h)
{
    int most = 0;

    for (int i = h; i < p->n_hosts && i < h + HOSTS_IN_A_ROW; i++)
        most = host_height(p->host[i]) > most ? host_height(p->host[i]) : most;
    return most;
}

static void draw(FILE *out, const void *arg)
{
    const app_mesh_picture *m = arg;
    const wf_placement *p = m->chosen;
    int columns = p->n_hosts < HOSTS_IN_A_ROW ? p->n_hosts : HOSTS_IN_A_ROW;
    int width = 2 * MARGIN + columns * (HOST_WIDTH + MARGIN) - MARGIN;
    int y = MARGIN, height = MARGIN + (used_links(m) + 3) * ROW;

    for (int h = 0; h < p->n_hosts; h += HOSTS_IN_A_ROW)
        height += row_height(p, h) + MARGIN;
    wf_svg_begin(out, width, height);
    for (int h = 0; h < p->n_hosts; h++) {
        draw_host(m, h, MARGIN + h % HOSTS_IN_A_ROW * (HOST_WIDTH + MARGIN), y, out);
        if (h % HOSTS_IN_A_ROW == HOSTS_IN_A_ROW - 1 || h == p->n_hosts - 1)
            y += row_height(p, h - h % HOSTS_IN_A_ROW) + MARGIN;
    }
    draw_bytes(m, y + ROW, out);
    fprintf(out, "</svg>\n");
}

wf_status app_mesh_picture_svg(const app_mesh_picture *m, const char *path, wf_error *error)
{
    return wf_svg_write(path, draw, m, error);
}
