/* apps/tools/schedule_flags.c - the command line of schedule. */
#include "apps/tools/schedule_flags.h"
#include "parallel/program/unknown_flag.h"
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

const char app_schedule_help[] =
    "schedule - generate, check, lower and draw pipeline schedules\n"
    "\n"
    "Usage: schedule gen|check|lower|show|list [NAME|FILE] [--pp N] [--virtual N] [--micro N] "
    "...\n"
    "\n"
    "Pipeline schedules are tables: what each rank does, in order. NAME is a schedule that is "
    "made\n"
    "for --pp ranks; FILE is one that was written: text as gen prints it, or, where its name\n"
    "ends in .csv, a table of torch.distributed.pipelining.\n"
    "\n"
    "  gen                   print the table as text, to edit it and give it back as FILE\n"
    "  check                 prove that it ends with all gradients, whatever ranks wait for; "
    "say\n"
    "                        how many messages have to be in flight, the peak activations, "
    "and\n"
    "                        how long the proof took\n"
    "  lower                 print it with its messages, gathers and reductions\n"
    "  show                  draw it in time, with both bubbles\n"
    "  list                  name the schedules there are\n"
    "\n"
    "  --pp N                pipeline ranks (default: 4)\n"
    "  --virtual N           stages of a rank (default: what the schedule is made for)\n"
    "  --micro N             micro-batches (default: twice the ranks)\n"
    "  --cap N               list: most live activations of a rank, in stages\n"
    "  --depth N             messages in flight to one rank, or auto: the fewest that cost no\n"
    "                        time where that is at most 32, else the fewest (default: auto)\n"
    "  --ahead N             receives begun ahead (default: 1)\n"
    "  --recompute           recompute forward before each backward\n"
    "  --group N             reduce gradients in groups of N micro-batches, a power of two\n"
    "  --resident N          gather at most N stages of a rank at a time\n"
    "  --prefetch N          begin gathers N actions ahead (default: 1)\n"
    "  --frozen N            the first N stages have nothing to train\n"
    "  --tied                the first and the last stage share a parameter\n"
    "  --costs F,I,W,P       what a rank's forward, gradients of inputs and of weights and a\n"
    "                        message take, in hundredths (default: 100,100,100,0)\n"
    "  --blocks              actions that may overlap run as one block\n"
    "  --messages            show: draw it as lowered, waiting for messages\n"
    "  --svg FILE            show: draw a picture too\n"
    "  --version             version, commit, compiler and what is built in\n"
    "\n"
    "Examples\n"
    "  schedule show 1f1b --pp 4 --micro 8\n"
    "  schedule show zb-v --pp 4 --micro 8 --costs 100,115,85,5 --svg zb-v.svg\n"
    "  schedule gen zb-h1 --pp 4 > mine.sched && schedule check mine.sched\n"
    "  schedule lower looped-bfs --pp 2 --virtual 2 --depth 2 --group 4\n"
    "\n"
    "Exit status: 0; 1 for a schedule that cannot be made or cannot run, 2 for a mistake in "
    "the flags,\n"
    "3 for a file.\n";

static const struct option flags[] = {
    {"pp", 1, NULL, 'p'},        {"virtual", 1, NULL, 'v'},  {"micro", 1, NULL, 'm'},
    {"cap", 1, NULL, 'c'},       {"depth", 1, NULL, 'd'},    {"ahead", 1, NULL, 'a'},
    {"group", 1, NULL, 'g'},     {"resident", 1, NULL, 'r'}, {"prefetch", 1, NULL, 'f'},
    {"recompute", 0, NULL, 'R'}, {"tied", 0, NULL, 't'},     {"costs", 1, NULL, 'C'},
    {"frozen", 1, NULL, 'z'},    {"blocks", 0, NULL, 'b'},   {"messages", 0, NULL, 'M'},
    {"svg", 1, NULL, 's'},       {"help", 0, NULL, 'H'},     {NULL, 0, NULL, 0}};

static wf_status count(const char *flag, const char *text, int least, int *value,
                       wf_error *error)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (end == text || *end || n < least || n > 1 << 20)
        return wf_error_set(error, WF_EINVAL, "--%s %s: a whole number from %d to %d", flag,
                            text, least, 1 << 20);
    *value = (int)n;
    return WF_OK;
}

static wf_status costs(const char *text, app_schedule_request *q, wf_error *error)
{
    int *const value[] = {&q->forward, &q->inputs, &q->weights, &q->message};
    const char *at = text;
    char *end;

    for (int i = 0; i < 4; i++) {
        long n = strtol(at, &end, 10);

        if (end == at || n < (i < 3) || n > 1 << 20 || *end != (i < 3 ? ',' : '\0'))
            return wf_error_set(error, WF_EINVAL,
                                "--costs %s: four whole numbers with commas between them, like "
                                "100,115,85,5; the first three at least 1",
                                text);
        *value[i] = (int)n;
        at = end + 1;
    }
    return WF_OK;
}

