/*
 * apps/tools/recorder_diff.c - where the ranks of a world first went apart, from their flight recorders:
 * see recorder_diff --help.
 *
 * Members of a group make the same collectives in the same order. So for each group, from the
 * oldest that all recordings still hold on, the n-th collectives of its members are compared: one
 * that differs from the others, or that a member has not begun, is a disagreement, and the one
 * that was begun first is told. Where the member hangs in another group it has a cause there: such
 * a disagreement is told only if there is none of another kind.
 */
#include "apps/program.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

typedef struct world {
    int n;
    wf_recording **of; /* [n] */
} world;

/* What is told: of a group, one collective. */
typedef struct finding {
    const wf_recorded_group *group;
    uint64_t sequence, time;
    int odd;        /* the recording that differs */
    bool not_begun; /* by it; else it has begun another one */
    bool follows;   /* it could not: it hangs in another group */
} finding;

static const char help_text[] =
    "recorder_diff - find where the ranks of a run disagree\n"
    "\n"
    "Usage: recorder_diff FILE...\n"
    "\n"
    "Reads the flight recorders of the ranks of a run (rank-0.rec, rank-1.rec, ...) and names\n"
    "the first disagreement: rank, group, sequence number and operation. gpt_train writes "
    "them\n"
    "into --recorder-dir when a rank fails, and at any time after kill -USR2.\n"
    "\n"
    "  recorder_diff runs/7/rank-*.rec\n"
    "  recorder_diff --version\n"
    "\n"
    "Exit status: 0, the ranks agree; 1, they do not; 2, a mistake in the command; 3, a "
    "file.\n";

static uint64_t oldest_event(const wf_recording *r)
{
    /* a signal may have come while the oldest one was written over */
    return r->head.count > r->head.events ? r->head.count - r->head.events + 1 : 0;
}

static const wf_event *event_at(const wf_recording *r, uint64_t i)
{
    return &r->event[i % r->head.events];
}

/* Groups that found no room in the table share its last row, where nothing can be compared. */
static bool is_shared(int group)
{
    return group == WF_RECORDER_GROUPS - 1;
}

/* Collectives of a group follow each other, from the first one on where none was forgotten: whoever
   goes through them comes to an end. */
