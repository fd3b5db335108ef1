/* tests/parallel/recorded_files.c - recorded file calls, and crashes among them; see the header. */
#include "tests/parallel/recorded_files.h"
#include "core/numerics/bits.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_OPS = MOST_RECORDED, MOST_NODES = 128 };

typedef enum op_kind {
    OP_WRITE,  /* bytes at a place of a file */
    OP_RESIZE, /* a file */
    OP_SYNC,   /* a file or a directory */
    OP_LINK,   /* a new name in a directory, of a file or a directory */
    OP_RENAME, /* within a directory; the new name may have been there */
    OP_UNLINK
} op_kind;

typedef struct op {
    op_kind kind;
    int node;  /* the file, or the directory whose names change */
    int other; /* LINK: what gets the name */
    int64_t at, n;
    char *bytes;
    char name[64], to[64];
} op;

/* Files and directories, by number. Node 0 is the directory of checkpoints. */
typedef struct node {
    char path[256]; /* where it is now, "": nowhere */
    bool directory;
} node;

typedef struct record {
    pthread_mutex_t lock;
    int nodes, ops;
    node node[MOST_NODES];
    op op[MOST_OPS];
    int of_fd[4096]; /* node of an open file */
} record;

static record rec = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int find(const char *path)
{
    for (int i = 0; i < rec.nodes; i++)
        if (strcmp(rec.node[i].path, path) == 0)
            return i;
    return -1;
}

static op *add(op_kind kind, int at_node)
{
    op *o = &rec.op[rec.ops];

    if (rec.ops < MOST_OPS)
        rec.ops++;
    *o = (op){.kind = kind, .node = at_node};
    return o;
}

static int parent_of(const char *path, char name[64])
{
    char parent[256];
    const char *slash = strrchr(path, '/');

    snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
    snprintf(name, 64, "%.63s", slash + 1);
    return find(parent);
}

static int link_new(const char *path, bool directory)
{
    int new = rec.nodes++;
    op *o = add(OP_LINK, 0);

    o->node = parent_of(path, o->name);
    o->other = new;
    rec.node[new].directory = directory;
    snprintf(rec.node[new].path, sizeof rec.node[new].path, "%.255s", path);
    return new;
}

/* The path of a name in an open directory; "." is the directory itself. */
static const char *path_in(int in, const char *name, char path[256])
{
    if (in == AT_FDCWD)
        snprintf(path, 256, "%.255s", name);
    else if (strcmp(name, ".") == 0)
        snprintf(path, 256, "%s", rec.node[rec.of_fd[in]].path);
    else
        snprintf(path, 256, "%.180s/%.70s", rec.node[rec.of_fd[in]].path, name);
    return path;
}

static int recorded_open(void *self, int in, const char *name, int flags)
{
    char path[256];
    int fd;

    (void)self;
    pthread_mutex_lock(&rec.lock);
    fd = wf_system_files.open(NULL, in, name, flags);
    if (fd >= 0) {
        int at = find(path_in(in, name, path));

        rec.of_fd[fd] = at >= 0 ? at : link_new(path, false);
    }
    pthread_mutex_unlock(&rec.lock);
    return fd;
}

static int64_t recorded_read(void *self, int fd, void *data, size_t bytes, int64_t at)
{
    (void)self;
    return wf_system_files.read(NULL, fd, data, bytes, at);
}

static int64_t recorded_write(void *self, int fd, const void *data, size_t bytes, int64_t at)
{
    op *o;

    (void)self;
    pthread_mutex_lock(&rec.lock);
    o = add(OP_WRITE, rec.of_fd[fd]);
    o->at = at;
    o->n = (int64_t)bytes;
    o->bytes = malloc(bytes + 1);
    memcpy(o->bytes, data, bytes);
    pthread_mutex_unlock(&rec.lock);
    return wf_system_files.write(NULL, fd, data, bytes, at);
}

static int recorded_resize(void *self, int fd, int64_t bytes)
{
    (void)self;
    pthread_mutex_lock(&rec.lock);
    add(OP_RESIZE, rec.of_fd[fd])->n = bytes;
    pthread_mutex_unlock(&rec.lock);
    return wf_system_files.resize(NULL, fd, bytes);
}

/* It counts from its end on: what it promises is not there before. */
static int recorded_sync(void *self, int fd)
{
    (void)self;
    pthread_mutex_lock(&rec.lock);
    add(OP_SYNC, rec.of_fd[fd]);
    pthread_mutex_unlock(&rec.lock);
    return 0;
}

