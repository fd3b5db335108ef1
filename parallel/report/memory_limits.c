/* parallel/report/memory_limits.c - limits of memory; see the header. */
#include "parallel/report/memory_limits.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LINE = PATH_MAX + 512 };

/* The number of version 1 for no limit, about; version 2 has "max". */
static const double UNLIMITED = 0x1p62;

typedef struct reading {
    const char *root;
    wf_memory_limit *limit;
    int count;
    double swap; /* free on this machine */
} reading;

/* Files of the two versions of control groups, and keys of memory.stat. */
static const struct version {
    const char *most, *used, *cache, *shared;
} versions[] = {
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache ", "total_shmem "},
    {"memory.max", "memory.current", "file ", "shmem "},
};

/* Returns the limit, to add what else is known of it; NULL where it is none. */
static wf_memory_limit *add(reading *r, const char *name, double most, double room)
{
    wf_memory_limit *l = &r->limit[r->count];

    if (!(most < UNLIMITED) || r->count == WF_MEMORY_LIMITS)
        return NULL;
    *l = (wf_memory_limit){.most = most, .room = room > 0 ? room : 0};
    snprintf(l->name, sizeof l->name, "%s", name);
    r->count++;
    return l;
}

static FILE *open_file(const reading *r, const char *folder, const char *name)
{
    char path[2 * PATH_MAX];

    if (snprintf(path, sizeof path, "%s%s/%s", r->root, folder, name) >= (int)sizeof path)
        return NULL;
    return fopen(path, "r");
}

/* Returns the number after a key at the beginning of a line, "" for the only one; `missing`
   where there is none, or a word. */
static double number_in(const reading *r, const char *folder, const char *name, const char *key,
                        double missing)
{
    FILE *f = open_file(r, folder, name);
    char line[LINE];
    double value = missing;

    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) {
            char *end, *at = line + strlen(key);
            double number = strtod(at, &end);

            value = end == at ? missing : number;
            break;
        }
    if (f)
        fclose(f);
    return value;
}

/* Returns the swap that adds to a group's memory. Version 1 limits both together. */
static double swap_of(const reading *r, const char *folder, bool newer, double room)
{
    double most = number_in(
        r, folder, newer ? "memory.swap.max" : "memory.memsw.limit_in_bytes", "", UNLIMITED);
    double used = number_in(
        r, folder, newer ? "memory.swap.current" : "memory.memsw.usage_in_bytes", "", 0);
    double left = newer ? most - used : most < UNLIMITED ? most - used - room : UNLIMITED;

    return left < r->swap ? (left > 0 ? left : 0) : r->swap;
}

static void add_group(reading *r, const char *folder, const char *group, bool newer,
                      bool for_all)
{
    const struct version *v = &versions[newer];
    double most = number_in(r, folder, v->most, "", UNLIMITED);
    double used = number_in(r, folder, v->used, "", 0);
    double cache = number_in(r, folder, "memory.stat", v->cache, used);
    double shared = number_in(r, folder, "memory.stat", v->shared, 0);
    double taken = used - (cache - shared) > 0 ? used - (cache - shared) : 0;
    wf_memory_limit *l;
    char name[512];

    snprintf(name, sizeof name, "%s of control group %.400s", v->most, *group ? group : "/");
    l = add(r, name, most, most - taken + swap_of(r, folder, newer, most - used));
    if (l)
        l->shared = for_all;
}

/* "4:memory:/a/b", or "0::/a/b" of version 2: where the path begins, or NULL. */
static char *path_in(char *line)
{
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;

    if (!path)
        return NULL;
    path[strcspn(path, "\n")] = 0;
    return path + 1;
}

/* The launcher's group, of the same groups as a line of this process; "" where it cannot be
   seen. */
static void group_of_parent(const reading *r, const char *line, char group[PATH_MAX])
{
    double parent = number_in(r, "/proc/self", "status", "PPid:", 0);
    size_t same = strcspn(line, ":") + 1;
    char folder[64], other[LINE];
    FILE *f;

    snprintf(folder, sizeof folder, "/proc/%.0f", parent);
    f = open_file(r, folder, "cgroup");
    *group = 0;
    while (f && !*group && fgets(other, sizeof other, f)) {
        const char *path = strncmp(other, line, same) == 0 ? path_in(other) : NULL;

        if (path)
            snprintf(group, PATH_MAX, "%.4095s", path);
    }
    if (f)
        fclose(f);
}

