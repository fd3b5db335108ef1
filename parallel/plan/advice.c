/* parallel/plan/advice.c - see the header. */
#include "parallel/plan/request_internal.h"
#include "parallel/plan/advice_internal.h"
#include "parallel/plan/choose_internal.h"
#include "parallel/plan/search_internal.h"
#include <string.h>
#include <time.h>

enum {
    NONE = -1,
    MOST_SWEEPS = 3,
    PATIENCE = 2, /* s, until the user is informed that this takes long */
    BUSY = 2      /* times the limit of work is the limit of waiting */
};

/* A setting of each tunable, or NONE. */
typedef struct combination {
    int setting[WF_PLAN_TUNABLES];
} combination;

typedef struct advising {
    const wf_plan_request *base;
    const wf_plan *base_run;
    const wf_plan_advice_limits *limits;
    wf_plan_advice *advice;
    double work,
        wall; /* s of this process's work and of the clock on the wall, at the beginning */
    bool reported;
    double seconds; /* the step of `base` on --machine; 0: none is given */
} advising;

static double now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static combination nothing(void)
{
    combination c;

    for (int k = 0; k < WF_PLAN_TUNABLES; k++)
        c.setting[k] = NONE;
    return c;
}

static wf_plan_set apply(const advising *s, const combination *c, wf_plan_request *o)
{
    *o = *s->base; /* its texts stay the caller's */
    for (int k = 0; k < WF_PLAN_TUNABLES; k++) {
        wf_plan_set set =
            c->setting[k] == NONE ? WF_PLAN_SET : wf_plan_tunables[k].set(o, c->setting[k]);

        if (set != WF_PLAN_SET)
            return set;
    }
    if (o->tp != s->base->tp || o->dp != s->base->dp || o->pp != s->base->pp)
        o->rank = wf_plan_ranks(o) - 1; /* the last one has the largest parts */
    return WF_PLAN_SET;
}

static bool changes_numbers(const combination *c)
{
    for (int k = 0; k < WF_PLAN_TUNABLES; k++)
        if (c->setting[k] != NONE && wf_plan_tunables[k].price == WF_PLAN_NUMBERS)
            return true;
    return false;
}

/* A step on --machine; 0: no machine is named, or it has no time for this. */
static double seconds_of(const wf_plan_request *o)
{
    wf_error ignored = {WF_OK, ""};
    char machine[WF_SIM_NAME];
    wf_search_found found;

    if (!o->machine || wf_search_time(o, &found, machine, &ignored) != WF_OK)
        return 0;
    return found.seconds;
}

static void describe(const advising *s, const combination *c, const wf_plan_request *o,
                     const wf_plan *run, wf_plan_advice_line *line)
{
    char *text = line->cost;
    size_t size = sizeof line->cost, used;

    *line = (wf_plan_advice_line){.ranks = wf_plan_ranks(o),
                                  .peak = (double)run->report.memory.peak,
                                  .flops = run->report.flops,
                                  .traffic = wf_plan_traffic(run)};
    wf_plan_changes(s->base, o, line->flags, sizeof line->flags);
    line->seconds = seconds_of(o);
    used = wf_plan_advice_share(text, size, "FLOPs", s->base_run->report.flops, line->flops);
    if (line->seconds > 0)
        used +=
            wf_plan_advice_share(text + used, size - used, "time", s->seconds, line->seconds);
    used += wf_plan_advice_share(text + used, size - used, "traffic",
                                 wf_plan_traffic(s->base_run), line->traffic);
    for (int k = 0; k < WF_PLAN_TUNABLES; k++)
        if (c->setting[k] != NONE && wf_plan_tunables[k].cost && used < size)
            used +=
                (size_t)snprintf(text + used, size - used, "%s, ", wf_plan_tunables[k].cost);
    if (changes_numbers(c) && used < size)
        used += (size_t)snprintf(text + used, size - used, "other numbers, ");
    if (*run->inexact && !*s->base_run->inexact && used < size)
        used += (size_t)snprintf(text + used, size - used, "not layout-exact, ");
    if (line->ranks != wf_plan_ranks(s->base) && used < size)
        used +=
            (size_t)snprintf(text + used, size - used, "%lld ranks, ", (long long)line->ranks);
    if (used >= size)
        used = size - 1;
    text[used >= 2 ? used - 2 : 0] = 0; /* without the last comma */
}

/* Returns true when the time is over; reports once that it takes long. The time is this
   process's own work, so that a busy machine gives the same advice, but for a limit on wall
   time. */
