/* parallel/pipeline/parse.c - tables from text: a header of words, then a row for each rank. */
#include "parallel/pipeline/text_internal.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_STAGE_RANKS = INT16_MAX };

typedef struct parser {
    wf_pipe_text text;
    wf_pipe_table *table;
    const char *token; /* the one that was read last: ended by the text's `at` */
    size_t length;     /* 0: the text has ended */
    wf_pipe_shape shape;
    wf_pipe_facts facts;
    int16_t *stage_rank;
    int n_stage_ranks;
    bool *given; /* [ranks] rows */
} parser;

wf_status wf_pipe_text_refuse(const wf_pipe_text *text, const char *where, const char *format,
                              ...)
{
    char why[512];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return wf_error_set(text->error, WF_EDATA, "%s:%d:%d: %s", text->name, text->number,
                        (int)(where - text->line) + 1, why);
}

bool wf_pipe_text_number(const char **at, int *value)
{
    int n = 0;

    *value = 0;
    while (**at >= '0' && **at <= '9' && n++ < 9)
        *value = 10 * *value + (*(*at)++ - '0');
    return n && !(**at >= '0' && **at <= '9');
}

static bool in_word(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '.' || c == '-';
}

/* Reads the next token: a word, a sign, or the end of a line that has no continuation. */
static void next(parser *p)
{
    wf_pipe_text *t = &p->text;

    for (;;) {
        while (*t->at == ' ' || *t->at == '\t' || *t->at == '\r')
            t->at++;
        if (*t->at == '#')
            t->at += strcspn(t->at, "\n");
        if (t->at[0] != '\\' || t->at[1 + strspn(t->at + 1, " \t\r")] != '\n')
            break;
        t->at += 2 + strspn(t->at + 1, " \t\r");
        t->line = t->at;
        t->number++;
    }
    p->token = t->at;
    while (in_word(*t->at))
        t->at++;
    if (t->at == p->token && *t->at)
        t->at++;
    p->length = (size_t)(t->at - p->token);
}

static bool is(const parser *p, const char *word)
{
    return p->length == strlen(word) && memcmp(p->token, word, p->length) == 0;
}

/* Passes the end of a line, and lines with nothing. */
static void next_line(parser *p)
{
    while (is(p, "\n")) {
        p->text.line = p->text.at;
        p->text.number++;
        next(p);
    }
}

static wf_status refuse_token(const parser *p, const char *expected)
{
    if (!p->length)
        return wf_pipe_text_refuse(&p->text, p->token, "the text ends, where %s is expected",
                                   expected);
    if (is(p, "\n"))
        return wf_pipe_text_refuse(&p->text, p->token, "the line ends, where %s is expected",
                                   expected);
    return wf_pipe_text_refuse(&p->text, p->token, "%.*s, where %s is expected",
                               (int)(p->length < 64 ? p->length : 64), p->token, expected);
}

/* Reads the token where it is a whole number. */
static bool number(parser *p, int *value)
{
    const char *at = p->token;

    if (!wf_pipe_text_number(&at, value) || at != p->token + p->length)
        return false;
    next(p);
    return true;
}

static wf_status read_stage_ranks(parser *p)
{
    int rank;

    p->n_stage_ranks = 0;
    while (p->n_stage_ranks < MOST_STAGE_RANKS && number(p, &rank)) {
        if (rank >= INT16_MAX)
            return refuse_token(p, "a rank before it that is smaller");
        p->stage_rank[p->n_stage_ranks++] = (int16_t)rank;
        p->shape.ranks = rank + 1 > p->shape.ranks ? rank + 1 : p->shape.ranks;
    }
    return p->n_stage_ranks ? WF_OK : refuse_token(p, "the rank of stage 0");
}

