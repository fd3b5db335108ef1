/* apps/tools/recording.c - see the header. */
#include "apps/tools/recording.h"
#include "core/files/input.h"
#include "apps/program.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t recording_oldest(const wf_recording *r)
{
    /* a signal may have come while the oldest one was written over */
    return r->head.count > r->head.events ? r->head.count - r->head.events + 1 : 0;
}

const wf_event *recording_event(const wf_recording *r, uint64_t i)
{
    return &r->event[i % r->head.events];
}

bool recording_is_shared(int group)
{
    return group == WF_RECORDER_GROUPS - 1;
}

bool recording_is_message(const wf_event *e)
{
    return e->op == WF_SEND || e->op == WF_RECV;
}

static bool is_event(const wf_recording *r, const wf_event *e)
{
    return e->time != 0 && e->group < r->head.groups && e->kind <= WF_EVENT_ACTION &&
           e->op <= WF_COLLECTIVE_KINDS && e->peer >= -1 && e->peer < r->head.ranks &&
           recording_is_message(e) == (e->peer >= 0) &&
           (e->kind == WF_EVENT_ACTION || e->sequence <= r->head.count);
}

static bool is_head(const wf_recording_head *h)
{
    const wf_recorded_wait wait = wf_recorded_wait_of(h->wait);

    return h->ranks >= 1 && h->ranks <= WF_MAX_RANKS && h->rank >= 0 && h->rank < h->ranks &&
           h->groups >= 0 && h->groups <= WF_RECORDER_GROUPS && h->count <= INT64_MAX &&
           (!h->wait ||
            (wait.op < WF_COLLECTIVE_KINDS && wait.group < h->groups && wait.peer < h->ranks));
}

/* Checks that collectives of a group follow each other, from the first one on where none was
   overwritten: so walks through them end. */
static bool is_plausible(const wf_recording *r)
{
    uint64_t last[WF_RECORDER_GROUPS] = {0};
    bool forgotten = recording_oldest(r) > 0;

    if (!is_head(&r->head))
        return false;
    for (uint64_t i = recording_oldest(r); i < r->head.count; i++) {
        const wf_event *e = recording_event(r, i);

        if (!is_event(r, e))
            return false;
        if (e->kind != WF_EVENT_BEGIN || recording_is_message(e) ||
            recording_is_shared(e->group))
            continue;
        if ((last[e->group] || !forgotten) && e->sequence != last[e->group] + 1)
            return false;
        last[e->group] = e->sequence;
    }
    return true;
}

/* Texts end, and have nothing that a terminal would obey. */
static void clean(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            *text = '?';
}

static void clean_texts(wf_recording *r)
{
    clean(r->head.host, sizeof r->head.host);
    clean(r->head.at, sizeof r->head.at);
    clean(r->head.does, sizeof r->head.does);
    clean(r->head.cause, sizeof r->head.cause);
    for (int i = 0; i < r->head.groups; i++)
        clean(r->group[i].name, sizeof r->group[i].name);
    for (int i = 0; i < WF_RECORDER_EVENTS; i++) {
        clean(r->event[i].module, sizeof r->event[i].module);
        clean(r->event[i].action, sizeof r->event[i].action);
    }
}

static wf_status check(const char *path, const wf_recording *r, size_t bytes, wf_error *error)
{
    if (bytes < sizeof r->head || memcmp(r->head.magic, "WEFTREC", 8) != 0)
        return wf_error_set(error, WF_EIO, "%s is not a flight recorder", path);
    if (r->head.version != WF_RECORDER_VERSION || r->head.events != WF_RECORDER_EVENTS)
        return wf_error_set(error, WF_EIO,
                            "%s is a flight recorder of version %u, and this program reads "
                            "version %d: use the recorder_diff of the run's Weft",
                            path, r->head.version, WF_RECORDER_VERSION);
    if (bytes < sizeof *r || !is_plausible(r))
        return wf_error_set(error, WF_EIO,
                            "%s is damaged: its numbers contradict each other; leave it out",
                            path);
    return WF_OK;
}

wf_status recording_read(const char *path, wf_recording **out, wf_error *error)
{
    FILE *file = wf_input_open(path);
    wf_recording *r = calloc(1, sizeof *r);
    wf_status status;

    *out = r;
    if (!file)
        status = wf_error_set(error, WF_EIO, "cannot read %s: %s", path, strerror(errno));
    else if (!r)
        status = wf_error_set(error, WF_ENOMEM, "no memory for %s", path);
    else
        status = check(path, r, fread(r, 1, sizeof *r, file), error);
    if (status == WF_OK)
        clean_texts(r);
    if (file)
        fclose(file);
    return status;
}

int recording_group(const wf_recording *r, const wf_recorded_group *group)
{
    for (int i = 0; i < r->head.groups; i++)
        if (memcmp(&r->group[i], group, sizeof *group) == 0)
            return i;
    return -1;
}

static bool is_of(const wf_event *e, const recorded_line *line)
{
    return e->op < WF_COLLECTIVE_KINDS && e->group == line->group && e->peer == line->peer &&
           (line->peer < 0 || e->op == line->op);
}

const wf_event *recording_find(const wf_recording *r, const recorded_line *line,
                               uint64_t sequence, int kind)
{
    for (uint64_t i = recording_oldest(r); i < r->head.count; i++) {
        const wf_event *e = recording_event(r, i);

        if (is_of(e, line) && e->sequence == sequence && e->kind == kind)
            return e;
    }
    return NULL;
}

void recording_held(const wf_recording *r, const recorded_line *line, uint64_t *first,
                    uint64_t *last)
{
    *first = *last = 0;
    for (uint64_t i = recording_oldest(r); i < r->head.count; i++) {
        const wf_event *e = recording_event(r, i);

        if (!is_of(e, line) || e->kind != WF_EVENT_BEGIN)
            continue;
        *first = *first ? *first : e->sequence;
        *last = e->sequence;
    }
}

/* Returns the number of events when the rank itself failed, or of all: an end that came later
   says nothing of that. */
static uint64_t until_failed(const wf_recording *r)
{
    for (uint64_t i = recording_oldest(r); i < r->head.count; i++) {
        const wf_event *e = recording_event(r, i);

        if (e->kind == WF_EVENT_FAIL && e->op == WF_COLLECTIVE_KINDS)
            return i;
    }
    return r->head.count;
}

/* Finds the first of the operations that failed after the last one that ended: the others
   follow from it. */
bool recording_hangs(const wf_recording *r, wf_recorded_wait *in)
{
    const wf_event *failed = NULL;

    for (uint64_t i = until_failed(r); i > recording_oldest(r); i--) {
        const wf_event *e = recording_event(r, i - 1);

        if (e->kind == WF_EVENT_END)
            break;
        if (e->kind == WF_EVENT_FAIL)
            failed = e;
    }
    if (failed)
        *in = (wf_recorded_wait){failed->op, failed->group, failed->peer, failed->sequence};
    else
        *in = wf_recorded_wait_of(r->head.wait);
    return failed || r->head.wait;
}

const wf_recording *recording_of(const recordings *w, int rank)
{
    for (int i = 0; i < w->n; i++)
        if (w->of[i]->head.rank == rank)
            return w->of[i];
    return NULL;
}