static wf_status set_count(app_schedule_request *q, int flag, const char *value,
                           wf_error *error)
{
    const struct {
        int flag, least;
        const char *name;
        int *value;
    } counts[] = {{'p', 1, "pp", &q->pp},
                  {'v', 1, "virtual", &q->virtual},
                  {'m', 1, "micro", &q->micro},
                  {'c', 1, "cap", &q->cap},
                  {'a', 0, "ahead", &q->how.ahead},
                  {'g', 1, "group", &q->how.group},
                  {'r', 1, "resident", &q->how.resident},
                  {'z', 0, "frozen", &q->how.frozen},
                  {'f', 0, "prefetch", &q->how.prefetch},
                  {'d', 0, "depth", &q->how.depth}};
    size_t i = 0;

    q->shaped = q->shaped || strchr("pvmc", flag);
    if (flag == 'd' && strcmp(value, "auto") == 0) {
        q->how.depth = -1;
        return WF_OK;
    }
    while (counts[i].flag != flag)
        i++;
    return count(counts[i].name, value, counts[i].least, counts[i].value, error);
}

static wf_status set_flag(app_schedule_request *q, int flag, const char *value, wf_error *error)
{
    switch (flag) {
    case 'C':
        return costs(value, q, error);
    case 's':
        q->svg = value;
        return WF_OK;
    case 'R':
        q->how.recompute = true;
        return WF_OK;
    case 't':
        q->how.tied = true;
        return WF_OK;
    case 'b':
        q->blocks = true;
        return WF_OK;
    case 'M':
        q->messages = true;
        return WF_OK;
    case 'H':
        q->help = true;
        return WF_OK;
    default:
        return set_count(q, flag, value, error);
    }
}

/* The words that are no flags: a command, and what it is for. */
static wf_status set_words(app_schedule_request *q, int n, char **word, wf_error *error)
{
    static const char *const commands[] = {"gen", "check", "lower", "show", "list"};
    int c = 0, list = 4;

    if (!n)
        return wf_error_set(error, WF_EINVAL, "no command: see schedule --help");
    while (c <= list && strcmp(word[0], commands[c]) != 0)
        c++;
    if (c > list)
        return wf_error_set(error, WF_EINVAL,
                            "%s is no command: gen, check, lower, show or list", word[0]);
    if (n != (c == list ? 1 : 2))
        return wf_error_set(error, WF_EINVAL, "schedule %s takes %s", word[0],
                            c == list ? "nothing else" : "one name of a schedule, or one file");
    q->command = word[0];
    q->source = word[1];
    return WF_OK;
}

/* Returns the name of the first of some flags that was given; NULL: none was. */
static const char *given(const app_schedule_request *q, const char *some)
{
    for (int i = 0; flags[i].name; i++)
        if (q->given >> i & 1 && strchr(some, flags[i].val))
            return flags[i].name;
    return NULL;
}

const char *app_schedule_lowering(const app_schedule_request *q)
{
    return given(q, "dagrfRtz");
}

/* Refuses flags that the command would not read. */
static wf_status check_read(const app_schedule_request *q, wf_error *error)
{
    const bool shows = strcmp(q->command, "show") == 0;
    const bool lowers = shows ? q->messages : strcmp(q->command, "gen") != 0;
    const struct {
        const char *flag, *why;
    } unread[] = {
        {strcmp(q->command, "list") == 0 ? given(q, "pvmcdagrfRtCzbMs") : NULL,
         "is of one schedule, and list names all of them"},
        {shows ? NULL : given(q, "Ms"), "is for schedule show"},
        {lowers ? NULL : app_schedule_lowering(q),
         "says how a table is lowered: use it with check, lower or show --messages"},
        {shows || (lowers && q->how.depth < 0) ? NULL : given(q, "Cb"),
         "is for times: use it with show, or with check and lower and --depth auto"},
        {q->how.resident ? NULL : given(q, "f"),
         "is of gathers that --resident N limits: use both"},
        {q->source && strcmp(q->source, "list") == 0 ? NULL : given(q, "c"),
         "is of the schedule list"},
    };

    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        if (unread[i].flag)
            return wf_error_set(error, WF_EINVAL, "--%s %s", unread[i].flag, unread[i].why);
    return WF_OK;
}

wf_status app_schedule_parse(int argc, char **argv, app_schedule_request *q, wf_error *error)
{
    wf_status status = WF_OK;
    int flag, at = 0;

    opterr = 0;
    while (status == WF_OK && (flag = getopt_long(argc, argv, "", flags, &at)) != -1) {
        status = flag == '?' ? wf_flag_refused("schedule", argc, argv, flags, error)
                             : set_flag(q, flag, optarg, error);
        q->given |= 1U << at;
    }
    if (status == WF_OK && !q->help)
        status = set_words(q, argc - optind, argv + optind, error);
    return status == WF_OK && !q->help ? check_read(q, error) : status;
}