static bool is_plausible(const wf_recording *r)
{
    uint64_t last[WF_RECORDER_GROUPS] = {0};
    bool forgotten = oldest_event(r) > 0;

    if (r->head.ranks < 1 || r->head.ranks > WF_MAX_RANKS || r->head.rank < 0 ||
        r->head.rank >= r->head.ranks || r->head.groups < 0 ||
        r->head.groups > WF_RECORDER_GROUPS || r->head.count > INT64_MAX)
        return false;
    for (uint64_t i = oldest_event(r); i < r->head.count; i++) {
        const wf_event *e = event_at(r, i);

        if (e->time == 0 || e->group >= r->head.groups || e->kind > WF_EVENT_FAIL ||
            e->op > WF_COLLECTIVE_KINDS || e->sequence > r->head.count)
            return false;
        if (e->kind != WF_EVENT_BEGIN || e->sequence == 0 || is_shared(e->group))
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
    clean(r->head.cause, sizeof r->head.cause);
    for (int i = 0; i < r->head.groups; i++)
        clean(r->group[i].name, sizeof r->group[i].name);
    for (int i = 0; i < WF_RECORDER_EVENTS; i++)
        clean(r->event[i].place, sizeof r->event[i].place);
}

static wf_status read_file(const char *path, wf_recording **out, wf_error *error)
{
    FILE *file = app_program_file(path, "r");
    wf_recording *r = calloc(1, sizeof *r);
    bool whole = file && r && fread(r, sizeof *r, 1, file) == 1;
    wf_status status = WF_OK;

    *out = r;
    if (!file)
        status = wf_error_set(error, WF_EIO, "cannot read %s: %s", path, strerror(errno));
    else if (!whole || memcmp(r->head.magic, "WEFTREC", 8) != 0 ||
             r->head.version != WF_RECORDER_VERSION || r->head.events != WF_RECORDER_EVENTS)
        status =
            wf_error_set(error, WF_EIO, "%s is not a flight recorder of this version", path);
    else if (!is_plausible(r))
        status = wf_error_set(error, WF_EIO,
                              "%s is damaged: its numbers contradict each other; leave it out",
                              path);
    else
        clean_texts(r);
    if (file)
        fclose(file);
    return status;
}

/* The group's number in a recording, or -1. */
static int find_group(const wf_recording *r, const wf_recorded_group *group)
{
    for (int i = 0; i < r->head.groups; i++)
        if (memcmp(&r->group[i], group, sizeof *group) == 0)
            return i;
    return -1;
}

/* The n-th collective of a group, in the kind of event asked for; NULL where it is not held. */
static const wf_event *find_event(const wf_recording *r, int group, uint64_t sequence, int kind)
{
    for (uint64_t i = oldest_event(r); i < r->head.count; i++) {
        const wf_event *e = event_at(r, i);

        if (e->group == group && e->sequence == sequence && e->kind == kind)
            return e;
    }
    return NULL;
}

/* The first and the last collective of a group that a recording holds; 0 for none. */
static void held(const wf_recording *r, int group, uint64_t *first, uint64_t *last)
{
    *first = *last = 0;
    for (uint64_t i = oldest_event(r); i < r->head.count; i++) {
        const wf_event *e = event_at(r, i);

        if (e->group != group || e->sequence == 0 || e->kind != WF_EVENT_BEGIN)
            continue;
        *first = *first ? *first : e->sequence;
        *last = e->sequence;
    }
}

static bool alike(const wf_event *a, const wf_event *b)
{
    if (a->op != b->op)
        return false;
    return a->op == WF_ALL_TO_ALL || a->bytes == b->bytes;
}

/* Whether the last thing that a rank did was to fail, or still to wait, in another group. */
static bool hangs_elsewhere(const wf_recording *r, const wf_recorded_group *group)
{
    for (uint64_t i = r->head.count; i > oldest_event(r); i--) {
        const wf_event *last = event_at(r, i - 1);

        if (last->op < WF_COLLECTIVE_KINDS)
            return last->kind != WF_EVENT_END && last->group != find_group(r, group);
    }
    return false;
}

/* How many members have begun the same as e. */
static int supporters(const world *w, const wf_recorded_group *group, const wf_event *e)
{
    int n = 0;

    for (int i = 0; i < w->n; i++) {
        int g = find_group(w->of[i], group);
        const wf_event *other =
            g < 0 ? NULL : find_event(w->of[i], g, e->sequence, WF_EVENT_BEGIN);

        n += other && alike(e, other);
    }
    return n;
}

/* The n-th collective of a group on all members: whether one has not begun it as all others have.
   The odd one is who has the fewest like it. */
static bool compare(const world *w, const wf_recorded_group *group, uint64_t sequence,
                    finding *f)
{
    int members = 0, fewest = w->n;

    *f = (finding){.group = group, .sequence = sequence, .time = UINT64_MAX};
    for (int i = 0; i < w->n; i++) {
        int g = find_group(w->of[i], group), like_it;
        const wf_event *e = g < 0 ? NULL : find_event(w->of[i], g, sequence, WF_EVENT_BEGIN);

        if (g < 0)
            continue;
        members++;
        like_it = e ? supporters(w, group, e) : 0;
        if (e && e->time < f->time)
            f->time = e->time;
        if (like_it < fewest) {
            fewest = like_it;
            f->odd = i;
            f->not_begun = !e;
        }
    }
    f->follows = f->not_begun && hangs_elsewhere(w->of[f->odd], group);
    return f->time != UINT64_MAX && fewest < members;
}

/* The first disagreement of a group, from the oldest collective that all its members hold. */
static bool search_group(const world *w, const wf_recorded_group *group, finding *f)
{
    uint64_t from = 1, to = 0;
    int members = 0;

    for (int i = 0; i < w->n; i++) {
        int g = find_group(w->of[i], group);
        uint64_t first, last;

        if (g < 0)
            continue;
        members++;
        held(w->of[i], g, &first, &last);
        from = oldest_event(w->of[i]) && first > from ? first : from;
        to = last > to ? last : to;
    }
    for (uint64_t s = from; members > 1 && s <= to; s++)
        if (compare(w, group, s, f))
            return true;
    return false;
}

static bool search(const world *w, finding *first)
{
    bool any = false;
    finding f = {0};

    for (int i = 0; i < w->n; i++)
        for (int g = 0; g < w->of[i]->head.groups; g++) {
            const wf_recorded_group *group = &w->of[i]->group[g];
            bool seen = false;

            for (int k = 0; k < i && !seen; k++)
                seen = find_group(w->of[k], group) >= 0;
            if (seen || is_shared(g) || group->size == 1 || !search_group(w, group, &f))
                continue;
            if (f.follows && w->n < w->of[0]->head.ranks)
                continue; /* nobody knows what a rank did whose recording is not here */
            if (!any || (f.follows != first->follows ? first->follows : f.time < first->time))
                *first = f;
            any = true;
        }
    return any;
}

static void print_event(const wf_event *e)
{
    if (!e) {
        printf("nothing");
        return;
    }
    printf("%s of %" PRId64 " bytes", wf_collective_name((wf_collective_kind)e->op), e->bytes);
    if (e->step)
        printf(" in step %" PRId32, e->step);
    if (*e->place)
        printf(" at %.*s", WF_RECORDER_PLACE - 1, e->place);
}

static void print_member(const wf_recording *r, int group, uint64_t sequence)
{
    const wf_event *begin = find_event(r, group, sequence, WF_EVENT_BEGIN);
    uint64_t first, last;

    printf("  rank %d on %.63s%s%.63s: ", r->head.rank, r->head.host, *r->head.at ? ", " : "",
           r->head.at);
    if (begin) {
        print_event(begin);
        printf("%s\n", find_event(r, group, sequence, WF_EVENT_END)    ? ", ended"
                       : find_event(r, group, sequence, WF_EVENT_FAIL) ? ", failed"
                                                                       : ", not ended");
        return;
    }
    held(r, group, &first, &last);
    printf("did not begin it; its last one there is %" PRIu64 ", ", last);
    print_event(last ? find_event(r, group, last, WF_EVENT_BEGIN) : NULL);
    printf("\n");
}

static void print_finding(const world *w, const finding *f)
{
    const wf_recording *odd = w->of[f->odd];

    printf("first disagreement: rank %d, group %.31s of %d ranks from rank %d on, collective "
           "%" PRIu64 ": %s\n",
           odd->head.rank, f->group->name, f->group->size, f->group->first, f->sequence,
           f->not_begun ? "it did not begin what others did" : "it began another one");
    for (int i = 0; i < w->n; i++) {
        int g = find_group(w->of[i], f->group);

        if (g >= 0)
            print_member(w->of[i], g, f->sequence);
    }
}

static wf_status print_world(const world *w, wf_error *error)
{
    int ranks = w->of[0]->head.ranks, missing = 0;
    bool failed = false;

    for (int i = 1; i < w->n; i++)
        if (w->of[i]->head.ranks != ranks)
            return wf_error_set(error, WF_EIO, "recordings of worlds of %d and of %d ranks",
                                ranks, w->of[i]->head.ranks);
    for (int r = 0; r < ranks; r++) {
        int i = 0;

        while (i < w->n && w->of[i]->head.rank != r)
            i++;
        if (i == w->n)
            printf(missing++ ? ", %d" : "no recording of rank %d", r);
    }
    if (missing)
        printf(": it may be the one that is to blame\n");
    for (int i = 0; i < w->n; i++)
        if (*w->of[i]->head.cause) {
            failed = true;
            printf("rank %d failed: %.*s\n", w->of[i]->head.rank,
                   (int)sizeof w->of[i]->head.cause - 1, w->of[i]->head.cause);
        }
    if (!failed)
        printf("no rank had failed: one that is late looks like one that is stuck\n");
    return WF_OK;
}

int main(int argc, char **argv)
{
    world w = {.n = argc - 1};
    wf_error error = {WF_OK, ""};
    int differ = 0;
    finding f = {0};

    app_program_begin();
    if (app_program_version_asked("recorder_diff", argc, argv))
        return app_program_end("recorder_diff", 0);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(help_text, stdout);
        return app_program_end("recorder_diff", 0);
    }
    if (argc < 2 || argv[1][0] == '-') {
        fprintf(stderr, "recorder_diff: %s%s; see recorder_diff --help\n",
                argc < 2 ? "no file was given" : "there is no flag ", argc < 2 ? "" : argv[1]);
        return 2;
    }
    w.of = calloc((size_t)w.n, sizeof(wf_recording *));
    if (!w.of)
        wf_error_set(&error, WF_ENOMEM, "no memory for %d recordings", w.n);
    for (int i = 0; w.of && i < w.n && error.code == WF_OK; i++)
        read_file(argv[i + 1], &w.of[i], &error);
    if (w.of && error.code == WF_OK && print_world(&w, &error) == WF_OK) {
        differ = search(&w, &f);
        if (differ)
            print_finding(&w, &f);
        else
            printf("%d ranks agree as far as they were recorded\n", w.n);
    }
    for (int i = 0; w.of && i < w.n; i++)
        free(w.of[i]);
    free(w.of);
    if (error.code == WF_OK)
        return app_program_end("recorder_diff", differ);
    fflush(stdout);
    fprintf(stderr, "recorder_diff: %s\n", error.text);
    return error.code == WF_ENOMEM ? 1 : 3;
}
