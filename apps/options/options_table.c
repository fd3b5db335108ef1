/* apps/options/options_table.c - apps/options/options.def as a table, the words of other tables
   that it names, and looking for a row in it. */
#include "apps/options/options_table.h"
#include "parallel/pipeline/schedule.h"
#include <stddef.h>
#include <string.h>

const char app_family_names[] = ""
#define FAMILY(name, ...) #name " "
#include "nn/models/gpt/families.def"
#undef FAMILY
    ;

#define AS_WIDE(word)                             word " "
#define AS_NARROW(word)                           word " "
#define AS_BLOCKS(word)                           ""
#define AS_OTHER(word)                            ""
#define DTYPE(name, type, text, word, kind, file) AS_##kind(word)
const char app_stored_words[] = ""
#include "core/dtype.def"
    ;
#undef AS_WIDE
#undef AS_NARROW
#undef AS_BLOCKS
#define AS_WIDE(word)   ""
#define AS_NARROW(word) ""
#define AS_BLOCKS(word) " " word
const char app_base_words[] = "same"
#include "core/dtype.def"
    ;
#undef DTYPE
#undef AS_WIDE
#undef AS_NARROW
#undef AS_BLOCKS
#undef AS_OTHER

const char app_schedule_names[] = ""
#define SCHEDULE(name, ...) name " "
#include "parallel/pipeline/schedules.def"
#undef SCHEDULE
    ;

const char app_strategy_names[] =
    ""
#define STRATEGY(name, ...) #name " "
#include "parallel/shard/strategies.def"
#undef STRATEGY
    "fsdp=full_shard zero3=full_shard zero2=shard_grad_op ddp=no_shard";

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

/* Returns true where a name of `length` letters is a row's; a dash is an underscore. */
static bool is_name_of(const app_option_row *row, const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!row->name[i] || (name[i] == '-' ? '_' : name[i]) != row->name[i])
            return false;
    return !row->name[length];
}

const app_option_row *app_option_find(const char *name, size_t length)
{
    for (int i = 0; i < APP_OPTION_COUNT; i++) {
        const app_option_row *row = &app_option_rows[i];

        if (row->kind != APP_KIND_GROUP && is_name_of(row, name, length))
            return row;
    }
    return NULL;
}

void app_option_names(const char **names)
{
    for (int i = 0; i < APP_OPTION_COUNT; i++)
        if (app_option_rows[i].kind != APP_KIND_GROUP)
            *names++ = app_option_rows[i].name;
    *names = NULL;
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