static wf_status header_word(parser *p)
{
    const struct {
        const char *word;
        int *value;
    } numbers[] = {{"stages", &p->shape.stages},     {"micro", &p->shape.micro},
                   {"ranks", &p->shape.ranks},       {"group", &p->facts.group},
                   {"resident", &p->facts.resident}, {"frozen", &p->facts.frozen}};
    const struct {
        const char *word;
        bool *value;
    } flags[] = {{"lowered", &p->facts.lowered}, {"tied", &p->facts.tied}};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (is(p, numbers[i].word)) {
            next(p);
            return number(p, numbers[i].value) ? WF_OK : refuse_token(p, "a whole number");
        }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (is(p, flags[i].word)) {
            next(p);
            *flags[i].value = true;
            return WF_OK;
        }
    if (!is(p, "place"))
        return refuse_token(p, "stages, micro, place, ranks, lowered, group, resident, frozen, "
                               "tied or a row");
    next(p);
    return read_stage_ranks(p);
}

static bool begins_row(const parser *p)
{
    return p->length && p->token[0] >= '0' && p->token[0] <= '9';
}

static wf_status check_header(const parser *p)
{
    if (p->n_stage_ranks != p->shape.stages)
        return wf_pipe_text_refuse(&p->text, p->token,
                                   "%d stages have %d ranks: give each its own",
                                   p->shape.stages, p->n_stage_ranks);
    for (int s = 0; s < p->n_stage_ranks; s++)
        if (p->stage_rank[s] >= p->shape.ranks)
            return wf_pipe_text_refuse(&p->text, p->token,
                                       "stage %d is placed on rank %d of %d ranks", s,
                                       p->stage_rank[s], p->shape.ranks);
    if (!p->facts.lowered &&
        (p->facts.group || p->facts.resident || p->facts.frozen || p->facts.tied))
        return wf_pipe_text_refuse(
            &p->text, p->token,
            "group, resident, frozen and tied are for a table that says lowered");
    return WF_OK;
}

static wf_status read_header(parser *p)
{
    wf_status status = WF_OK;

    next(p);
    next_line(p);
    if (!is(p, "weft-schedule"))
        return refuse_token(p, "weft-schedule 1");
    next(p);
    if (!is(p, "1"))
        return refuse_token(p, "version 1");
    next(p);
    for (next_line(p); status == WF_OK && p->length && !begins_row(p); next_line(p))
        status = header_word(p);
    return status == WF_OK ? check_header(p) : status;
}

/* Reads a stage, and micro-batches, after a kind. */
static bool read_operands(const char *at, const char *end, const wf_pipe_kind_info *kind,
                          wf_pipe_action *a)
{
    int stage = 0;

    if (kind->operands == WF_PIPE_NONE)
        return at == end;
    if (!wf_pipe_text_number(&at, &stage) || stage >= INT16_MAX)
        return false;
    a->stage = (int16_t)stage;
    if (kind->operands == WF_PIPE_STAGE)
        return at == end;
    if (*at++ != '.' || !wf_pipe_text_number(&at, &a->micro))
        return false;
    a->last = a->micro;
    if (kind->operands == WF_PIPE_RANGE && *at == '-') {
        at++;
        if (!wf_pipe_text_number(&at, &a->last))
            return false;
    }
    return at == end;
}

static wf_status read_action(parser *p, wf_pipe_action *a)
{
    static const char *const like[] = {"", "2", "2.5", "2.5"};
    const char *end = p->token + p->length;
    size_t n = 0;

    while (n < p->length && !(p->token[n] >= '0' && p->token[n] <= '9'))
        n++;
    *a = (wf_pipe_action){0};
    for (int k = 0; k < WF_PIPE_KINDS; k++) {
        const wf_pipe_kind_info *kind = &wf_pipe_kind_table[k];
        char expected[64];

        if (strlen(kind->name) != n || memcmp(kind->name, p->token, n) != 0)
            continue;
        a->kind = (uint8_t)k;
        snprintf(expected, sizeof expected, "an action like %s%s", kind->name,
                 like[kind->operands]);
        if (!read_operands(p->token + n, end, kind, a))
            return refuse_token(p, expected);
        next(p);
        return WF_OK;
    }
    return refuse_token(p, "an action like F2.5");
}

static wf_status expect(parser *p, const char *sign)
{
    if (!is(p, sign))
        return refuse_token(p, sign);
    next(p);
    return WF_OK;
}

