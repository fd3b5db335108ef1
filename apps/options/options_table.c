/* apps/options/options_table.c - apps/options/options.def as a table, and looking for a row in
   it. */
#include "apps/options/options_table.h"
#include "parallel/pipeline/schedule.h"
#include <stddef.h>
#include <string.h>

enum { LONGEST_NAME = 40 };

const app_option_row app_option_rows[APP_OPTION_COUNT] = {
#define GROUP(id, title) [APP_OPTION_GROUP_##id] = {.kind = APP_KIND_GROUP, .name = title},
#define OPTION(type, field, normal, allowed, value, words)                                     \
    [APP_OPTION_##field] = {.kind = APP_KIND_##type,                                           \
                            .name = #field,                                                    \
                            .standard = normal,                                                \
                            .domain = allowed,                                                 \
                            .metavar = value,                                                  \
                            .help = words,                                                     \
                            .offset = offsetof(app_options, field)},
#include "apps/options/options.def"
#undef GROUP
#undef OPTION
};

const char *app_option_own(const app_option_row *row)
{
    static const char *const why[APP_OPTION_COUNT] = {
#define GROUP(id, title)
#define OPTION(type, field, normal, allowed, value, words)
#define OWN(field, words) [APP_OPTION_##field] = words,
#include "apps/options/options.def"
#undef GROUP
#undef OPTION
    };

    return why[row - app_option_rows];
}

app_flag app_option_flag(const app_option_row *row)
{
    app_flag flag;

    snprintf(flag.text, sizeof flag.text, "--%s", row->name);
    for (char *c = flag.text; *c; c++)
        if (*c == '_')
            *c = '-';
    return flag;
}

bool app_option_is_bare(const app_option_row *row)
{
    return row->kind == APP_KIND_BOOL || row->kind == APP_KIND_LEVEL;
}

bool app_option_in_config(const app_option_row *row)
{
    return row->kind != APP_KIND_GROUP && row - app_option_rows < APP_OPTION_GROUP_command;
}

/* Names are alike with dashes, underscores and the points of sections. */
static char dashed(char c)
{
    return c == '_' || c == '.' ? '-' : c;
}

/* Returns the number of leading letters that two names share; a dash is an underscore. */
static size_t shared_start(const char *a, size_t length, const char *b)
{
    size_t n = 0;

    while (n < length && b[n] && dashed(a[n]) == dashed(b[n]))
        n++;
    return n;
}

const app_option_row *app_option_find(const char *name, size_t length)
{
    for (int i = 0; i < APP_OPTION_COUNT; i++) {
        const app_option_row *row = &app_option_rows[i];

        if (row->kind != APP_KIND_GROUP && strlen(row->name) == length &&
            shared_start(name, length, row->name) == length)
            return row;
    }
    return NULL;
}

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b. */
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

/* Other tools' names for what is said here by one or two flags, or by none. */
typedef struct other_name {
    const char *theirs;
    app_option_id ours[2]; /* APP_OPTION_COUNT: there is no such one */
    const char *none;      /* the reason, where no flag says it */
} other_name;

static const other_name other_names[] = {
#define NAME(theirs, ours)        {#theirs, {APP_OPTION_##ours, APP_OPTION_COUNT}, NULL},
#define NAME2(theirs, one, other) {#theirs, {APP_OPTION_##one, APP_OPTION_##other}, NULL},
#define NONE(theirs, why)         {#theirs, {APP_OPTION_COUNT, APP_OPTION_COUNT}, why},
#include "apps/options/other_names.def"
#undef NAME
#undef NAME2
#undef NONE
};

static const other_name *find_other_name(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++) {
        const char *theirs = other_names[i].theirs;

        if (strlen(theirs) == length && shared_start(name, length, theirs) == length)
            return &other_names[i];
    }
    return NULL;
}

/* A name that was cut short, or written on, counts as one slip; of those the closest wins. */
static const app_option_row *nearest_row(const char *name, size_t length)
{
    const app_option_row *nearest = NULL;
    int slips = length < 4 ? 1 : length < 6 ? 2 : (int)(length / 3);
    int best = (slips + 1) * LONGEST_NAME;

    if (length < 2 || length > LONGEST_NAME)
        return NULL;
    for (int i = 0; i < APP_OPTION_COUNT; i++) {
        const app_option_row *row = &app_option_rows[i];
        size_t shared = shared_start(name, length, row->name);
        int away, cost;

        if (row->kind == APP_KIND_GROUP)
            continue;
        away = distance(name, length, row->name);
        cost = away * LONGEST_NAME;
        if (away && shared >= 3 && (shared == length || shared == strlen(row->name)))
            cost = LONGEST_NAME + away;
        if (cost < best) {
            best = cost;
            nearest = row;
        }
    }
    return nearest;
}

static void add_flag(app_suggestion *to, const app_option_row *row, bool keys)
{
    size_t used = strlen(to->text);

    snprintf(to->text + used, sizeof to->text - used, keys ? "%s\"%s\"" : "%s%s",
             used ? " or " : "", keys ? row->name : app_option_flag(row).text);
}

/* Returns the bytes of a name in front of what follows its last section, "training." */
static size_t section_of(const char *name, size_t length)
{
    while (length > 0 && name[length - 1] != '.')
        length--;
    return length;
}

app_suggestion app_option_suggest(const char *name, size_t length, bool keys)
{
    size_t section = section_of(name, length);
    const other_name *other = find_other_name(name, length);
    const app_option_row *row;
    app_suggestion made = {"", NULL};

    if (!other)
        other = find_other_name(name + section, length - section);
    if (!other) {
        row = nearest_row(name + section, length - section);
        if (row)
            add_flag(&made, row, keys);
        return made;
    }
    made.none = other->none;
    for (int k = 0; k < 2 && other->ours[k] != APP_OPTION_COUNT; k++)
        add_flag(&made, &app_option_rows[other->ours[k]], keys);
    return made;
}

static void take(char *to, const char *from, size_t length)
{
    if (length >= APP_CHOICE_LENGTH)
        length = APP_CHOICE_LENGTH - 1;
    memcpy(to, from, length);
    to[length] = 0;
}

bool app_choice_next(const char **cursor, app_choice *choice)
{
    const char *word = *cursor + strspn(*cursor, " "), *equals;
    size_t length = strcspn(word, " ");

    if (!length)
        return false;
    *cursor = word + length;
    equals = memchr(word, '=', length);
    choice->alias = equals;
    if (equals) {
        take(choice->name, word, (size_t)(equals - word));
        take(choice->means, equals + 1, length - (size_t)(equals + 1 - word));
    } else {
        take(choice->name, word, length);
        take(choice->means, word, length);
    }
    return true;
}
