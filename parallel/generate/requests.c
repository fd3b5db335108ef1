/* parallel/generate/requests.c - see the header. */
#include "parallel/generate/requests.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of reading from line to line. */
typedef struct reading {
    const char *path;
    const wf_tok *tokenizer;
    wf_tok_encoder *encoder;
    wf_gen_requests *to;
    wf_tok_ids start;          /* ids that the tokenizer puts before a text */
    wf_tok_ids context, whole; /* those of one request */
    int64_t line, positions;
    wf_error *error;
} reading;

static wf_status refuse(const reading *r, const char *what)
{
    return wf_error_set(r->error, WF_EDATA, "%s: line %lld: %s", r->path, (long long)r->line,
                        what);
}

static wf_status encode(const reading *r, const char *text, size_t bytes, wf_tok_ids *ids)
{
    ids->count = 0;
    for (size_t i = 0; i < r->start.count && r->error->code == WF_OK; i++)
        wf_tok_ids_append(ids, r->start.data[i], r->error);
    if (r->error->code == WF_OK)
        wf_tok_encode(r->encoder, text, bytes, WF_TOK_SPECIAL, ids, r->error);
    return r->error->code;
}

/* Encodes an empty context. */
static wf_status encode_nothing(const reading *r, wf_tok_ids *ids)
{
    int32_t id = wf_tok_bos(r->tokenizer);

    ids->count = 0;
    if (id < 0)
        id = wf_tok_eos(r->tokenizer);
    return id < 0 ? refuse(r, "its context is empty, and the tokenizer has no token that ends "
                              "or begins a text")
                  : wf_tok_ids_append(ids, id, r->error);
}

static wf_status append(reading *r, int64_t doc, int64_t label, int64_t bytes)
{
    wf_gen_requests *to = r->to;
    int64_t cut, count = (int64_t)r->whole.count;

    if (to->count == to->room) {
        int64_t room = 2 * to->room + 64;
        wf_gen_request *list = realloc(to->list, (size_t)room * sizeof *list);

        if (!list)
            return wf_error_set(r->error, WF_ENOMEM, "no memory for the requests of %s",
                                r->path);
        to->list = list;
        to->room = room;
    }
    cut = count > r->positions + 1 ? count - r->positions - 1 : 0;
    to->list[to->count++] = (wf_gen_request){.doc = doc,
                                             .label = label,
                                             .begin = (int64_t)to->ids.count,
                                             .context = (int64_t)r->context.count - cut,
                                             .count = count - cut,
                                             .bytes = bytes,
                                             .line = r->line};
    if (to->list[to->count - 1].context < 1)
        return refuse(r, "its continuation has more tokens than the model has positions");
    for (int64_t i = cut; i < count && r->error->code == WF_OK; i++)
        wf_tok_ids_append(&to->ids,
                          i < (int64_t)r->context.count ? r->context.data[i] : r->whole.data[i],
                          r->error);
    return r->error->code;
}

/* The bytes in front of what Python's rstrip takes away: white space, and what separates files,
   groups, records and units. */
static size_t without_blanks(const char *text, size_t n)
{
    size_t before;

    do {
        before = n;
        n -= wf_tok_spaces_before((const uint8_t *)text, n, 0);
        while (n > 0 && text[n - 1] >= 0x1c && text[n - 1] <= 0x1f)
            n--;
    } while (n < before);
    return n;
}

/* Adds a request. The continuation's ids are those of both texts as one, after the first n,
   where n is the number of ids of the context alone, which precede them also where a word spans
   both texts. Without a context the one token that represents it is not there twice. */
static wf_status add(reading *r, const char *context, size_t n, const char *continuation,
                     size_t m, int64_t doc, int64_t label)
{
    char *text = malloc(n + m + 1);
    size_t before;

    if (!text)
        return wf_error_set(r->error, WF_ENOMEM, "no memory for the requests of %s", r->path);
    memcpy(text, context, n);
    memcpy(text + n, continuation, m);
    before = without_blanks(text, n);
    if (before == 0) {
        encode_nothing(r, &r->context);
        encode_nothing(r, &r->whole);
        if (r->error->code == WF_OK)
            wf_tok_encode(r->encoder, text, n + m, WF_TOK_SPECIAL, &r->whole, r->error);
        if (r->whole.count > 1 && r->whole.data[1] == r->whole.data[0])
            memmove(r->whole.data, r->whole.data + 1, --r->whole.count * sizeof *r->whole.data);
    } else if (encode(r, text, before, &r->context) == WF_OK) {
        encode(r, text, n + m, &r->whole);
    }
    free(text);
    if (r->error->code == WF_OK && (m == 0 || r->whole.count <= r->context.count))
        refuse(r, "its continuation has no token of its own");
    return r->error->code == WF_OK ? append(r, doc, label, (int64_t)m) : r->error->code;
}

