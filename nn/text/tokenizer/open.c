/* nn/text/tokenizer/open.c - which kind of file a path is, by its content. */
#include "nn/text/tokenizer/load_internal.h"
#include "core/files/input.h"
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static wf_status read_all(int fd, const char *path, size_t bytes, char **text, wf_error *error)
{
    size_t done = 0;

    *text = malloc(bytes + 1);
    if (!*text)
        return wf_error_set(error, WF_ENOMEM, "%s: out of memory", path);
    while (done < bytes) {
        ssize_t n = read(fd, *text + done, bytes - done);

        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return wf_error_set(error, WF_EIO, "%s: %s", path,
                                n ? strerror(errno) : "it became shorter");
    }
    (*text)[bytes] = '\0';
    return WF_OK;
}

wf_status wf_tok_file_read(const char *path, char **text, size_t *bytes, wf_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    wf_status status;
    struct stat s;

    *text = NULL;
    if (fd < 0 || fstat(fd, &s) != 0)
        status = wf_error_set(error, WF_EIO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(s.st_mode))
        status = wf_error_set(error, WF_EIO, "%s is not a regular file", path);
    else if (s.st_size > WF_TOK_MOST_FILE)
        status = wf_error_set(error, WF_EDATA, "%s: a tokenizer's file has at most %d bytes",
                              path, WF_TOK_MOST_FILE);
    else
        status = read_all(fd, path, *bytes = (size_t)s.st_size, text, error);
    if (fd >= 0)
        close(fd);
    if (status != WF_OK) {
        free(*text);
        *text = NULL;
    }
    return status;
}

bool wf_tok_file_there(const char *path)
{
    return access(path, F_OK) == 0;
}

