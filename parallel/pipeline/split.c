/* parallel/pipeline/split.c - cuts of a chain: by cost, by counts, by module paths. */
#include "parallel/pipeline/split.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static wf_status check(const wf_pipe_chain *chain, int stages, wf_error *error)
{
    if (stages < 1 || chain->steps < 0)
        return wf_error_set(error, WF_EINVAL,
                            "a chain of %" PRId64 " steps cannot be cut into %d stages: give 1 "
                            "stage or more",
                            chain->steps, stages);
    return WF_OK;
}

static wf_status check_costs(const wf_pipe_chain *chain, wf_error *error)
{
    for (int64_t i = 0; i <= chain->steps; i++) {
        double cost = i < chain->steps ? chain->cost[i] : chain->end;

        if (!(cost >= 0) || !isfinite(cost))
            return wf_error_set(error, WF_EINVAL,
                                "%s %" PRId64 " of a chain costs %g: a cost is 0 or more, and "
                                "finite",
                                i < chain->steps ? "step" : "the head after step",
                                i < chain->steps ? i : i - 1, cost);
    }
    return WF_OK;
}

/*
 * The tables of the dynamic program. Stage s and those after it have the steps from i on;
 * `most` and `squares` say how cheap they can be made, and `count` with how many steps of stage
 * s.
 */
typedef struct program {
    int64_t steps;
    int stages;
    const double *sum; /* [steps + 1], of the costs before each step */
    double end;
    double *most, *squares; /* [stages + 1][steps + 1] */
    int64_t *count;
} program;

static size_t at(const program *p, int s, int64_t i)
{
    return (size_t)s * (size_t)(p->steps + 1) + (size_t)i;
}

static double cost_of(const program *p, int s, int64_t from, int64_t to)
{
    return p->sum[to] - p->sum[from] + (s == p->stages - 1 ? p->end : 0);
}

/* Stage 0 takes the batch, and so has a step; others may have none. */
static int64_t least_end(const program *p, int s, int64_t i)
{
    return s == 0 && p->steps > 0 ? i + 1 : i;
}

/* The least cost of the most expensive of the stages from s on. With each step more in stage s
   it costs no less, and those after it no more: past where it costs as much as they do, nothing
   gets cheaper. */
static void find_most(program *p, int s, int64_t i)
{
    double least = INFINITY;
    bool cheaper = true;

    for (int64_t to = least_end(p, s, i); to <= p->steps && cheaper; to++) {
        double here = cost_of(p, s, i, to), rest = p->most[at(p, s + 1, to)];
        double most = here > rest ? here : rest;

        if (most < least)
            least = most;
        cheaper = here < rest;
    }
    p->most[at(p, s, i)] = least;
}

/* The least sum of squares where no stage costs more than `limit`, with the least steps in
   stage s. */
static void find_squares(program *p, int s, int64_t i, double limit)
{
    double least = INFINITY;
    int64_t count = 0;

    for (int64_t to = least_end(p, s, i); to <= p->steps; to++) {
        double here = cost_of(p, s, i, to);
        double squares = here * here + p->squares[at(p, s + 1, to)];

        if (here > limit)
            break;
        if (squares < least) {
            least = squares;
            count = to - i;
        }
    }
    p->squares[at(p, s, i)] = least;
    p->count[at(p, s, i)] = count;
}

static void solve(program *p, int64_t *first)
{
    for (int64_t i = 0; i <= p->steps; i++)
        p->most[at(p, p->stages, i)] = p->squares[at(p, p->stages, i)] =
            i == p->steps ? 0 : INFINITY;
    for (int s = p->stages - 1; s >= 0; s--)
        for (int64_t i = 0; i <= p->steps; i++)
            find_most(p, s, i);
    for (int s = p->stages - 1; s >= 0; s--)
        for (int64_t i = 0; i <= p->steps; i++)
            find_squares(p, s, i, p->most[0]);
    first[0] = 0;
    for (int s = 0; s < p->stages; s++)
        first[s + 1] = first[s] + p->count[at(p, s, first[s])];
}

wf_status wf_pipe_split_auto(const wf_pipe_chain *chain, int stages, int64_t *first,
                             wf_error *error)
{
    program p = {.steps = chain->steps, .stages = stages, .end = chain->end};
    wf_status status = check(chain, stages, error);
    double *sum = NULL;
    size_t n;

    if (status != WF_OK || check_costs(chain, error) != WF_OK)
        return WF_EINVAL;
    n = ((size_t)stages + 1) * (size_t)(p.steps + 1);
    sum = calloc((size_t)p.steps + 1, sizeof *sum);
    p.most = calloc(n, sizeof *p.most);
    p.squares = calloc(n, sizeof *p.squares);
    p.count = calloc(n, sizeof *p.count);
    if (sum && p.most && p.squares && p.count) {
        for (int64_t i = 0; i < p.steps; i++)
            sum[i + 1] = sum[i] + chain->cost[i];
        p.sum = sum;
        solve(&p, first);
    } else {
        status =
            wf_error_set(error, WF_ENOMEM, "no memory to cut %" PRId64 " steps into %d stages",
                         p.steps, stages);
    }
    free(sum);
    free(p.most);
    free(p.squares);
    free(p.count);
    return status;
}

/* Words of a text, divided by commas, blanks and ends of lines. */
static const char dividers[] = ", \t\r\n";

static const char *next_word(const char **text, size_t *length)
{
    const char *word = *text + strspn(*text, dividers);

    *length = strcspn(word, dividers);
    *text = word + *length;
    return *length ? word : NULL;
}

