/* parallel/pipeline/parse_csv.c - the tables of torch.distributed.pipelining: a line of cells
   for each rank. */
#include "parallel/pipeline/text_internal.h"
#include <stdlib.h>
#include <string.h>

/* The actions of all rows; sizes and the ranks of stages are known when all have been read.
   Derived actions have kind WF_PIPE_KINDS, and only their stage is used. */
typedef struct csv {
    wf_pipe_text *text;
    struct csv_action {
        wf_pipe_action action;
        int rank;
    } * read;
    int64_t n, room;
    int ranks;
} csv;

static bool is_derived(const wf_pipe_action *a)
{
    return a->kind == WF_PIPE_KINDS;
}

static wf_status add(csv *c, wf_pipe_action action)
{
    if (c->n == c->room) {
        int64_t room = c->room ? 2 * c->room : 256;
        struct csv_action *larger = realloc(c->read, (size_t)room * sizeof *larger);

        if (!larger)
            return wf_error_set(c->text->error, WF_ENOMEM, "no memory to read %s",
                                c->text->name);
        c->read = larger;
        c->room = room;
    }
    c->read[c->n++] = (struct csv_action){action, c->ranks};
    return WF_OK;
}

static wf_status refuse_cell(const csv *c, const char *cell, const char *end)
{
    return wf_pipe_text_refuse(c->text, cell,
                               "%.*s, where a cell like 0F0, 3I2, 3W2, 7B1 or "
                               "(0F1;7B0)OVERLAP_F_B is expected",
                               (int)(end - cell < 64 ? end - cell : 64), cell);
}

static bool begins(const char *at, const char *end, const char *word)
{
    size_t n = strlen(word);

    return (size_t)(end - at) >= n && memcmp(at, word, n) == 0;
}

/* Reads "3I2"; *derived: it is one of the compute_comms format that lowering derives anew from
   the others, as PyTorch's does, of which the stage alone is kept. */
static bool read_action(const char *at, const char *end, wf_pipe_action *a, bool *derived)
{
    static const char *const passed_over[] = {
        "UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD", "SEND_F",
        "RECV_F",  "SEND_B",  "RECV_B",      "WAIT_SEND_F",      "WAIT_SEND_B"};
    static const wf_pipe_kind kinds[] = {WF_PIPE_F, WF_PIPE_I, WF_PIPE_W, WF_PIPE_B};
    int stage, micro;

    *a = (wf_pipe_action){.kind = WF_PIPE_KINDS};
    if (at == end || !wf_pipe_text_number(&at, &stage) || stage >= INT16_MAX)
        return false;
    *derived = false;
    for (size_t i = 0; i < sizeof passed_over / sizeof *passed_over; i++)
        if (begins(at, end, passed_over[i])) {
            at += strlen(passed_over[i]);
            *derived = true;
            a->stage = (int16_t)stage;
            a->micro = -1;
            return at == end || (wf_pipe_text_number(&at, &a->micro) && at == end);
        }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (begins(at, end, wf_pipe_kind_table[kinds[i]].name))
            a->kind = (uint8_t)kinds[i];
    if (a->kind == WF_PIPE_KINDS)
        return false;
    at++;
    if (!wf_pipe_text_number(&at, &micro) || at != end)
        return false;
    a->stage = (int16_t)stage;
    a->micro = a->last = micro;
    return true;
}

static wf_status read_pair(csv *c, const char *at, const char *end)
{
    static const char overlap[] = ")OVERLAP_F_B";
    const char *middle = memchr(at, ';', (size_t)(end - at));
    const char *close = end - (sizeof overlap - 1);
    wf_pipe_action first, second;
    bool derived[2] = {false, false};
    wf_status status;

    if (!middle || close <= middle || !begins(close, end, overlap) ||
        !read_action(at + 1, middle, &first, &derived[0]) ||
        !read_action(middle + 1, close, &second, &derived[1]) || derived[0] || derived[1])
        return refuse_cell(c, at, end);
    first.with_next = true;
    status = add(c, first);
    return status == WF_OK ? add(c, second) : status;
}

static wf_status read_cell(csv *c, const char *at, const char *end)
{
    wf_pipe_action a;
    bool derived;

    while (at < end && (strchr(" \t\r\"", *at)))
        at++;
    while (end > at && strchr(" \t\r\"", end[-1]))
        end--;
    if (at == end)
        return WF_OK;
    if (*at == '(')
        return read_pair(c, at, end);
    if (!read_action(at, end, &a, &derived))
        return refuse_cell(c, at, end);
    return add(c, a);
}