void wf_tok_file_beside(const char *path, const char *name, char out[WF_TOK_MOST_PATH])
{
    const char *slash = strrchr(path, '/');

    snprintf(out, WF_TOK_MOST_PATH, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
}

/* Loads one object: tokenizer.json has a model, tekken.json a pattern, vocab.json ids. A key
   that is read wrong is the error's text at once and is noticed by what reads next, so the
   answer is the error's first code. */
static wf_status load_json(wf_tok *t, const char *path, char *text, size_t bytes,
                           wf_error *error)
{
    wf_text_json json;
    uint32_t ids;

    if (wf_text_json_open(&json, path, text, bytes, error) == WF_OK) {
        ids = json.count > 2 && json.values[0].kind == WF_TEXT_JSON_OBJECT ? json.values[2].kind
                                                                           : WF_TEXT_JSON_NULL;
        if (ids == WF_TEXT_JSON_NUMBER)
            wf_tok_load_merges(t, &json);
        else if (wf_text_json_get(&json, 0, "config") != WF_TEXT_JSON_NONE)
            wf_tok_load_tekken(t, &json);
        else if (error->code == WF_OK)
            wf_tok_load_hf(t, &json);
    }
    wf_text_json_close(&json);
    return error->code;
}

/* Returns whether a text begins with a line of a rank file: letters of base64, a blank, a
   number. */
static bool is_ranks(const char *text)
{
    size_t letters = strspn(
               text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="),
           digits;

    if (letters == 0 || text[letters] != ' ')
        return false;
    text += letters + 1;
    digits = strspn(text, "0123456789");
    return digits > 0 && (text[digits] == '\n' || text[digits] == '\r' || !text[digits]);
}

static wf_status load_file(wf_tok *t, const char *path, wf_error *error)
{
    static const char merges[] = "#version:";
    size_t bytes, blanks;
    char *text, beside[WF_TOK_MOST_PATH];
    wf_status status = wf_tok_file_read(path, &text, &bytes, error);

    if (status != WF_OK)
        return status;
    blanks = strspn(text, " \t\r\n");
    if (text[blanks] == '{')
        return load_json(t, path, text, bytes, error);
    if (strncmp(text, merges, sizeof merges - 1) == 0) {
        free(text);
        wf_tok_file_beside(path, "vocab.json", beside);
        status = wf_tok_file_read(beside, &text, &bytes, error);
        return status == WF_OK ? load_json(t, beside, text, bytes, error) : status;
    }
    if (wf_input_pointer(text, bytes))
        status = wf_error_set(error, WF_EDATA, "%s %s", path, wf_input_pointer(text, bytes));
    else if (is_ranks(text))
        status = wf_tok_load_tiktoken(t, path, text, bytes, error);
    else if (bytes > 2 && text[0] == '\n')
        status = wf_tok_load_sentencepiece(t, path, text, bytes, error);
    else
        status =
            wf_error_set(error, WF_EDATA,
                         "%s is no tokenizer: neither tokenizer.json, tekken.json, vocab.json, "
                         "a rank file of tiktoken nor a model of SentencePiece",
                         path);
    free(text);
    return status;
}

/* Finds the only rank file of a folder. */
static bool rank_file(const char *path, char file[WF_TOK_MOST_PATH])
{
    static const char ending[] = ".tiktoken";
    DIR *folder = opendir(path);
    struct dirent *entry;
    int found = 0;

    while (folder && (entry = readdir(folder)) != NULL) {
        size_t n = strlen(entry->d_name);

        if (n < sizeof ending || strcmp(entry->d_name + n - (sizeof ending - 1), ending) != 0)
            continue;
        found++;
        snprintf(file, WF_TOK_MOST_PATH, "%s/%s", path, entry->d_name);
    }
    if (folder)
        closedir(folder);
    return found == 1;
}

static wf_status load(wf_tok *t, const char *path, wf_error *error)
{
    static const char *const names[] = {"tokenizer.json", "tekken.json", "tokenizer.model",
                                        "vocab.json"};
    char file[WF_TOK_MOST_PATH];
    struct stat s;

    if (strlen(path) > WF_TOK_MOST_PATH - 300)
        return wf_error_set(error, WF_EINVAL, "the path of a tokenizer is too long");
    if (stat(path, &s) != 0)
        return wf_error_set(
            error, WF_EIO,
            "%s: %s: a tokenizer is a folder of Hugging Face, or a file of one, of "
            "tiktoken or of SentencePiece; none is fetched by its name",
            path, strerror(errno));
    if (!S_ISDIR(s.st_mode))
        return load_file(t, path, error);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        if (wf_tok_file_there(file))
            return load_file(t, file, error);
    }
    if (rank_file(path, file))
        return load_file(t, file, error);
    return wf_error_set(
        error, WF_EIO,
        "%s has no tokenizer: none of tokenizer.json, tekken.json, tokenizer.model, "
        "vocab.json with merges.txt, or one *.tiktoken",
        path);
}

/* Loads the tokenizer in which every byte is a token. */
static wf_status load_bytes(wf_tok *t, wf_error *error)
{
    t->bytes = true;
    for (int byte = 0; byte < 256; byte++)
        if (wf_tok_lexicon_add(&t->vocabulary, byte, &(char){(char)byte}, 1,
                               WF_TOK_TOKEN_PIECE))
            return wf_error_set(error, WF_ENOMEM, "out of memory: the byte tokenizer");
    return WF_OK;
}

/* Begins with an empty tokenizer. */
static wf_status begin(wf_tok **tokenizer, wf_error *error)
{
    wf_tok *t = calloc(1, sizeof *t);

    *tokenizer = t;
    if (!t)
        return wf_error_set(error, WF_ENOMEM, "out of memory: a tokenizer");
    t->bos = t->eos = t->pad = t->unknown = -1;
    t->last_added = -1;
    t->growth = 1;
    memset(t->fallback, -1, sizeof t->fallback);
    return wf_tok_lexicon_begin(&t->vocabulary, error);
}

wf_status wf_tok_open(const char *path, wf_tok **tokenizer, wf_error *error)
{
    wf_status status = begin(tokenizer, error);

    if (status == WF_OK)
        status = path && strcmp(path, "bytes") != 0 ? load(*tokenizer, path, error)
                                                    : load_bytes(*tokenizer, error);
    if (status == WF_OK && !(*tokenizer)->characters)
        status = wf_tok_lexicon_pair_bytes(&(*tokenizer)->vocabulary, error);
    if (status != WF_OK) {
        wf_tok_close(*tokenizer);
        *tokenizer = NULL;
    }
    return status;
}

wf_status wf_tok_check(const char *name, const char *text, size_t bytes, wf_error *error)
{
    char *copy = malloc(bytes + 1);
    wf_tok *t = NULL;

    if (!copy)
        return wf_error_set(error, WF_ENOMEM, "%s: out of memory: a tokenizer", name);
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    if (begin(&t, error) == WF_OK) {
        t->alone = true;
        load_json(t, name, copy, bytes, error);
    } else {
        free(copy);
    }
    wf_tok_close(t);
    return error->code;
}

void wf_tok_close(wf_tok *t)
{
    if (!t)
        return;
    wf_tok_lexicon_free(&t->vocabulary);
    wf_tok_added_free(&t->added);
    wf_tok_added_free(&t->added_normalized);
    wf_tok_steps_free(&t->normalizers);
    wf_tok_steps_free(&t->pre_tokenizers);
    wf_tok_pattern_free(&t->word);
    free(t);
}