static int recorded_close(void *self, int fd)
{
    (void)self;
    return wf_system_files.close(NULL, fd);
}

static void move_paths(const char *from, const char *to)
{
    size_t n = strlen(from);
    int there = find(to);

    if (there >= 0)
        rec.node[there].path[0] = 0;
    for (int i = 0; i < rec.nodes; i++)
        if (strncmp(rec.node[i].path, from, n) == 0 &&
            (!rec.node[i].path[n] || rec.node[i].path[n] == '/')) {
            char behind[256];

            snprintf(behind, sizeof behind, "%s", rec.node[i].path + n);
            snprintf(rec.node[i].path, sizeof rec.node[i].path, "%.120s%.120s", to, behind);
        }
}

static int recorded_rename(void *self, int in, const char *from, const char *to)
{
    char path[256], new_path[256];
    int status;

    (void)self;
    pthread_mutex_lock(&rec.lock);
    status = wf_system_files.rename(NULL, in, from, to);
    if (status == 0) {
        op *o = add(OP_RENAME, 0);

        o->node = parent_of(path_in(in, from, path), o->name);
        parent_of(path_in(in, to, new_path), o->to);
        move_paths(path, new_path);
    }
    pthread_mutex_unlock(&rec.lock);
    return status;
}

static int recorded_make_directory(void *self, int in, const char *name)
{
    char path[256];
    int status;

    (void)self;
    pthread_mutex_lock(&rec.lock);
    status = wf_system_files.make_directory(NULL, in, name);
    if (status == 0)
        link_new(path_in(in, name, path), true);
    pthread_mutex_unlock(&rec.lock);
    return status;
}

static int recorded_remove(void *self, int in, const char *name, bool directory)
{
    char path[256];
    int status, at;

    (void)self;
    pthread_mutex_lock(&rec.lock);
    status = wf_system_files.remove(NULL, in, name, directory);
    at = find(path_in(in, name, path));
    if (status == 0 && at >= 0) {
        op *o = add(OP_UNLINK, 0);

        o->node = parent_of(path, o->name);
        rec.node[at].path[0] = 0;
    }
    pthread_mutex_unlock(&rec.lock);
    return status;
}

static int recorded_next(void *self, DIR *directory, char name[WF_FILES_NAME])
{
    (void)self;
    return wf_system_files.next(NULL, directory, name);
}

const wf_file_calls recorded_files = {.open = recorded_open,
                                      .read = recorded_read,
                                      .write = recorded_write,
                                      .resize = recorded_resize,
                                      .sync = recorded_sync,
                                      .close = recorded_close,
                                      .rename = recorded_rename,
                                      .make_directory = recorded_make_directory,
                                      .remove = recorded_remove,
                                      .next = recorded_next};

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
        if (rec.op[i].kind == OP_SYNC)
            last[rec.op[i].node] = i;
}

/* What is left of the first `until` calls. mode 0: what was synced; 1: all; else by lot. */
static void crash(disk *d, int until, int mode, uint64_t random)
{
    int last[MOST_NODES], lost_from[MOST_NODES];

    memset(d, 0, sizeof *d);
    last_syncs(until, last);
    for (int i = 0; i < rec.nodes; i++) {
        random = wf_mix64(random);
        lost_from[i] = last[i] + 1 + (int)(random % (uint64_t)(until - last[i]));
    }
    for (int i = 0; i < until; i++) {
        const op *o = &rec.op[i];
        bool synced = i < last[o->node], names_change = o->kind >= OP_LINK;

        random = wf_mix64(random);
        if (o->kind == OP_SYNC)
            continue;
        if (names_change) {
            if (synced || mode == 1 || (mode > 1 && i < lost_from[o->node]))
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
        if (rec.node[other].directory) {
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

void record_files(const char *dir)
{
    rec.ops = 0;
    rec.nodes = 1;
    rec.node[0].directory = true;
    snprintf(rec.node[0].path, sizeof rec.node[0].path, "%s", dir);
}

int recorded_calls(void)
{
    return rec.ops;
}

void forget_recorded(void)
{
    for (int i = 0; i < rec.ops; i++)
        free(rec.op[i].bytes);
    rec.ops = 0;
}

bool crash_after(int until, int mode, uint64_t random, const char *to)
{
    static disk d;
    bool good;

    crash(&d, until, mode, random);
    good = write_out(&d, 0, to);
    for (int i = 0; i < rec.nodes; i++)
        free(d.bytes[i]);
    return good;
}
