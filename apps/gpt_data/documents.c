/* apps/gpt_data/documents.c - see the header. */
#include "apps/gpt_data/documents.h"
#include "apps/gpt_data/blocks.h"
#include "nn/text/json.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of a slot: free; a thread works on its block; the block has a result; its position
   in the order is known. */
typedef enum slot_state { FREE, TAKEN, WORKED, ORDERED } slot_state;

typedef struct slot {
    app_block block;
    slot_state state;
    void *result;
    wf_error error;
    app_bad_rows bad; /* those that the block has */
} slot;

typedef struct world {
    const app_document_work *work;
    app_block_reader *reader;
    slot *slots; /* block n is in slot n modulo their number */
    int position_count;
    int64_t next;   /* the block that is read next */
    int64_t turn;   /* the first one that is not in order yet */
    bool ends;      /* nothing more is read */
    int64_t failed; /* the first block with an error */
    wf_error error; /* the error of its block */
    pthread_mutex_t lock;
    pthread_cond_t changed;
} world;

/* Reads the text of a line of .jsonl; the line is unescaped in place. */
static wf_status line_text(const app_document_work *work, const char *name, char *line,
                           size_t bytes, const char **text, size_t *text_bytes,
                           wf_text_json *json, wf_error *error)
{
    char *copy;
    uint32_t value;

    if (!work->key) {
        *text = line;
        *text_bytes = bytes;
        return WF_OK;
    }
    copy = malloc(bytes + 1);
    if (!copy)
        return wf_error_set(error, WF_ENOMEM, "%s: out of memory", name);
    memcpy(copy, line, bytes);
    if (wf_text_json_open(json, name, copy, bytes, error) != WF_OK)
        return error->code;
    if (wf_text_json_get(json, 0, work->key) == WF_TEXT_JSON_NONE && error->code == WF_OK)
        return wf_text_json_refuse(
            json, 0, WF_EDATA,
            "the key \"%s\" is missing: --jsonl-key names the one that has text", work->key);
    value = wf_text_json_need(json, 0, work->key, WF_TEXT_JSON_STRING);
    if (value != WF_TEXT_JSON_NONE)
        *text = wf_text_json_text(json, value, text_bytes);
    return error->code;
}

/* One line of .jsonl. */
static wf_status work_on_line(const app_document_work *work, void *own, const char *name,
                              char *line, size_t bytes, slot *p)
{
    size_t text_bytes = 0;
    wf_text_json json = {0};
    const char *text = NULL;

    if (line_text(work, name, line, bytes, &text, &text_bytes, &json, &p->error) == WF_OK)
        work->work(own, name, text, text_bytes, true, p->result, &p->error);
    wf_text_json_close(&json);
    return p->error.code;
}

/* Works on a bad line a second time, under a name with its number: lines are counted for errors
   alone. */
static void report_line(const app_document_work *work, void *own, char *line, size_t bytes,
                        slot *p)
{
    const wf_error first = p->error;
    int64_t number = app_block_line(&p->block, (size_t)(line - p->block.text));
    char name[512];

    if (!number)
        return;
    snprintf(name, sizeof name, "%s:%lld", p->block.file, (long long)number);
    p->error = (wf_error){WF_OK, ""};
    if (work_on_line(work, own, name, line, bytes, p) == WF_OK)
        p->error = first;
}

/* Leaves out a row with an error of its own, where that is asked for; errors of the machine
   stay. */
static void leave_out(const app_document_work *work, slot *p)
{
    if (!work->bad || p->error.code == WF_ENOMEM || p->error.code == WF_EIO)
        return;
    if (!p->bad.count++)
        snprintf(p->bad.first, sizeof p->bad.first, "%.500s", p->error.text);
    p->error = (wf_error){WF_OK, ""};
}

static void work_on_lines(const app_document_work *work, void *own, slot *p)
{
    static const char mark[] = "\xef\xbb\xbf"; /* it may begin a file of UTF-8 */
    char *at = p->block.text, *end = at + p->block.bytes;

    if (p->block.begin == 0 && p->block.bytes >= 3 && memcmp(at, mark, 3) == 0)
        at += 3;
    while (at < end && p->error.code == WF_OK) {
        char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((line_end ? line_end : end) - at);

        if (strspn(at, " \t\r") < bytes &&
            work_on_line(work, own, p->block.file, at, bytes, p) != WF_OK) {
            if (!p->bad.count)
                report_line(work, own, at, bytes, p);
            leave_out(work, p);
        }
        at += bytes + (line_end != NULL);
    }
}

/* Records the error of block `number`, unless an earlier block failed. No more are read. */
static void fail(world *w, int64_t number, const wf_error *error)
{
    if (number < w->failed) {
        w->failed = number;
        w->error = *error;
    }
    w->ends = true;
}

static void set_free(slot *p)
{
    app_block_release(&p->block);
    p->error = (wf_error){WF_OK, ""};
    p->state = FREE;
}

