/* apps/tools/mesh_picture.h - a placement as text and as a picture. */
#ifndef WF_APPS_MESH_PICTURE_H
#define WF_APPS_MESH_PICTURE_H

#include <stdio.h>
#include <weft/weft.h>

typedef struct app_mesh_picture {
    const wf_placement *chosen, *transposed;
    const char *const *name; /* [n_hosts] of the hosts */
    const char *bytes_from;  /* the source of the axes' bytes */
} app_mesh_picture;

/* Hosts, who sits where, why, and what it would cost otherwise. */
void app_mesh_picture_text(const app_mesh_picture *picture, FILE *out);

/* The same as SVG. Errors: WF_EIO (file and reason). */
wf_status app_mesh_picture_svg(const app_mesh_picture *picture, const char *path,
                               wf_error *error);

/* "shard 1, tp 3": writes a rank's coordinates on the axes of more than one rank; returns
   text. */
char *app_mesh_picture_location(const wf_placement *placement, int rank, char *text,
                                size_t size);

/* The rank of a device, or -1. */
int app_mesh_picture_rank(const wf_placement *placement, int host, int device);

/* The most bytes that a host receives over the network in a step. */
double app_mesh_picture_network(const wf_placement *placement);

#endif