/* A process is born into the group of its parent: one that the launcher is in too is there for
   all that it has started, and another one for this process alone. */
static bool is_inside(const char *group, const char *path)
{
    size_t n = strcmp(path, "/") ? strlen(path) : 0;

    return *group && strncmp(group, path, n) == 0 && (!group[n] || group[n] == '/');
}

/* Adds a group and those above it, up to where the file system of groups is mounted. path: of
   the group, as /proc has it */
static void add_groups(reading *r, const char *mount, char *path, const char *group, bool newer,
                       const char *launcher)
{
    char folder[2 * PATH_MAX];
    size_t base = strlen(mount);

    snprintf(folder, sizeof folder, "%.4095s%.4095s", mount, strcmp(group, "/") ? group : "");
    for (;;) {
        char *end;

        add_group(r, folder, folder + base, newer, is_inside(launcher, path));
        end = strrchr(folder, '/');
        if (strlen(folder) <= base || !end)
            break;
        *end = 0;
        *strrchr(path, '/') = 0; /* it ends as the folder does */
    }
}

/* Finds where groups are mounted, and the topmost one there: "a b c root mount options .. -
   type source options". */
static bool find_mount(const reading *r, bool newer, char mount[PATH_MAX], char top[PATH_MAX])
{
    FILE *f = open_file(r, "/proc/self", "mountinfo");
    char line[LINE];
    bool found = false;

    while (f && !found && fgets(line, sizeof line, f)) {
        char type[32], options[512];
        const char *end = strstr(line, " - ");

        found = end && sscanf(line, "%*s %*s %*s %4095s %4095s", top, mount) == 2 &&
                sscanf(end, " - %31s %*s %511s", type, options) == 2 &&
                strcmp(type, newer ? "cgroup2" : "cgroup") == 0 &&
                (newer || strstr(options, "memory"));
    }
    if (f)
        fclose(f);
    return found;
}

/* Reads a group. A container may see its group by another name than where it is mounted: the
   mounted one is its own then. */
static void read_group(reading *r, char *line)
{
    char mount[PATH_MAX], top[PATH_MAX], launcher[PATH_MAX], own[PATH_MAX], *path;
    bool newer = strstr(line, "::") == strchr(line, ':');
    size_t n;

    group_of_parent(r, line, launcher);
    path = path_in(line);
    if (!path || (!newer && !strstr(line, "memory")) || !find_mount(r, newer, mount, top))
        return;
    snprintf(own, sizeof own, "%.4095s", path);
    n = strcmp(top, "/") ? strlen(top) : 0;
    if (strncmp(path, top, n) != 0 || (path[n] && path[n] != '/') || strstr(path, "/.."))
        add_groups(r, mount, own, "/", newer, launcher);
    else
        add_groups(r, mount, own, path[n] ? path + n : "/", newer, launcher);
}

static void read_groups(reading *r)
{
    FILE *f = open_file(r, "/proc/self", "cgroup");
    char line[LINE];

    while (f && fgets(line, sizeof line, f))
        read_group(r, line);
    if (f)
        fclose(f);
}

/* `key` of /proc/self/status is what counts against the limit. */
static void add_rlimit(reading *r, const struct rlimit *l, const char *name, const char *key)
{
    double used = 1024 * number_in(r, "/proc/self", "status", key, 0);

    wf_memory_limit *limit = NULL;

    if (l->rlim_cur != RLIM_INFINITY)
        limit = add(r, name, (double)l->rlim_cur, (double)l->rlim_cur - used);
    if (limit)
        limit->reserved = true;
}

int wf_memory_limits(const char *root, wf_memory_limit limit[WF_MEMORY_LIMITS])
{
    reading r = {.root = root, .limit = limit};
    wf_memory_limit *machine;
    struct rlimit l;
    double free_memory;

    r.swap = 1024 * number_in(&r, "/proc", "meminfo", "SwapFree:", 0);
    free_memory = 1024 * number_in(&r, "/proc", "meminfo", "MemAvailable:", UNLIMITED) + r.swap;
    read_groups(&r);
    if (getrlimit(RLIMIT_AS, &l) == 0)
        add_rlimit(&r, &l, "RLIMIT_AS (ulimit -v)", "VmSize:");
    if (getrlimit(RLIMIT_DATA, &l) == 0)
        add_rlimit(&r, &l, "RLIMIT_DATA (ulimit -d)", "VmData:");
    machine = add(&r, "this machine's available memory", free_memory, free_memory);
    if (machine)
        machine->shared = true;
    return r.count;
}
