/* apps/gpt_train/memory_check.c - a run's plan beside the limits of its process; see the header. */
#include "apps/gpt_train/memory_check.h"
#include "apps/gpt_train/memory_limits.h"
#include "apps/gpt_train/dry_run.h"
#include "apps/step_report.h"
#include <pthread.h>
#include <string.h>

enum { MOST_PLANS = 64 }; /* ranks are planned one by one up to so many */

/* What a rank takes beside its tensors, as measured on worlds of 512 to 2048 ranks: the recorder and
   what is kept for collectives, of which a part grows with the number of members. */
enum { OF_RANK = 640 << 10, OF_MEMBER = 1 << 10 };

/* Of a process with so many ranks. Stacks have addresses of their own, and hardly anything in them. */
static double beside(const wf_options *o, int ranks, bool reserved)
{
    double members = (double)(o->tp * o->dp), all = ranks * (OF_RANK + OF_MEMBER * members);
    pthread_attr_t attributes;
    size_t stack = 0;

    if (reserved && pthread_attr_init(&attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &stack);
        pthread_attr_destroy(&attributes);
        all += ranks * (WF_RANK_STACK + (double)(o->threads_per_rank - 1) * (double)stack);
    }
    return all;
}

/* What a limit leaves for the tensors of this process: all that were started here may share it.
   Negative: not even the ranks have room. */
static double room_of(const wf_options *o, const wf_memory_limit *limit, int ranks, int local)
{
    return limit->room / (limit->shared ? local : 1) - beside(o, ranks, limit->reserved);
}

static const wf_memory_limit *tightest(const wf_options *o, const wf_memory_limit *limit, int n,
                                       int ranks, int local)
{
    const wf_memory_limit *least = NULL;

    for (int i = 0; i < n; i++)
        if (!least || room_of(o, &limit[i], ranks, local) < room_of(o, least, ranks, local))
            least = &limit[i];
    return least;
}

/* Bytes of all ranks of this process. Parts grow with the rank's number, so the first has least and
   the last most: where those of the last would do, or nobody knows which ranks these are, one plan
   is enough. */
static bool need(const wf_options *o, int ranks, bool all, double room, double *bytes,
                 wf_memory_report *first)
{
    wf_memory_report report;
    wf_error error;

    *bytes = 0;
    if (wf_dry_run_memory(o, (int)(o->tp * o->dp) - 1, &report, &error) != WF_OK)
        return false;
    if (ranks * (double)report.peak <= room)
        return true;
    if (wf_dry_run_memory(o, 0, first, &error) != WF_OK)
        return false;
    *bytes = ranks * (double)first->peak;
    for (int rank = 1; all && ranks <= MOST_PLANS && rank < ranks; rank++) {
        if (wf_dry_run_memory(o, rank, &report, &error) != WF_OK)
            return false;
        *bytes += (double)report.peak - (double)first->peak;
    }
    return true;
}

/* What helps most where one kind has most. */
static const char *advice(const wf_options *o, wf_memory_kind most)
{
    if (most == WF_MEMORY_ACTIVATION || most == WF_MEMORY_WORKSPACE)
        return strcmp(o->recompute, "none") == 0
                   ? "use a smaller --micro-batch-size, or --recompute block"
                   : "use a smaller --micro-batch-size";
    if (o->dp > 1 && strcmp(o->strategy, "full_shard") != 0)
        return "use --strategy full_shard, which splits what ranks hold";
    return "spread the ranks over more machines, or train a smaller model";
}

wf_status wf_memory_check(const wf_options *o, const wf_launcher *launcher, wf_error *error)
{
    int local = launcher->local > 0 ? launcher->local : 1, processes = launcher->processes;
    int ranks = (int)(o->tp * o->dp) / processes, largest = 0;
    wf_memory_limit limit[WF_MEMORY_LIMITS];
    const wf_memory_limit *least =
        tightest(o, limit, o->memory_check ? wf_memory_limits("", limit) : 0, ranks, local);
    wf_memory_report report;
    char bytes[32], most[32], left[32], of_ranks[32];
    double room, needed;

    if (!least || !o->steps || strcmp(o->device, "cuda") == 0)
        return WF_OK;
    room = room_of(o, least, ranks, local);
    wf_size_text(of_ranks, beside(o, ranks, least->reserved));
    wf_size_text(most, least->most);
    if (room < 0)
        return wf_error_set(
            error, WF_ENOMEM,
            "this run does not fit: %d rank%s of %lld thread%s take %s in this process without "
            "their tensors, and %s (%s) leaves %s%s; start fewer ranks in a process, or fewer "
            "--threads-per-rank, or allow more; --memory-check off starts it all the same",
            ranks, ranks == 1 ? "" : "s", (long long)o->threads_per_rank,
            o->threads_per_rank == 1 ? "" : "s", of_ranks, least->name, most,
            wf_size_text(left, least->room),
            least->shared && local > 1 ? " for all of its processes here" : "");
    if (!need(o, ranks, processes == 1, room, &needed, &report) || needed <= room)
        return WF_OK;
    for (int k = 1; k < WF_MEMORY_KINDS; k++)
        if (report.at_peak[k] > report.at_peak[largest])
            largest = k;
    return wf_error_set(
        error, WF_ENOMEM,
        "this run does not fit: the tensors of the %d rank%s of this process take %s, most for "
        "%s, and %s (%s) leaves %s%s, beside %s for the ranks themselves; %s (--plan tells "
        "what flags are worth), or allow more; --memory-check off starts it all the same",
        ranks, ranks == 1 ? "" : "s", wf_size_text(bytes, needed),
        wf_memory_kind_name((wf_memory_kind)largest), least->name, most,
        wf_size_text(left, room),
        least->shared && local > 1 ? " for each of its processes here" : "", of_ranks,
        advice(o, (wf_memory_kind)largest));
}