/* A line without an action is no rank's: a rank has a stage. */
static wf_status read_lines(csv *c)
{
    wf_pipe_text *t = c->text;
    wf_status status = WF_OK;

    for (; status == WF_OK && *t->at; t->number++) {
        int64_t before = c->n;

        t->line = t->at;
        while (status == WF_OK) {
            size_t n = strcspn(t->at, ",\n");

            status = read_cell(c, t->at, t->at + n);
            t->at += n;
            if (*t->at != ',')
                break;
            t->at++;
        }
        if (status != WF_OK)
            break;
        c->ranks += c->n > before;
        t->at += *t->at == '\n';
    }
    return status;
}

/* Checks that messages, gathers and reductions are of stages of their row, and of micro-batches
   that there are: they are derived anew from the compute actions. */
static wf_status check_derived(const csv *c, const wf_pipe_table *t)
{
    for (int64_t i = 0; i < c->n; i++) {
        int stage = c->read[i].action.stage, rank = c->read[i].rank;

        if (is_derived(&c->read[i].action) &&
            (stage >= t->shape.stages || t->stage_rank[stage] != rank))
            return wf_error_set(c->text->error, WF_EDATA,
                                "%s: row %d has a message, gather or reduction of stage %d, "
                                "and computes nothing of that stage",
                                c->text->name, rank, stage);
        if (is_derived(&c->read[i].action) && c->read[i].action.micro >= t->shape.micro)
            return wf_error_set(c->text->error, WF_EDATA,
                                "%s: row %d has a message of micro-batch %d, and the last one "
                                "that is computed is %d",
                                c->text->name, rank, c->read[i].action.micro,
                                t->shape.micro - 1);
    }
    return WF_OK;
}

static wf_status set_ranks(const csv *c, wf_pipe_table *t)
{
    for (int64_t i = 0; i < c->n; i++) {
        int stage = c->read[i].action.stage, rank = c->read[i].rank;

        if (is_derived(&c->read[i].action))
            continue;
        if (t->stage_rank[stage] >= 0 && t->stage_rank[stage] != rank)
            return wf_error_set(c->text->error, WF_EDATA,
                                "%s: stage %d has actions in rows %d and %d: a stage is on one "
                                "rank",
                                c->text->name, stage, t->stage_rank[stage], rank);
        t->stage_rank[stage] = (int16_t)rank;
    }
    for (int stage = 0; stage < t->shape.stages; stage++)
        if (t->stage_rank[stage] < 0)
            return wf_error_set(
                c->text->error, WF_EDATA,
                "%s: stage %d has no action in any row, and there are %d stages: "
                "a stage is on one rank",
                c->text->name, stage, t->shape.stages);
    return check_derived(c, t);
}

wf_status wf_pipe_csv_parse(wf_pipe_text *text, wf_pipe_table **table)
{
    csv c = {.text = text};
    wf_status status = read_lines(&c);
    wf_error wrong = {WF_OK, ""};
    wf_pipe_shape shape = {.ranks = c.ranks};

    for (int64_t i = 0; i < c.n; i++) {
        const wf_pipe_action *a = &c.read[i].action;

        if (is_derived(a))
            continue;
        shape.stages = a->stage >= shape.stages ? a->stage + 1 : shape.stages;
        shape.micro = a->micro >= shape.micro ? a->micro + 1 : shape.micro;
    }
    if (status == WF_OK && c.ranks == 0)
        status = wf_error_set(text->error, WF_EDATA, "%s has no action in any row", text->name);
    if (status == WF_OK) {
        status = wf_pipe_table_new(&shape, table, &wrong);
        if (status != WF_OK)
            status = wf_error_set(text->error, status == WF_EINVAL ? WF_EDATA : status,
                                  "%s: %s", text->name, wrong.text);
    }
    if (status == WF_OK)
        status = set_ranks(&c, *table);
    for (int64_t i = 0; status == WF_OK && i < c.n; i++)
        if (!is_derived(&c.read[i].action))
            status = wf_pipe_table_append(*table, c.read[i].rank, &c.read[i].action);
    if (status != WF_OK) {
        if (*table)
            wf_error_set(text->error, status, "%s", (*table)->error.text);
        wf_pipe_table_free(*table);
        *table = NULL;
    }
    free(c.read);
    return status;
}
