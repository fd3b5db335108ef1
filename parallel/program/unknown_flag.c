/* parallel/program/unknown_flag.c - see the header. */
#include "parallel/program/unknown_flag.h"
#include "parallel/program/flags.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST_NAME = 40 };

/* Flags that were meant, with " or " between them; or why there is none. */
typedef struct suggestion {
    char text[128];
    const char *none;
} suggestion;

/* Other tools' names for what one or two flags say, or none. */
typedef struct other_name {
    const char *theirs, *ours[2], *none;
} other_name;

static const other_name other_names[] = {
#define NAME(theirs, ours)        {#theirs, {#ours, NULL}, NULL},
#define NAME2(theirs, one, other) {#theirs, {#one, #other}, NULL},
#define NONE(theirs, why)         {#theirs, {NULL, NULL}, why},
#include "parallel/program/other_names.def"
#undef NAME
#undef NAME2
#undef NONE
};

/* Names are alike with dashes, underscores and the points of sections. */
static char dashed(char c)
{
    return c == '_' || c == '.' ? '-' : c;
}

/* Returns the number of leading letters that two names share. */
static size_t shared_start(const char *a, size_t length, const char *b)
{
    size_t n = 0;

    while (n < length && b[n] && dashed(a[n]) == dashed(b[n]))
        n++;
    return n;
}

static bool is_name(const char *a, size_t length, const char *b)
{
    return strlen(b) == length && shared_start(a, length, b) == length;
}

static const char *find(const char *const *names, const char *name, size_t length)
{
    for (; *names; names++)
        if (is_name(name, length, *names))
            return *names;
    return NULL;
}

/* Counts the insertions, deletions, replacements and swaps of neighbours that turn a into b. */
static int distance(const char *a, size_t length, const char *b)
{
    int cost[LONGEST_NAME + 1][LONGEST_NAME + 1];
    size_t width = strlen(b);

    for (size_t i = 0; i <= length; i++)
        cost[i][0] = (int)i;
    for (size_t j = 0; j <= width; j++)
        cost[0][j] = (int)j;
    for (size_t i = 1; i <= length; i++) {
        for (size_t j = 1; j <= width; j++) {
            char x = dashed(a[i - 1]), y = dashed(b[j - 1]);
            int best = cost[i - 1][j - 1] + (x != y);

            if (cost[i - 1][j] + 1 < best)
                best = cost[i - 1][j] + 1;
            if (cost[i][j - 1] + 1 < best)
                best = cost[i][j - 1] + 1;
            if (i > 1 && j > 1 && x == dashed(b[j - 2]) && dashed(a[i - 2]) == y &&
                cost[i - 2][j - 2] + 1 < best)
                best = cost[i - 2][j - 2] + 1;
            cost[i][j] = best;
        }
    }
    return cost[length][width];
}

/* Finds the closest flag. A name that was cut short, or written on, counts as one slip. */
static const char *nearest(const char *const *names, const char *name, size_t length)
{
    const char *found = NULL;
    int slips = length < 5 ? 1 : length < 6 ? 2 : (int)(length / 3);
    int best = (slips + 1) * LONGEST_NAME;

    if (length < 2 || length > LONGEST_NAME)
        return NULL;
    for (; *names; names++) {
        size_t shared = shared_start(name, length, *names), width = strlen(*names);
        int away, cost;

        if (width > LONGEST_NAME)
            continue;
        away = distance(name, length, *names);
        cost = away * LONGEST_NAME;
        if (away && shared >= 3 && (shared == length || shared == width))
            cost = LONGEST_NAME + away;
        if (cost < best) {
            best = cost;
            found = *names;
        }
    }
    return found;
}

static void add_flag(suggestion *to, const char *name, bool is_key)
{
    char *at = to->text + strlen(to->text);

    at += snprintf(at, sizeof to->text - (size_t)(at - to->text),
                   is_key ? "%s\"%s\"" : "%s--%s", *to->text ? " or " : "", name);
    for (char *c = to->text; c < at; c++)
        if (!is_key && *c == '_')
            *c = '-';
}

