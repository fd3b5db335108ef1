/* parallel/report/profile.c - the rows of a profile; see the header. */
#include "parallel/report/profile_internal.h"
#include <stdlib.h>
#include <string.h>

wf_profile *wf_profile_open(wf_error *error)
{
    wf_profile *p = calloc(1, sizeof *p);

    if (!p)
        wf_error_set(error, WF_ENOMEM, "no memory for a profile");
    else
        p->ranks = 1;
    return p;
}

void wf_profile_close(wf_profile *p)
{
    if (p)
        free(p->row);
    free(p);
}

/* Writes a path with * for names that are numbers. */
static void generalise(const char *path, char module[WF_PROFILE_MODULE])
{
    size_t used = 0;

    for (const char *at = path ? path : ""; *at && used < WF_PROFILE_MODULE - 2;) {
        size_t n = strcspn(at, "."), digits = strspn(at, "0123456789");

        if (used)
            module[used++] = '.';
        if (n && digits == n) {
            module[used++] = '*';
        } else {
            size_t room = WF_PROFILE_MODULE - 1 - used, most = n < room ? n : room;

            memcpy(module + used, at, most);
            used += most;
        }
        at += n + (at[n] == '.');
    }
    module[used] = 0;
}

/* Returns the number of a row, a new one for the first of its name and module; -1: no
   memory. */
static int64_t find_row(wf_profile *p, wf_trace_kind kind, const char *name, const char *module)
{
    wf_profile_row *grown, *r;

    for (int64_t i = 0; i < p->n; i++)
        if (p->row[i].kind == kind && strcmp(p->row[i].name, name) == 0 &&
            strcmp(p->row[i].module, module) == 0)
            return i;
    if (p->n == p->room) {
        grown = realloc(p->row, (size_t)(2 * p->room + 64) * sizeof *grown);
        if (!grown)
            return -1;
        p->row = grown;
        p->room = 2 * p->room + 64;
    }
    r = &p->row[p->n];
    *r = (wf_profile_row){.kind = kind};
    memccpy(r->name, name, 0, sizeof r->name - 1);
    memccpy(r->module, module, 0, sizeof r->module - 1);
    return p->n++;
}

/* Returns the row of an event, mostly by its pointers, since texts are compared once. */
static int64_t row_of(wf_profile *p, const wf_trace_event *e)
{
    uintptr_t hash = ((uintptr_t)e->name >> 3) * 31 + ((uintptr_t)e->location >> 3);
    wf_profile_cached *c = &p->cache[(hash ^ hash >> 10) % WF_PROFILE_CACHE];
    char module[WF_PROFILE_MODULE], name[WF_PROFILE_NAME] = "wait for ";

    if (c->name == e->name && c->module == e->location && p->row[c->row].kind == e->kind)
        return c->row;
    generalise(e->location, module);
    strncat(name, e->name, sizeof name - 1 - strlen(name));
    *c = (wf_profile_cached){
        e->name, e->location,
        find_row(p, e->kind, e->kind == WF_TRACE_WAIT ? name : e->name, module)};
    if (c->row < 0)
        c->name = NULL;
    return c->row;
}

static void add(wf_profile_row *r, const wf_profile_row *from)
{
    r->calls += from->calls;
    r->time += from->time;
    r->bytes += from->bytes;
    r->flops += from->flops;
}

wf_status wf_profile_put(wf_profile *p, const wf_profile_row *row, wf_error *error)
{
    int64_t i = find_row(p, row->kind, row->name, row->module);

    if (i < 0)
        return wf_error_set(error, WF_ENOMEM, "no memory for a profile of %lld rows",
                            (long long)p->n);
    add(&p->row[i], row);
    if (row->time > p->row[i].most) {
        p->row[i].most = row->time;
        p->row[i].most_rank = row->most_rank;
    }
    return WF_OK;
}

/* Returns true for events that the rank's own thread spent its time in. */
static bool is_own(const wf_trace_event *e)
{
    return e->kind == WF_TRACE_OP || e->kind == WF_TRACE_WAIT || e->kind == WF_TRACE_HOST;
}

/* Adds what the device was asked for since the trace was added last. */
static void add_device(wf_profile *p, const wf_device_counts *now)
{
    p->device.launches += now->launches - p->device_seen.launches;
    p->device.syncs += now->syncs - p->device_seen.syncs;
    p->device.waits += now->waits - p->device_seen.waits;
    p->device_seen = *now;
    p->count++;
}

wf_status wf_profile_add(wf_profile *p, const wf_trace *trace, int64_t first, int64_t steps,
                         wf_error *error)
{
    wf_profile_row launches = {.kind = WF_TRACE_PHASE, .name = "launches of ops"};
    int64_t n = wf_trace_count(trace), calls, time = wf_trace_launches(trace, &calls);

    if (first == 0) {
        p->launches = p->launch = 0;
        p->device_seen = (wf_device_counts){.launches = 0};
    }
    for (int64_t i = first; i < n; i++) {
        const wf_trace_event *e = wf_trace_at(trace, i);
        int64_t r = is_own(e) ? row_of(p, e) : 0;

        if (r < 0)
            return wf_error_set(error, WF_ENOMEM, "no memory for a profile of %lld rows",
                                (long long)p->n);
        if (is_own(e))
            add(&p->row[r],
                &(wf_profile_row){
                    .calls = 1, .time = e->own, .bytes = e->bytes, .flops = e->flops});
    }
    p->steps += steps;
    add_device(p, wf_trace_device_counts(trace));
    launches.time = time - p->launch;
    launches.calls = calls - p->launches;
    p->launch = time;
    p->launches = calls;
    return launches.calls ? wf_profile_put(p, &launches, error) : WF_OK;
}

wf_profile_sums wf_profile_sum(const wf_profile *p)
{
    wf_profile_sums sums = {.steps = p->steps,
                            .count = p->count,
                            .launches = p->device.launches,
                            .syncs = p->device.syncs,
                            .late_waits = p->device.waits};

    for (int64_t i = 0; i < p->n; i++) {
        const wf_profile_row *r = &p->row[i];
        int64_t *sum = r->kind == WF_TRACE_OP     ? &sums.ops
                       : r->kind == WF_TRACE_WAIT ? &sums.waits
                       : r->kind == WF_TRACE_HOST ? &sums.host
                                                  : &sums.launch;

        *sum += r->time;
        sums.flops += r->flops;
        if (r->kind != WF_TRACE_OP)
            continue;
        sums.calls += r->calls;
        sums.bytes += r->bytes;
    }
    return sums;
}