static int64_t count_words(const char *text)
{
    size_t length;
    int64_t n = 0;

    while (next_word(&text, &length))
        n++;
    return n;
}

static wf_status by_counts(const wf_pipe_chain *chain, const char *text, int stages,
                           int64_t *first, wf_error *error)
{
    const char *word, *rest = text;
    int64_t n = count_words(text);
    size_t length;

    if (n != stages)
        return wf_error_set(error, WF_EINVAL,
                            "the split '%s' has %" PRId64 " counts and there are %d stages: "
                            "give one for each, 0 for a stage without steps",
                            text, n, stages);
    first[0] = 0;
    for (int s = 0; s < stages; s++) {
        char *end;
        long long count;

        word = next_word(&rest, &length);
        count = strtoll(word, &end, 10);
        if (end != word + length || count < 0 || count > chain->steps)
            return wf_error_set(
                error, WF_EINVAL,
                "the split '%s' gives stage %d '%.*s' steps: give a number from "
                "0 to %" PRId64 ", which is how many there are",
                text, s, (int)length, word, chain->steps);
        first[s + 1] = first[s] + count;
    }
    if (first[stages] != chain->steps)
        return wf_error_set(error, WF_EINVAL,
                            "the counts of the split '%s' sum up to %" PRId64
                            ", but the model has %" PRId64 " steps: %s %" PRId64,
                            text, first[stages], chain->steps,
                            first[stages] < chain->steps ? "add" : "take away",
                            first[stages] < chain->steps ? chain->steps - first[stages]
                                                         : first[stages] - chain->steps);
    return WF_OK;
}

static bool is(const char *path, const char *word, size_t length)
{
    return strncmp(path, word, length) == 0 && path[length] == '\0';
}

/* Returns true where the word is a path inside of a module. */
static bool is_inside(const char *path, const char *word, size_t length)
{
    size_t n = strlen(path);

    return n < length && strncmp(path, word, n) == 0 && word[n] == '.';
}

/* The path of the module with which a step begins. */
static const char *begin_of(const wf_pipe_chain *chain, int64_t step)
{
    for (int64_t i = 0; i < chain->modules; i++)
        if (chain->module[i].step == step)
            return chain->module[i].path;
    return "?";
}

/* The step that begins with a path, or -1 with the reason. */
static int64_t step_of(const wf_pipe_chain *chain, const char *word, size_t length,
                       wf_error *error)
{
    for (int64_t i = 0; i < chain->modules; i++) {
        const wf_pipe_module *m = &chain->module[i];
        bool here = is(m->path, word, length);
        const char *begin = begin_of(chain, m->step);

        if (here && m->step < chain->steps && begin == m->path)
            return m->step;
        if (here && m->step >= chain->steps)
            wf_error_set(error, WF_EINVAL,
                         "module '%.*s' is of the head, which the last stage has after its "
                         "steps: a cut is before a step, the last of which is %s",
                         (int)length, word, begin_of(chain, chain->steps - 1));
        else if (here || is_inside(m->path, word, length))
            wf_error_set(error, WF_EINVAL,
                         "module '%.*s' is not the first of step %" PRId64
                         ", which begins with %s: cut before that one, or before %s",
                         (int)length, word, m->step, begin,
                         m->step + 1 < chain->steps ? begin_of(chain, m->step + 1)
                                                    : "an earlier step");
        if (here || is_inside(m->path, word, length))
            return -1;
    }
    wf_error_set(error, WF_EINVAL,
                 "no step of the model begins with module '%.*s': the %" PRId64
                 " steps begin with %s to %s",
                 (int)length, word, chain->steps, begin_of(chain, 0),
                 begin_of(chain, chain->steps - 1));
    return -1;
}

static wf_status by_paths(const wf_pipe_chain *chain, const char *text, int stages,
                          int64_t *first, wf_error *error)
{
    const char *word, *rest = text;
    int64_t n = count_words(text);
    size_t length;

    if (n != stages - 1)
        return wf_error_set(error, WF_EINVAL,
                            "the split '%s' has %" PRId64
                            " module paths and there are %d stages: "
                            "give %d, with which the stages after the first one begin",
                            text, n, stages, stages - 1);
    first[0] = 0;
    first[stages] = chain->steps;
    for (int s = 1; s < stages; s++) {
        word = next_word(&rest, &length);
        first[s] = step_of(chain, word, length, error);
        if (first[s] < 0)
            return WF_EINVAL;
        if (first[s] < first[s - 1])
            return wf_error_set(
                error, WF_EINVAL,
                "the split '%s' lets stage %d begin with %.*s, which runs before "
                "%s, with which stage %d begins: write paths in the order of the "
                "model",
                text, s, (int)length, word, begin_of(chain, first[s - 1]), s - 1);
    }
    return WF_OK;
}

wf_status wf_pipe_split(const wf_pipe_chain *chain, const char *text, int stages,
                        int64_t *first, wf_error *error)
{
    const char *rest = text;
    size_t length;
    const char *word = next_word(&rest, &length);

    if (check(chain, stages, error) != WF_OK)
        return WF_EINVAL;
    if (word && is("auto", word, length) && !next_word(&rest, &length))
        return wf_pipe_split_auto(chain, stages, first, error);
    if (word && strchr("+-0123456789", *word))
        by_counts(chain, text, stages, first, error);
    else
        by_paths(chain, text, stages, first, error);
    if (error->code == WF_OK && chain->steps > 0 && first[1] == 0)
        wf_error_set(
            error, WF_EINVAL,
            "the split '%s' leaves stage 0 without a step: it takes the batch, so give "
            "it one at least",
            text);
    return error->code;
}
