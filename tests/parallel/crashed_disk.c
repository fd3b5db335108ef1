/*
 * tests/parallel/crashed_disk.c - the disk as it may be after a crash among recorded calls: see
 * recorded_files.h.
 */
#include "tests/parallel/recording.h"
#include "core/numerics/bits.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A disk after a crash: names and bytes. */
typedef struct names {
    int count;
    char name[32][64];
    int node[32];
} names;

typedef struct disk {
    names names[MOST_NODES];
    char *bytes[MOST_NODES];
    int64_t size[MOST_NODES];
} disk;

static int find_name(const names *n, const char *name)
{
    for (int i = 0; i < n->count; i++)
        if (strcmp(n->name[i], name) == 0)
            return i;
    return -1;
}

static void drop_name(names *n, int i)
{
    n->count--;
    memmove(&n->name[i], &n->name[i + 1], (size_t)(n->count - i) * sizeof n->name[0]);
    memmove(&n->node[i], &n->node[i + 1], (size_t)(n->count - i) * sizeof n->node[0]);
}

static void put_name(names *n, const char *name, int at)
{
    int i = find_name(n, name);

    if (i < 0)
        i = n->count++;
    snprintf(n->name[i], sizeof n->name[i], "%s", name);
    n->node[i] = at;
}

static void change_names(disk *d, const op *o)
{
    names *n = &d->names[o->node];
    int i = find_name(n, o->name);

    if (o->kind == OP_LINK) {
        put_name(n, o->name, o->other);
    } else if (i >= 0) {
        int at = n->node[i];

        drop_name(n, i);
        if (o->kind == OP_RENAME)
            put_name(n, o->to, at);
    }
}

static void change_bytes(disk *d, const op *o, int64_t n)
{
    int64_t end = o->kind == OP_RESIZE ? o->n : o->at + n;

    if (end > d->size[o->node] || o->kind == OP_RESIZE) {
        d->bytes[o->node] = realloc(d->bytes[o->node], (size_t)end + 1);
        if (end > d->size[o->node])
            memset(d->bytes[o->node] + d->size[o->node], 0, (size_t)(end - d->size[o->node]));
        d->size[o->node] = end;
    }
    if (o->kind == OP_WRITE)
        memcpy(d->bytes[o->node] + o->at, o->bytes, (size_t)n);
}

/* The last sync of every node among the first `until` calls. */
static void last_syncs(int until, int *last)
{
    for (int i = 0; i < MOST_NODES; i++)
        last[i] = -1;
    for (int i = 0; i < until; i++)
        if (recorded.op[i].kind == OP_SYNC)
            last[recorded.op[i].node] = i;
}

/* Crashes the disk after the first `until` calls. mode 0: synced data are left; 1: all are;
   2: each by lot, of names the first ones; 3: of names each by lot, too. */
static void crash(disk *d, int until, int mode, uint64_t random)
{
    int last[MOST_NODES], lost_from[MOST_NODES];

    memset(d, 0, sizeof *d);
    last_syncs(until, last);
    for (int i = 0; i < recorded.nodes; i++) {
        random = wf_mix64(random);
        lost_from[i] = last[i] + 1 + (int)(random % (uint64_t)(until - last[i]));
    }
    for (int i = 0; i < until; i++) {
        const op *o = &recorded.op[i];
        bool synced = i < last[o->node], names_change = o->kind >= OP_LINK;

        random = wf_mix64(random);
        if (o->kind == OP_SYNC)
            continue;
        if (names_change) {
            if (synced || mode == 1 || (mode == 2 && i < lost_from[o->node]) ||
                (mode == 3 && random % 2))
                change_names(d, o);
        } else if (synced || mode == 1) {
            change_bytes(d, o, o->n);
        } else if (mode > 1 && random % 3) {
            change_bytes(d, o, random % 3 == 1 ? o->n / 2 : o->n);
        }
    }
}

static bool write_out(const disk *d, int at, const char *path)
{
    bool good = true;

    mkdir(path, 0755);
    for (int i = 0; i < d->names[at].count; i++) {
        int other = d->names[at].node[i];
        char inside[256];

        snprintf(inside, sizeof inside, "%.120s/%s", path, d->names[at].name[i]);
        if (recorded.node[other].directory) {
            good &= write_out(d, other, inside);
        } else {
            int fd = open(inside, O_WRONLY | O_CREAT | O_TRUNC, 0644);

            good &= fd >= 0 && write(fd, d->bytes[other] ? d->bytes[other] : "",
                                     (size_t)d->size[other]) == d->size[other];
            close(fd);
        }
    }
    return good;
}

bool crash_after(int until, int mode, uint64_t random, const char *to)
{
    static disk d;
    bool good;

    crash(&d, until, mode, random);
    good = write_out(&d, 0, to);
    for (int i = 0; i < recorded.nodes; i++)
        free(d.bytes[i]);
    return good;
}