/* Puts blocks that have a result in order. */
static void put_in_order(world *w)
{
    const app_document_work *work = w->work;

    for (; w->turn < w->next; w->turn++) {
        slot *p = &w->slots[w->turn % w->position_count];

        if (p->state != WORKED)
            return;
        if (work->bad && p->bad.count) {
            if (!work->bad->count)
                memcpy(work->bad->first, p->bad.first, sizeof p->bad.first);
            work->bad->count += p->bad.count;
            p->bad.count = 0;
        }
        if (p->error.code == WF_OK && w->failed > w->turn && work->order)
            work->order(work->arg, p->result, &p->error);
        if (p->error.code != WF_OK)
            fail(w, w->turn, &p->error);
        p->state = ORDERED;
        if (p->error.code != WF_OK || !work->done)
            set_free(p);
    }
}

/* Returns a block whose position in the order is known, and that is not finished yet; -1: there
   is none. */
static int64_t find_ordered(const world *w)
{
    for (int64_t i = w->turn > w->position_count ? w->turn - w->position_count : 0; i < w->turn;
         i++)
        if (w->slots[i % w->position_count].state == ORDERED)
            return i;
    return -1;
}

/* The rest of a block's way, in any order; the lock is held before and after, here and
   below. */
static void finish_block(world *w, int64_t number)
{
    slot *p = &w->slots[number % w->position_count];
    bool wanted = w->error.code == WF_OK;

    p->state = TAKEN;
    pthread_mutex_unlock(&w->lock);
    if (wanted)
        w->work->done(w->work->arg, p->result, &p->error);
    pthread_mutex_lock(&w->lock);
    if (p->error.code != WF_OK)
        fail(w, number, &p->error);
    set_free(p);
}

/* Begins the next block, from its file on; false: there is none, or no free slot. */
static bool begin_block(world *w, void *own)
{
    const app_document_work *work = w->work;
    const int64_t number = w->next;
    slot *p = &w->slots[number % w->position_count];

    if (w->ends || p->state != FREE)
        return false;
    if (!app_block_next(w->reader, &p->block, &p->error)) {
        w->ends = true;
        if (p->error.code != WF_OK)
            fail(w, number, &p->error);
        return true;
    }
    w->next++;
    p->state = TAKEN;
    pthread_mutex_unlock(&w->lock);
    if (app_block_read(&p->block, &p->error) == WF_OK && p->block.lines)
        work_on_lines(work, own, p);
    else if (p->error.code == WF_OK)
        work->work(own, p->block.file, p->block.text, p->block.bytes, p->block.ends, p->result,
                   &p->error);
    pthread_mutex_lock(&w->lock);
    p->state = WORKED;
    put_in_order(w);
    return true;
}

/* Runs a worker. Blocks that can be finished go first: so their slots become free. */
static void *run_worker(void *arg)
{
    world *w = arg;
    const app_document_work *work = w->work;
    wf_error error = {WF_OK, ""};
    void *own = work->open(work->arg, &error);

    pthread_mutex_lock(&w->lock);
    if (error.code != WF_OK)
        fail(w, w->next, &error);
    while (error.code == WF_OK) {
        int64_t ordered = find_ordered(w);

        if (ordered >= 0)
            finish_block(w, ordered);
        else if (!begin_block(w, own)) {
            if (w->ends && w->turn == w->next)
                break;
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        pthread_cond_broadcast(&w->changed);
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (own)
        work->close(own);
    return NULL;
}

static bool open_slots(world *w)
{
    const app_document_work *work = w->work;

    w->position_count = 2 * work->threads + 1;
    w->slots = calloc((size_t)w->position_count, sizeof *w->slots);
    for (int i = 0; w->slots && work->result && i < w->position_count; i++) {
        w->slots[i].result = work->result(work->arg);
        if (!w->slots[i].result)
            return false;
    }
    return w->slots != NULL;
}

static void close_slots(world *w)
{
    for (int i = 0; w->slots && i < w->position_count; i++) {
        free(w->slots[i].block.text);
        if (w->work->free_result && w->slots[i].result)
            w->work->free_result(w->slots[i].result);
    }
    free(w->slots);
}

/* One thread more; false: it cannot be started, and the others end. */
static bool start(world *w, pthread_t *thread, int number)
{
    wf_error error = {WF_OK, ""};

    if (pthread_create(thread, NULL, run_worker, w) == 0)
        return true;
    wf_error_set(&error, WF_ENOMEM, "thread %d of %d cannot be started: use --threads %d",
                 number + 1, w->work->threads, number ? number : 1);
    pthread_mutex_lock(&w->lock);
    fail(w, -1, &error);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return false;
}

void app_bad_rows_report(const app_bad_rows *bad)
{
    if (bad->count)
        fprintf(stderr, "gpt_data: left out %lld bad row%s, the first: %s\n",
                (long long)bad->count, bad->count == 1 ? "" : "s", bad->first);
}

wf_status app_documents_run(const app_document_work *work, wf_error *error)
{
    world w = {.work = work,
               .failed = INT64_MAX,
               .reader = app_block_open(work->files, work->file_count, work->tokenizer)};
    pthread_t threads[256];
    int started = 0;

    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.changed, NULL);
    if (!w.reader || !open_slots(&w))
        wf_error_set(error, WF_ENOMEM, "out of memory: blocks of files");
    while (error->code == WF_OK && started < work->threads &&
           start(&w, &threads[started], started))
        started++;
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (w.error.code != WF_OK)
        *error = w.error;
    close_slots(&w);
    app_block_close(w.reader);
    pthread_cond_destroy(&w.changed);
    pthread_mutex_destroy(&w.lock);
    return error->code;
}