static bool is_over(advising *s)
{
    double work = now(CLOCK_PROCESS_CPUTIME_ID) - s->work,
           wall = now(CLOCK_MONOTONIC) - s->wall;

    if (!s->reported && s->limits->progress && s->base->notes && wall > PATIENCE) {
        s->reported = true;
        fprintf(s->base->notes, "looking for flags that would fit, for %.0f s at most\n",
                s->limits->seconds);
    }
    if (work > s->limits->seconds || wall > BUSY * s->limits->seconds)
        s->advice->stopped = true;
    return s->advice->stopped;
}

/* The same with few micro-steps: those after the second take no more memory, but time to
   plan. */
static wf_plan_request shortened(const wf_plan_request *options)
{
    wf_plan_request o = *options;
    int64_t micro_step = o.dp * o.micro_batch_size;

    if (o.global_batch_size > 2 * micro_step)
        o.global_batch_size = 2 * micro_step;
    return o;
}

/* Plans a combination and returns true where it fits: one rank, in a pipeline that was not
   asked for one of the last stage and one of the first, and both beside the fullest where a job
   has more to do than steps; *run is the largest plan. */
static bool fits(const advising *s, const wf_plan_request *o, wf_plan *run)
{
    int64_t each = wf_plan_ranks(o) / o->pp;
    int plans = o->pp == 1 ? 1 : o->pp != s->base->pp ? 2 : o->job.after ? 3 : 1;
    wf_plan_request one = *o;

    for (int i = 0; i < plans && s->limits->room >= 1; i++) {
        wf_error ignored = {WF_OK, ""};
        wf_plan other;

        one.rank = i == 0 ? o->rank : i == 1 ? each - 1 : wf_plan_ranks(o) - 1;
        if (wf_plan_request_within(&one, s->limits->start, (size_t)s->limits->room, &other,
                                   &ignored) != WF_OK)
            return false;
        if (!i || other.report.memory.peak > run->report.memory.peak)
            *run = other;
    }
    return s->limits->room >= 1;
}

/* A run with these flags may find a way to sum gradients that moves less. */
static void as_it_runs(const advising *s, const wf_plan_request *o, wf_plan *run)
{
    wf_plan_request chosen = *o;
    char line[WF_PLAN_CHOICE];
    wf_plan other;

    wf_plan_choose_accumulate(&chosen, line);
    if (*line && fits(s, &chosen, &other))
        *run = other;
}

/* Tries a combination, and describes it in a line where it fits. Planning stops as soon as it
   does not. */
static wf_plan_set attempt(advising *s, const combination *c, wf_plan_advice_line *line)
{
    wf_plan_request o, few;
    wf_plan run;
    wf_plan_set set = is_over(s) ? WF_PLAN_END : apply(s, c, &o);

    if (set != WF_PLAN_SET)
        return set;
    s->advice->planned++;
    few = shortened(&o);
    if (!wf_plan_request_runs(&o) || !fits(s, &few, &run) ||
        (few.global_batch_size != o.global_batch_size && !fits(s, &o, &run)))
        return WF_PLAN_SKIP;
    as_it_runs(s, &o, &run);
    describe(s, c, &o, &run, line);
    return WF_PLAN_SET;
}

/* The peak of a combination's first step, which is hardly less than that of a run; 0 where it
   has none. */
static double peak_of(advising *s, const combination *c)
{
    wf_plan_request o;
    wf_error ignored = {WF_OK, ""};
    wf_plan run;

    if (is_over(s) || apply(s, c, &o) != WF_PLAN_SET)
        return 0;
    s->advice->planned++;
    o = shortened(&o);
    if (wf_plan_request_start(&o, (int)o.rank, &run, &ignored) != WF_OK)
        return 0;
    return (double)run.report.memory.peak;
}

static void add_line(wf_plan_advice *a, const wf_plan_advice_line *line)
{
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->line[i].flags, line->flags) == 0)
            return;
    if (a->n < WF_PLAN_ADVICE_LINES)
        a->line[a->n++] = *line;
}

/* Finds the mildest setting of a tunable with which all fits, beside what is in c already. */
static bool fit(advising *s, int k, combination *c, wf_plan_advice_line *line)
{
    wf_plan_set set = WF_PLAN_SKIP;

    for (int i = 0; set == WF_PLAN_SKIP; i++) {
        c->setting[k] = i;
        set = attempt(s, c, line);
    }
    if (set == WF_PLAN_END)
        c->setting[k] = NONE;
    return set == WF_PLAN_SET;
}

static void find_single(advising *s, wf_plan_price price)
{
    for (int k = 0; k < WF_PLAN_TUNABLES; k++) {
        combination c = nothing();
        wf_plan_advice_line line;

        if (wf_plan_tunables[k].price == price && fit(s, k, &c, &line))
            add_line(s->advice, &line);
    }
}

