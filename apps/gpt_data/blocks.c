/* apps/gpt_data/blocks.c - see the header. */
#include "apps/gpt_data/blocks.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1 << 20 };

struct app_block_reader {
    char *const *files;
    int64_t count, next;
    const app_tokenizer *tokenizer;
    int fd; /* the open file, or -1 */
    bool lines, begun;
    int64_t line;
    char *rest; /* what was read behind the last block */
    size_t rest_bytes;
};

app_block_reader *app_block_open(char *const *files, int64_t count,
                                 const app_tokenizer *tokenizer)
{
    app_block_reader *r = calloc(1, sizeof *r);

    if (r)
        *r = (app_block_reader){
            .files = files, .count = count, .tokenizer = tokenizer, .fd = -1};
    return r;
}

void app_block_close(app_block_reader *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    free(r->rest);
    free(r);
}

static bool open_next(app_block_reader *r, wf_error *error)
{
    const char *name = r->files[r->next];
    size_t n = strlen(name);
    struct stat s;

    r->fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r->fd < 0 || fstat(r->fd, &s) != 0) {
        wf_error_set(error, WF_EIO, "%s: %s", name, strerror(errno));
        return false;
    }
    if (!S_ISREG(s.st_mode)) {
        wf_error_set(error, WF_EIO, "%s is not a regular file", name);
        return false;
    }
    r->next++;
    r->line = 1;
    r->begun = false;
    r->lines = n > 6 && strcmp(name + n - 6, ".jsonl") == 0;
    return true;
}

/* Room for so many bytes and a NUL. */
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

/* Appends what the file has, up to a number of bytes in all; *end: there is nothing more. */
static bool fill(app_block_reader *r, app_block *b, size_t wanted, bool *end, wf_error *error)
{
    if (!widen(b, wanted, error))
        return false;
    while (b->bytes < wanted) {
        ssize_t n = read(r->fd, b->text + b->bytes, wanted - b->bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            wf_error_set(error, WF_EIO, "%s: %s", b->file, strerror(errno));
            return false;
        }
        *end = n == 0;
        if (n == 0)
            break;
        b->bytes += (size_t)n;
    }
    b->text[b->bytes] = '\0';
    return true;
}

/* How many bytes of a block may be given; 0: more has to be read first. */
static size_t cut(const app_block_reader *r, const app_block *b)
{
    const char *last;

    if (!r->lines)
        return app_tokenizer_cut(r->tokenizer, b->text, b->bytes);
    last = memrchr(b->text, '\n', b->bytes);
    return last ? (size_t)(last + 1 - b->text) : 0;
}

/* Keeps what lies behind the part of a block that is given. */
static bool keep_rest(app_block_reader *r, app_block *b, size_t given, wf_error *error)
{
    char *rest = realloc(r->rest, b->bytes - given + 1);

    if (!rest) {
        wf_error_set(error, WF_ENOMEM, "%s: out of memory", b->file);
        return false;
    }
    r->rest = rest;
    r->rest_bytes = b->bytes - given;
    memcpy(rest, b->text + given, r->rest_bytes);
    b->bytes = given;
    b->text[given] = '\0';
    return true;
}

/* The rest of the block before, and as much more as it takes until there is a place to cut. */
static bool read_block(app_block_reader *r, app_block *b, wf_error *error)
{
    size_t wanted = r->rest_bytes > BLOCK ? 2 * r->rest_bytes : BLOCK, given = 0;
    bool end = false;

    b->file = r->files[r->next - 1];
    b->bytes = 0;
    if (!widen(b, r->rest_bytes, error))
        return false;
    if (r->rest_bytes)
        memcpy(b->text, r->rest, r->rest_bytes);
    b->bytes = r->rest_bytes;
    r->rest_bytes = 0;
    while (!end && !given) {
        if (!fill(r, b, wanted, &end, error))
            return false;
        given = end ? b->bytes : cut(r, b);
        wanted *= 2;
    }
    b->lines = r->lines;
    b->ends = end;
    b->line = r->line;
    if (!keep_rest(r, b, given, error))
        return false;
    for (size_t i = 0; r->lines && i < b->bytes; i++)
        r->line += b->text[i] == '\n';
    if (end) {
        close(r->fd);
        r->fd = -1;
    }
    return true;
}

bool app_block_read(app_block_reader *r, app_block *block, wf_error *error)
{
    if (r->fd < 0 && (r->next == r->count || !open_next(r, error)))
        return false;
    return read_block(r, block, error);
}
