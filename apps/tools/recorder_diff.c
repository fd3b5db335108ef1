/* apps/tools/recorder_diff.c - reports where the ranks of a world first diverged: see
   recorder_diff --help. */
#include "apps/program.h"
#include "apps/tools/disagreement.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help_text[] =
    "recorder_diff - find where the ranks of a run disagree\n"
    "\n"
    "Usage: recorder_diff FILE...\n"
    "\n"
    "Reads the flight recorders of the ranks of a run (rank-0.rec, rank-1.rec, ...) and names\n"
    "the first disagreement: rank, group, sequence number and operation; of a message both\n"
    "ends, and in which actions of a pipeline they were begun. gpt_train writes them\n"
    "into --recorder-dir when a rank fails, and at any time after kill -USR2.\n"
    "\n"
    "  recorder_diff runs/7/rank-*.rec\n"
    "  recorder_diff --version\n"
    "\n"
    "Exit status: 0, the ranks agree; 1, they do not; 2, a mistake in the command; 3, a "
    "file.\n";

static void print_event(const wf_event *e)
{
    if (!e) {
        printf("nothing");
        return;
    }
    printf("%s of %" PRId64 " bytes", wf_collective_name((wf_collective_kind)e->op), e->bytes);
    if (e->step)
        printf(" in step %" PRId32, e->step);
    if (*e->action)
        printf(" in %s", e->action);
    if (*e->module)
        printf(" at %s", e->module);
}

/* A member's part of what differs. */
static void print_member(const wf_recording *r, const recorded_line *line, uint64_t sequence)
{
    const wf_event *begin = recording_find(r, line, sequence, WF_EVENT_BEGIN);
    uint64_t first, last;

    printf("  rank %d on %s%s%s: ", r->head.rank, r->head.host, *r->head.at ? ", " : "",
           r->head.at);
    if (begin) {
        print_event(begin);
        printf("%s\n", recording_find(r, line, sequence, WF_EVENT_END)    ? ", ended"
                       : recording_find(r, line, sequence, WF_EVENT_FAIL) ? ", failed"
                                                                          : ", not ended");
        return;
    }
    recording_held(r, line, &first, &last);
    printf("did not begin it; its last one there is %" PRIu64 ", ", last);
    print_event(last ? recording_find(r, line, last, WF_EVENT_BEGIN) : NULL);
    printf("%s%s\n", *r->head.does ? "; it was in " : "", r->head.does);
}

static void print_message(const recordings *w, const disagreement *f)
{
    const int rank[] = {f->from, f->to};

    printf("message %" PRIu64 " from rank %d to rank %d: ", f->sequence, f->from, f->to);
    if (f->not_begun)
        printf("rank %d did not begin to %s it\n", f->odd,
               f->odd == f->from ? "send" : "receive");
    else
        printf("its ends are not of the same message\n");
    for (int i = 0; i < 2; i++) {
        const wf_recording *r = recording_of(w, rank[i]);

        print_member(
            r, &(recorded_line){recording_group(r, f->group), i ? WF_RECV : WF_SEND, rank[!i]},
            f->sequence);
    }
}

static void print_finding(const recordings *w, const disagreement *f)
{
    printf("first disagreement: rank %d, group %.31s of %d ranks from rank %d on, ", f->odd,
           f->group->name, f->group->size, f->group->first);
    if (f->from >= 0) {
        print_message(w, f);
        return;
    }
    printf("collective %" PRIu64 ": %s\n", f->sequence,
           f->not_begun ? "it did not begin what others did" : "it began another one");
    for (int i = 0; i < w->n; i++) {
        int g = recording_group(w->of[i], f->group);

        if (g >= 0)
            print_member(w->of[i], &(recorded_line){.group = g, .peer = -1}, f->sequence);
    }
}

static wf_status print_world(const recordings *w, wf_error *error)
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
    recordings w = {.n = argc - 1};
    wf_error error = {WF_OK, ""};
    int differ = 0;
    disagreement f = {.odd = 0};

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
        recording_read(argv[i + 1], &w.of[i], &error);
    if (w.of && error.code == WF_OK && print_world(&w, &error) == WF_OK) {
        differ = disagreement_find(&w, &f);
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
    app_program_error("recorder_diff", &error);
    return error.code == WF_ENOMEM ? 1 : 3;
}