static wf_status read_line(reading *r, const char *text, size_t bytes)
{
    json_error_t why;
    json_t *row = json_loadb(text, bytes, JSON_ALLOW_NUL, &why);
    const json_t *request = json_object_get(row, "request");
    const json_t *context = json_object_get(request, "context");
    const json_t *continuation = json_object_get(request, "continuation");
    const json_t *doc = json_object_get(row, "doc_id"), *label = json_object_get(row, "label");

    if (!row) /* without a reason memory has ended */
        wf_error_set(r->error, *why.text ? WF_EDATA : WF_ENOMEM, "%s: line %lld: %s", r->path,
                     (long long)r->line, *why.text ? why.text : "no memory to read it");
    else if (!json_is_string(context) || !json_is_string(continuation))
        refuse(r, "\"request\" is no object with the texts \"context\" and \"continuation\"");
    else if (!json_is_integer(doc))
        refuse(r, "\"doc_id\" is no whole number");
    else if (label && !json_is_null(label) &&
             (!json_is_integer(label) || json_integer_value(label) < 0))
        refuse(r, "\"label\" is no number of a choice");
    else
        add(r, json_string_value(context), json_string_length(context),
            json_string_value(continuation), json_string_length(continuation),
            json_integer_value(doc), json_is_integer(label) ? json_integer_value(label) : -1);
    json_decref(row);
    return r->error->code;
}

int64_t wf_gen_requests_next(const wf_gen_requests *all, int64_t begin)
{
    int64_t end = begin + 1;

    while (end < all->count && all->list[end].doc == all->list[begin].doc)
        end++;
    return end;
}

/* Checks that the choices of a question have one label, and that one of them is the one it
   says. */
static wf_status check_label(reading *r, int64_t begin, int64_t end)
{
    const wf_gen_request *q = r->to->list;
    int64_t choices = end - begin, label = q[begin].label;
    char text[256];

    for (int64_t i = begin + 1; i < end; i++)
        if (q[i].label != label) {
            r->line = q[i].line;
            snprintf(text, sizeof text,
                     "\"label\" is %" PRId64 " and not %" PRId64 " as on line %" PRId64
                     ", of the same doc_id %" PRId64
                     " (-1: there is none): all choices of a question have one label",
                     q[i].label, label, q[begin].line, q[i].doc);
            return refuse(r, text);
        }
    if (label < choices)
        return WF_OK;
    r->line = q[begin].line;
    snprintf(text, sizeof text,
             "\"label\" %" PRId64 " is none of the %" PRId64 " choices of doc_id %" PRId64
             ", which are numbered from 0 to %" PRId64,
             label, choices, q[begin].doc, choices - 1);
    return refuse(r, text);
}

typedef struct question {
    int64_t doc, line;
} question;

static int by_document(const void *a, const void *b)
{
    const question *x = a, *y = b;

    if (x->doc != y->doc)
        return x->doc < y->doc ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

/* Checks that the lines of each question stand together, and their labels. */
static wf_status check_questions(reading *r)
{
    const wf_gen_requests *all = r->to;
    question *q = calloc((size_t)all->count + 1, sizeof *q);
    int64_t n = 0;
    char text[160];

    if (!q)
        return wf_error_set(r->error, WF_ENOMEM, "no memory for the requests of %s", r->path);
    for (int64_t begin = 0; begin < all->count; begin = wf_gen_requests_next(all, begin))
        q[n++] = (question){.doc = all->list[begin].doc, .line = all->list[begin].line};
    qsort(q, (size_t)n, sizeof *q, by_document);
    for (int64_t i = 1; i < n && r->error->code == WF_OK; i++)
        if (q[i].doc == q[i - 1].doc) {
            r->line = q[i].line;
            snprintf(text, sizeof text,
                     "doc_id %" PRId64 " is that of line %" PRId64
                     " too, with others between: the choices of a question stand together",
                     q[i].doc, q[i - 1].line);
            refuse(r, text);
        }
    free(q);
    for (int64_t begin = 0, end; begin < all->count && r->error->code == WF_OK; begin = end) {
        end = wf_gen_requests_next(all, begin);
        check_label(r, begin, end);
    }
    return r->error->code;
}

static wf_status read_lines(reading *r, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;

    while (r->error->code == WF_OK && (n = getline(&line, &room, file)) >= 0) {
        r->line++;
        if (strspn(line, " \t\r\n") < (size_t)n)
            read_line(r, line, (size_t)n);
    }
    free(line);
    if (r->error->code == WF_OK && ferror(file))
        wf_error_set(r->error, WF_EIO, "%s: %s", r->path, strerror(errno));
    if (r->error->code == WF_OK && !r->to->count)
        wf_error_set(r->error, WF_EINVAL, "%s has no requests", r->path);
    return r->error->code == WF_OK ? check_questions(r) : r->error->code;
}

wf_status wf_gen_requests_read(const char *path, const wf_tok *tokenizer, int64_t positions,
                               wf_gen_requests *requests, wf_error *error)
{
    reading r = {.path = path,
                 .tokenizer = tokenizer,
                 .to = requests,
                 .positions = positions,
                 .error = error};
    FILE *file = fopen(path, "re");

    if (!file)
        return wf_error_set(error, WF_EIO, "%s: %s", path, strerror(errno));
    if (wf_tok_encoder_new(tokenizer, &r.encoder, error) == WF_OK &&
        wf_tok_encode(r.encoder, "", 0, WF_TOK_TEMPLATE, &r.start, error) == WF_OK) {
        if (r.start.count && r.start.data[r.start.count - 1] != wf_tok_bos(tokenizer))
            r.start.count = 0; /* the id that ends texts does not end contexts */
        read_lines(&r, file);
    }
    fclose(file);
    wf_tok_encoder_free(r.encoder);
    wf_tok_ids_free(&r.start);
    wf_tok_ids_free(&r.context);
    wf_tok_ids_free(&r.whole);
    return error->code;
}

void wf_gen_requests_free(wf_gen_requests *requests)
{
    free(requests->list);
    wf_tok_ids_free(&requests->ids);
    *requests = (wf_gen_requests){.count = 0};
}