/* Returns the last setting of a tunable, which saves most, beside what is in c; or NONE. */
static int strongest(const advising *s, const combination *c, int k)
{
    combination other = *c;
    wf_plan_request o;
    wf_plan_set set = WF_PLAN_SET;
    int last = NONE;

    for (int i = 0; set != WF_PLAN_END; i++) {
        other.setting[k] = i;
        set = apply(s, &other, &o);
        if (set == WF_PLAN_SET)
            last = i;
    }
    return last;
}

/* Takes back what is not needed, the dearest first, or makes it milder. */
static void relax(advising *s, combination *c, wf_plan_advice_line *line)
{
    for (int k = WF_PLAN_TUNABLES - 1; k >= 0; k--) {
        int needed = c->setting[k];
        bool found = false;

        for (int i = NONE; i < needed && !found; i++) {
            c->setting[k] = i;
            found = attempt(s, c, line) == WF_PLAN_SET;
        }
        if (!found)
            c->setting[k] = needed;
    }
}

/* Sets a tunable to its last setting; back where that saves hardly anything. */
static bool turn(advising *s, int k, combination *c, double *peak)
{
    double now;

    c->setting[k] = strongest(s, c, k);
    if (c->setting[k] == NONE)
        return false;
    now = peak_of(s, c);
    if (now > 0 && now < 0.999 * *peak)
        *peak = now;
    else
        c->setting[k] = NONE;
    return c->setting[k] != NONE;
}

/* Sets tunables of this price and of none until all together fit, then relaxes them. What does
   not help may help once another tensor no longer makes the peak, so it is retried. */
static bool add_up(advising *s, wf_plan_price price, combination *c, double *peak)
{
    bool less = true;
    wf_plan_advice_line line;

    for (int sweep = 0; sweep < MOST_SWEEPS && less; sweep++) {
        less = false;
        for (int k = 0; k < WF_PLAN_TUNABLES; k++) {
            wf_plan_price asked = wf_plan_tunables[k].price;

            if (c->setting[k] != NONE || (asked != price && asked != WF_PLAN_FREE) ||
                !turn(s, k, c, peak))
                continue;
            less = true;
            if (*peak <= s->limits->room && attempt(s, c, &line) == WF_PLAN_SET) {
                relax(s, c, &line);
                add_line(s->advice, &line);
                return true;
            }
        }
    }
    return false;
}

/* More ranks, as few as will do, for what all else together has made of the plan. */
static bool spread(advising *s, const combination *from)
{
    for (int k = 0; k < WF_PLAN_TUNABLES; k++) {
        combination c = *from;
        wf_plan_advice_line line;

        if (wf_plan_tunables[k].price != WF_PLAN_RANKS || !fit(s, k, &c, &line))
            continue;
        relax(s, &c, &line);
        add_line(s->advice, &line);
        return true;
    }
    return false;
}

/* Beside `free`, all that keeps numbers and ranks: with other numbers, or more ranks; else with
   both. `all` becomes what takes least on these ranks. */
static void find_dear(advising *s, const combination *free, double peak, combination *all)
{
    *all = *free;
    add_up(s, WF_PLAN_NUMBERS, all, &peak);
    if (s->limits->more_ranks && !spread(s, free) && !s->advice->n)
        spread(s, all);
}

/* The line of the combination that takes least, where none fits. */
static void find_smallest(advising *s, const combination *c)
{
    wf_plan_request o;
    wf_error ignored = {WF_OK, ""};
    wf_plan run;

    if (apply(s, c, &o) == WF_PLAN_SET &&
        wf_plan_request_within(&o, false, 0, &run, &ignored) == WF_OK)
        describe(s, c, &o, &run, &s->advice->smallest);
}

static void find_all(advising *s)
{
    wf_plan_advice *advice = s->advice;
    combination free = nothing(), all;
    double peak = (double)s->base_run->report.memory.peak;

    find_single(s, WF_PLAN_FREE);
    advice->together = !advice->n;
    if (!advice->n)
        add_up(s, WF_PLAN_FREE, &free, &peak);
    find_single(s, WF_PLAN_NUMBERS);
    if (advice->n)
        return;
    find_dear(s, &free, peak, &all);
    if (!advice->n)
        find_smallest(s, &all);
}

void wf_plan_advice_find(const wf_plan_request *options, const wf_plan *base,
                         const wf_plan_advice_limits *limits, wf_plan_advice *advice)
{
    advising s = {.base = options,
                  .base_run = base,
                  .limits = limits,
                  .advice = advice,
                  .work = now(CLOCK_PROCESS_CPUTIME_ID),
                  .wall = now(CLOCK_MONOTONIC),
                  .seconds = seconds_of(options)};

    *advice = (wf_plan_advice){.n = 0};
    find_all(&s);
    if (s.seconds > 0)
        wf_plan_advice_sort(advice);
}
