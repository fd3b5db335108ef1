/* apps/gpt_data/documents.c - see the header. */
#include "apps/gpt_data/documents.h"
#include "apps/gpt_data/blocks.h"
#include "apps/tokenizer/json_internal.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A block on its way: read, worked on, done. */
typedef enum place_state { FREE, READ, TAKEN, READY } place_state;

typedef struct place {
    app_block block;
    place_state state;
    void *result;
    wf_error error;
} place;

typedef struct world {
    const app_document_work *work;
    place *places;
    int place_count;
    int64_t next; /* the block that is worked on next */
    int64_t read; /* blocks read */
    bool ends;    /* nothing more is read */
    wf_error error;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} world;

/* The text of a line of .jsonl; the line is unescaped in place. */
static wf_status line_text(const app_document_work *work, const char *name, char *line,
                           size_t bytes, const char **text, size_t *text_bytes, app_json *json,
                           wf_error *error)
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
    if (app_json_open(json, name, copy, bytes, error) != WF_OK)
        return error->code;
    value = app_json_need(json, 0, work->key, APP_JSON_STRING);
    if (value != APP_JSON_NONE)
        *text = app_json_text(json, value, text_bytes);
    return error->code;
}

static wf_status work_on_lines(const app_document_work *work, void *own, place *p)
{
    char *at = p->block.text, *end = at + p->block.bytes, name[512];
    int64_t number = p->block.line;

    for (; at < end && p->error.code == WF_OK; number++) {
        char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((line_end ? line_end : end) - at), text_bytes = 0;
        app_json json = {0};
        const char *text = NULL;

        snprintf(name, sizeof name, "%s:%lld", p->block.file, (long long)number);
        if (strspn(at, " \t\r") < bytes &&
            line_text(work, name, at, bytes, &text, &text_bytes, &json, &p->error) == WF_OK)
            work->work(own, name, text, text_bytes, true, p->result, &p->error);
        app_json_close(&json);
        at += bytes + (line_end != NULL);
    }
    return p->error.code;
}

/* The next block that was read; NULL: there is none and never will be. */
static place *take_block(world *w)
{
    place *p = NULL;

    pthread_mutex_lock(&w->lock);
    while (w->next == w->read && !w->ends)
        pthread_cond_wait(&w->changed, &w->lock);
    if (w->next < w->read) {
        p = &w->places[w->next++ % w->place_count];
        p->state = TAKEN;
    }
    pthread_mutex_unlock(&w->lock);
    return p;
}

static void set_state(world *w, place *p, place_state state)
{
    pthread_mutex_lock(&w->lock);
    p->state = state;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void *run_worker(void *arg)
{
    world *w = arg;
    const app_document_work *work = w->work;
    wf_error error = {WF_OK, ""};
    void *own = work->open(work->arg, &error);
    place *p;

    while ((p = take_block(w)) != NULL) {
        if (error.code != WF_OK)
            p->error = error;
        else if (p->block.lines)
            work_on_lines(work, own, p);
        else
            work->work(own, p->block.file, p->block.text, p->block.bytes, p->block.ends,
                       p->result, &p->error);
        set_state(w, p, READY);
    }
    if (own)
        work->close(own);
    return NULL;
}

/* Waits for a block and hands on what it came to. */
static wf_status finish(world *w, place *p, wf_error *error)
{
    pthread_mutex_lock(&w->lock);
    while (p->state == READ || p->state == TAKEN)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    if (p->state == FREE)
        return error->code;
    if (error->code == WF_OK && p->error.code != WF_OK)
        *error = p->error;
    if (error->code == WF_OK && w->work->done)
        w->work->done(w->work->arg, p->result, error);
    p->error = (wf_error){WF_OK, ""};
    p->state = FREE;
    return error->code;
}

/* Reads blocks and finishes those whose place the next one takes, all in order. */
static void read_blocks(world *w, app_block_reader *reader, wf_error *error)
{
    int64_t number = 0;

    while (error->code == WF_OK) {
        place *p = &w->places[number % w->place_count];

        if (finish(w, p, error) != WF_OK || !app_block_read(reader, &p->block, error))
            break;
        number++;
        pthread_mutex_lock(&w->lock);
        p->state = READ;
        w->read = number;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
    }
    pthread_mutex_lock(&w->lock);
    w->ends = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->place_count; i++)
        finish(w, &w->places[(number + i) % w->place_count], error);
}

static bool open_places(world *w)
{
    const app_document_work *work = w->work;

    w->place_count = 2 * work->threads + 1;
    w->places = calloc((size_t)w->place_count, sizeof *w->places);
    for (int i = 0; w->places && work->result && i < w->place_count; i++) {
        w->places[i].result = work->result(work->arg);
        if (!w->places[i].result)
            return false;
    }
    return w->places != NULL;
}

static void close_places(world *w)
{
    for (int i = 0; w->places && i < w->place_count; i++) {
        free(w->places[i].block.text);
        if (w->work->free_result && w->places[i].result)
            w->work->free_result(w->places[i].result);
    }
    free(w->places);
}

wf_status app_documents_run(const app_document_work *work, wf_error *error)
{
    world w = {.work = work};
    pthread_t threads[256];
    int started = 0;
    app_block_reader *reader = app_block_open(work->files, work->file_count, work->tokenizer);

    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.changed, NULL);
    if (!reader || !open_places(&w))
        wf_error_set(error, WF_ENOMEM, "out of memory: blocks of files");
    while (error->code == WF_OK && started < work->threads)
        if (pthread_create(&threads[started], NULL, run_worker, &w) == 0)
            started++;
        else
            wf_error_set(error, WF_ENOMEM,
                         "thread %d of %d cannot be started: use --threads %d", started + 1,
                         work->threads, started ? started : 1);
    read_blocks(&w, reader, error);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    close_places(&w);
    app_block_close(reader);
    pthread_cond_destroy(&w.changed);
    pthread_mutex_destroy(&w.lock);
    return error->code;
}
