/* tests/parallel/recorded_files.c - recorded file calls; see the header. */
#include "tests/parallel/recording.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

record recorded = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int find(const char *path)
{
    for (int i = 0; i < recorded.nodes; i++)
        if (strcmp(recorded.node[i].path, path) == 0)
            return i;
    return -1;
}

static op *add(op_kind kind, int at_node)
{
    op *o = &recorded.op[recorded.ops];

    if (recorded.ops < MOST_OPS)
        recorded.ops++;
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
    int new = recorded.nodes++;
    op *o = add(OP_LINK, 0);

    o->node = parent_of(path, o->name);
    o->other = new;
    recorded.node[new].directory = directory;
    snprintf(recorded.node[new].path, sizeof recorded.node[new].path, "%.255s", path);
    return new;
}

/* The path of a name in an open directory; "." is the directory itself. */
static const char *path_in(int in, const char *name, char path[256])
{
    if (in == AT_FDCWD)
        snprintf(path, 256, "%.255s", name);
    else if (strcmp(name, ".") == 0)
        snprintf(path, 256, "%s", recorded.node[recorded.of_fd[in]].path);
    else
        snprintf(path, 256, "%.180s/%.70s", recorded.node[recorded.of_fd[in]].path, name);
    return path;
}

static int recorded_open(void *self, int in, const char *name, int flags)
{
    char path[256];
    int fd;

    (void)self;
    pthread_mutex_lock(&recorded.lock);
    fd = wf_system_files.open(NULL, in, name, flags);
    if (fd >= 0) {
        int at = find(path_in(in, name, path));

        recorded.of_fd[fd] = at >= 0 ? at : link_new(path, false);
    }
    pthread_mutex_unlock(&recorded.lock);
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
    pthread_mutex_lock(&recorded.lock);
    o = add(OP_WRITE, recorded.of_fd[fd]);
    o->at = at;
    o->n = (int64_t)bytes;
    o->bytes = malloc(bytes + 1);
    memcpy(o->bytes, data, bytes);
    pthread_mutex_unlock(&recorded.lock);
    return wf_system_files.write(NULL, fd, data, bytes, at);
}

static int recorded_resize(void *self, int fd, int64_t bytes)
{
    (void)self;
    pthread_mutex_lock(&recorded.lock);
    add(OP_RESIZE, recorded.of_fd[fd])->n = bytes;
    pthread_mutex_unlock(&recorded.lock);
    return wf_system_files.resize(NULL, fd, bytes);
}

/* It counts from its end on: what it promises is not there before. */
static int recorded_sync(void *self, int fd)
{
    (void)self;
    pthread_mutex_lock(&recorded.lock);
    add(OP_SYNC, recorded.of_fd[fd]);
    pthread_mutex_unlock(&recorded.lock);
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
        recorded.node[there].path[0] = 0;
    for (int i = 0; i < recorded.nodes; i++)
        if (strncmp(recorded.node[i].path, from, n) == 0 &&
            (!recorded.node[i].path[n] || recorded.node[i].path[n] == '/')) {
            char after[256];

            snprintf(after, sizeof after, "%s", recorded.node[i].path + n);
            snprintf(recorded.node[i].path, sizeof recorded.node[i].path, "%.120s%.120s", to,
                     after);
        }
}

static int recorded_rename(void *self, int in, const char *from, const char *to)
{
    char path[256], new_path[256];
    int status;

    (void)self;
    pthread_mutex_lock(&recorded.lock);
    status = wf_system_files.rename(NULL, in, from, to);
    if (status == 0) {
        op *o = add(OP_RENAME, 0);

        o->node = parent_of(path_in(in, from, path), o->name);
        parent_of(path_in(in, to, new_path), o->to);
        move_paths(path, new_path);
    }
    pthread_mutex_unlock(&recorded.lock);
    return status;
}

static int recorded_make_directory(void *self, int in, const char *name)
{
    char path[256];
    int status;

    (void)self;
    pthread_mutex_lock(&recorded.lock);
    status = wf_system_files.make_directory(NULL, in, name);
    if (status == 0)
        link_new(path_in(in, name, path), true);
    pthread_mutex_unlock(&recorded.lock);
    return status;
}

static int recorded_remove(void *self, int in, const char *name, bool directory)
{
    char path[256];
    int status, at;

    (void)self;
    pthread_mutex_lock(&recorded.lock);
    status = wf_system_files.remove(NULL, in, name, directory);
    at = find(path_in(in, name, path));
    if (status == 0 && at >= 0) {
        op *o = add(OP_UNLINK, 0);

        o->node = parent_of(path, o->name);
        recorded.node[at].path[0] = 0;
    }
    pthread_mutex_unlock(&recorded.lock);
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

void record_files(const char *dir)
{
    recorded.ops = 0;
    recorded.nodes = 1;
    recorded.node[0].directory = true;
    snprintf(recorded.node[0].path, sizeof recorded.node[0].path, "%s", dir);
}

int recorded_calls(void)
{
    return recorded.ops;
}

void forget_recorded(void)
{
    for (int i = 0; i < recorded.ops; i++)
        free(recorded.op[i].bytes);
    recorded.ops = 0;
}
