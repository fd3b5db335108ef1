/* apps/tools/mesh_picture.h - a placement as text and as a picture. */
#ifndef WF_APPS_MESH_PICTURE_H
#define WF_APPS_MESH_PICTURE_H

#include <stdio.h>
#include <weft/weft.h>

typedef struct wf_mesh_picture {
    const wf_placement *chosen, *transposed;
    const char *const *name; /* [n_hosts] of the hosts */
    const char *bytes_from;  /* where the bytes of the axes come from */
} wf_mesh_picture;

/* Hosts, who sits where, why, and what it would cost otherwise. */
void wf_mesh_picture_text(const wf_mesh_picture *picture, FILE *out);

/* The same as SVG. Errors: WF_EIO (file and reason). */
wf_status wf_mesh_picture_svg(const wf_mesh_picture *picture, const char *path,
                              wf_error *error);

/* "shard 1, tp 3": a rank's place along the axes of more than one rank; returns text. */
char *wf_mesh_picture_place(const wf_placement *placement, int rank, char *text, size_t size);

/* The rank of a device, or -1. */
int wf_mesh_picture_rank(const wf_placement *placement, int host, int device);

/* The most bytes that a host receives over the network in a step. */
double wf_mesh_picture_network(const wf_placement *placement);

#endif