/* Takes the flag that another tool's name corresponds to, in a program that has it; false:
   there is none. */
static bool take_other_name(suggestion *to, const char *const *names, const char *name,
                            size_t length, bool is_key)
{
    bool trains = find(names, "steps", strlen("steps"));

    for (size_t i = 0; i < sizeof other_names / sizeof *other_names && !*to->text; i++) {
        const other_name *other = &other_names[i];

        if (!is_name(name, length, other->theirs))
            continue;
        if (other->none && trains)
            to->none = other->none;
        for (int k = 0; k < 2 && other->ours[k]; k++) {
            const char *flag = find(names, other->ours[k], strlen(other->ours[k]));

            if (flag)
                add_flag(to, flag, is_key);
        }
    }
    return to->none || *to->text;
}

static suggestion suggest(const char *const *names, const char *name, size_t length,
                          bool is_key)
{
    suggestion made = {"", NULL};
    const char *flag;

    if (take_other_name(&made, names, name, length, is_key))
        return made;
    for (size_t end = length; end > 0; end--) /* after the last section, "training." */
        if (name[end - 1] == '.') {
            name += end;
            length -= end;
            break;
        }
    if (take_other_name(&made, names, name, length, is_key))
        return made;
    flag = nearest(names, name, length);
    if (flag)
        add_flag(&made, flag, is_key);
    return made;
}

wf_status wf_flag_unknown(const char *program, const char *argument, const char *const *names,
                          wf_error *error)
{
    const char *name = argument + strspn(argument, "-");
    size_t length = strcspn(name, "=");
    int shown = (int)(name - argument + (ptrdiff_t)length);
    suggestion meant = suggest(names, name, length, false);

    if (meant.none)
        return wf_error_set(error, WF_EINVAL, "unknown flag %.*s: %s", shown, argument,
                            meant.none);
    if (*meant.text)
        return wf_error_set(error, WF_EINVAL, "unknown flag %.*s; did you mean %s?", shown,
                            argument, meant.text);
    return wf_error_set(error, WF_EINVAL, "unknown flag %.*s; %s --help lists all flags", shown,
                        argument, program);
}

wf_status wf_flag_unknown_key(const char *program, const char *where, const char *key,
                              const char *const *names, wf_error *error)
{
    suggestion meant = suggest(names, key, strlen(key), true);

    if (meant.none)
        return wf_error_set(error, WF_EINVAL, "%s is an unknown key: %s", where, meant.none);
    if (*meant.text)
        return wf_error_set(error, WF_EINVAL, "%s is an unknown key; did you mean %s?", where,
                            meant.text);
    return wf_error_set(error, WF_EINVAL, "%s is an unknown key; %s --help lists all flags",
                        where, program);
}

wf_status wf_flag_refused(const char *program, int argc, char **argv,
                          const struct option *flags, wf_error *error)
{
    const char *argument = argv[optind - 1], *name, *names[WF_FLAGS + 1];
    const struct option *known = NULL;
    int n = 0;

    /* getopt_long stays at letters after one dash, "-tp", until it has read them all */
    if (optind < argc && argv[optind][0] == '-' && argv[optind][1] != '-' && optopt &&
        argv[optind][1] == optopt)
        argument = argv[optind];
    name = argument + strspn(argument, "-");
    for (const struct option *f = flags; f->name && n < WF_FLAGS; f++) {
        names[n++] = f->name;
        if (name == argument + 2 && strlen(f->name) == strcspn(name, "=") &&
            strncmp(f->name, name, strlen(f->name)) == 0)
            known = f;
    }
    names[n] = NULL;
    if (!known)
        return wf_flag_unknown(program, argument, names, error);
    return wf_error_set(error, WF_EINVAL,
                        known->has_arg ? "--%s needs a value; see %s --help"
                                       : "--%s takes no value; see %s --help",
                        known->name, program);
}
