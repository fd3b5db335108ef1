/* apps/gpt_data/blocks.c - see the header. */
#include "apps/gpt_data/blocks.h"
#include "nn/dataset/file_kind.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BLOCK = 1 << 20,
    TAIL = 1 << 16, /* A block is cut somewhere among this many of its last bytes. */
    LINES = 1 << 16 /* Lines are counted in this many bytes at a time. */
};

struct app_block_file {
    int fd;
    int64_t bytes; /* when it was opened */
    int64_t users; /* blocks, and the reader */
};

struct app_block_reader {
    char *const *files;
    int64_t count, next;
    const wf_tok *tokenizer;
    app_block_file *file; /* the one that is read, or NULL */
    const char *name;
    int64_t at; /* offset of the next block */
    bool lines;
};

app_block_reader *app_block_open(char *const *files, int64_t count, const wf_tok *tokenizer)
{
    app_block_reader *r = calloc(1, sizeof *r);

    if (r)
        *r = (app_block_reader){.files = files, .count = count, .tokenizer = tokenizer};
    return r;
}

static void leave(app_block_file **file)
{
    if (*file && --(*file)->users == 0) {
        close((*file)->fd);
        free(*file);
    }
    *file = NULL;
}

void app_block_close(app_block_reader *r)
{
    if (r)
        leave(&r->file);
    free(r);
}

void app_block_release(app_block *block)
{
    leave(&block->from);
}

static bool open_file(app_block_file *f, const char *name, wf_error *error)
{
    struct stat s;

    f->users = 1;
    f->fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0 || fstat(f->fd, &s) != 0) {
        wf_error_set(error, WF_EIO, "%s: %s", name, strerror(errno));
        return false;
    }
    f->bytes = s.st_size;
    if (S_ISREG(s.st_mode))
        return true;
    wf_error_set(error, WF_EIO, "%s is not a regular file", name);
    return false;
}

/* Rows, or a text; false: what is neither is refused. */
static bool look(app_block_reader *r, const app_block_file *f, const char *name,
                 wf_error *error)
{
    const char *advice;
    const wf_dataset_file_kind kind = wf_dataset_file_look(f->fd, name, &advice);

    r->lines = kind == WF_DATASET_FILE_ROWS;
    if (kind != WF_DATASET_FILE_JSON && kind != WF_DATASET_FILE_OTHER)
        return true;
    wf_error_set(error, WF_EUNSUPPORTED, "%s %s", name, advice);
    return false;
}

static bool open_next(app_block_reader *r, wf_error *error)
{
    const char *name = r->files[r->next++];
    app_block_file *f = calloc(1, sizeof *f);

    if (!f) {
        wf_error_set(error, WF_ENOMEM, "%s: out of memory", name);
        return false;
    }
    if (!open_file(f, name, error) || !look(r, f, name, error)) {
        if (f->fd >= 0)
            close(f->fd);
        free(f);
        return false;
    }
    r->file = f;
    r->name = name;
    r->at = 0;
    return true;
}

/* Makes room for `room` bytes and a NUL. */
static bool widen(app_block *b, size_t room, wf_error *error)
{
    char *text = room >= b->room ? realloc(b->text, room + 1) : b->text;

    if (!text) {
        wf_error_set(error, WF_ENOMEM, "%s: out of memory: a block of %zu bytes", b->file,
                     room);
        return false;
    }
    b->text = text;
    b->room = room >= b->room ? room + 1 : b->room;
    return true;
}

/* Bytes [from, from + count) of the file, all of which it had when it was opened. */
static bool read_part(const app_block *b, char *to, size_t count, int64_t from, wf_error *error)
{
    while (count) {
        ssize_t n = pread(b->from->fd, to, count, from);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            wf_error_set(error, WF_EIO, n ? "%s: %s" : "%s: it became shorter as it was read%s",
                         b->file, n ? strerror(errno) : "");
            return false;
        }
        to += n;
        from += n;
        count -= (size_t)n;
    }
    return true;
}

/* Returns how many of these bytes may be given; 0: they cannot be cut. */
static size_t cut(const app_block_reader *r, const char *text, size_t bytes)
{
    const char *last;

    if (!r->lines)
        return wf_tok_cut(r->tokenizer, text, bytes);
    last = memrchr(text, '\n', bytes);
    return last ? (size_t)(last + 1 - text) : 0;
}

/* Reads on until the block can be cut among its last bytes, or the file ends. */
static bool find_end(app_block_reader *r, app_block *b, wf_error *error)
{
    size_t wanted = BLOCK, given = 0;

    for (; (int64_t)wanted < r->file->bytes - r->at; wanted *= 2) {
        size_t front = wanted - TAIL;

        if (!widen(b, wanted, error) ||
            !read_part(b, b->text + front, TAIL, r->at + (int64_t)front, error))
            return false;
        given = cut(r, b->text + front, TAIL);
        if (given) {
            b->bytes = front + given;
            b->known = given;
            return true;
        }
    }
    b->bytes = (size_t)(r->file->bytes - r->at);
    b->ends = true;
    return true;
}

bool app_block_next(app_block_reader *r, app_block *b, wf_error *error)
{
    if (!r->file && (r->next == r->count || !open_next(r, error)))
        return false;
    b->from = r->file;
    b->file = r->name;
    b->begin = r->at;
    b->lines = r->lines;
    b->ends = false;
    b->known = 0;
    b->from->users++;
    if (!find_end(r, b, error)) {
        app_block_release(b);
        return false;
    }
    r->at += (int64_t)b->bytes;
    if (b->ends)
        leave(&r->file);
    return true;
}

wf_status app_block_read(app_block *b, wf_error *error)
{
    char more;

    if (!widen(b, b->bytes, error) ||
        !read_part(b, b->text, b->bytes - b->known, b->begin, error))
        return error->code;
    b->text[b->bytes] = '\0';
    if (!b->from->bytes && pread(b->from->fd, &more, 1, 0) > 0)
        wf_error_set(error, WF_EIO, "%s: its size is 0, and there are bytes in it", b->file);
    return error->code;
}

int64_t app_block_line(const app_block *b, size_t byte)
{
    const int64_t end = b->begin + (int64_t)byte;
    char *text = malloc(LINES);
    int64_t line = 1, at = 0;

    while (text && at < end) {
        size_t n = end - at < LINES ? (size_t)(end - at) : LINES;

        if (!read_part(b, text, n, at, &(wf_error){WF_OK, ""}))
            break;
        for (size_t i = 0; i < n; i++)
            line += text[i] == '\n';
        at += (int64_t)n;
    }
    free(text);
    return at == end ? line : 0;
}