/* Adds an action; an error of the table is reported with its position in the text. */
static wf_status append(parser *p, int rank, const wf_pipe_action *a, const char *where)
{
    wf_status status = wf_pipe_table_append(p->table, rank, a);

    return status == WF_EINVAL
               ? wf_pipe_text_refuse(&p->text, where, "%s", p->table->error.text)
           : status == WF_OK ? WF_OK
                             : wf_error_set(p->text.error, status, "%s", p->table->error.text);
}

static wf_status read_pair(parser *p, int rank)
{
    const char *where = p->token;
    wf_pipe_action first, second;
    wf_status status = expect(p, "(");

    if (status == WF_OK)
        status = read_action(p, &first);
    if (status == WF_OK)
        status = expect(p, "+");
    if (status == WF_OK)
        status = read_action(p, &second);
    if (status == WF_OK)
        status = expect(p, ")");
    if (status != WF_OK)
        return status;
    first.with_next = true;
    status = append(p, rank, &first, where);
    return status == WF_OK ? append(p, rank, &second, where) : status;
}

static wf_status read_row(parser *p)
{
    const char *where = p->token;
    wf_status status = WF_OK;
    int rank;

    if (!number(p, &rank))
        return refuse_token(p, "a row, like 0: F0.0");
    if (rank >= p->shape.ranks)
        return wf_pipe_text_refuse(&p->text, where,
                                   "row %d, but ranks go from 0 to %d: no "
                                   "stage is placed there",
                                   rank, p->shape.ranks - 1);
    if (p->given[rank])
        return wf_pipe_text_refuse(&p->text, where, "a second row %d", rank);
    p->given[rank] = true;
    status = expect(p, ":");
    while (status == WF_OK && p->length && !is(p, "\n")) {
        const char *begin = p->token;
        wf_pipe_action a;

        if (is(p, "(")) {
            status = read_pair(p, rank);
            continue;
        }
        status = read_action(p, &a);
        if (status == WF_OK)
            status = append(p, rank, &a, begin);
    }
    return status;
}

static wf_status read_rows(parser *p)
{
    wf_error wrong = {WF_OK, ""};
    wf_status status = wf_pipe_table_new(&p->shape, &p->table, &wrong);

    if (status == WF_EINVAL)
        return wf_pipe_text_refuse(&p->text, p->token, "%s", wrong.text);
    if (status == WF_OK)
        p->given = calloc((size_t)p->shape.ranks, sizeof *p->given);
    if (status != WF_OK || !p->given)
        return wf_error_set(p->text.error, WF_ENOMEM, "no memory to read %s", p->text.name);
    memcpy(p->table->stage_rank, p->stage_rank,
           (size_t)p->n_stage_ranks * sizeof *p->stage_rank);
    p->table->facts = p->facts;
    for (next_line(p); status == WF_OK && p->length; next_line(p))
        status = read_row(p);
    for (int r = 0; status == WF_OK && r < p->shape.ranks; r++)
        if (!p->given[r])
            status = wf_pipe_text_refuse(&p->text, p->token,
                                         "rank %d has no row: give it one, %d:", r, r);
    return status;
}

wf_status wf_pipe_table_parse(const char *name, const char *text, wf_pipe_table **table,
                              wf_error *error)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* UTF-8, as spreadsheets write it */
    const char *begin = strncmp(text, mark, strlen(mark)) == 0 ? text + strlen(mark) : text;
    parser p = {.text = {name, begin, begin, 1, error}};
    size_t length = strlen(name);
    wf_status status;

    *table = NULL;
    if (length >= 4 && strcasecmp(name + length - 4, ".csv") == 0)
        return wf_pipe_csv_parse(&p.text, table);
    p.stage_rank = malloc(MOST_STAGE_RANKS * sizeof *p.stage_rank);
    if (!p.stage_rank)
        return wf_error_set(error, WF_ENOMEM, "no memory to read %s", name);
    status = read_header(&p);
    if (status == WF_OK)
        status = read_rows(&p);
    free(p.stage_rank);
    free(p.given);
    if (status == WF_OK)
        *table = p.table;
    else
        wf_pipe_table_free(p.table);
    return status;
}
