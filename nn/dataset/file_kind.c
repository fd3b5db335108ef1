/* nn/dataset/file_kind.c - see the header. */
#include "nn/dataset/file_kind.h"
#include "core/files/input.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { HEAD = 1 << 16 }; /* so much of a file is looked at */

/* Lists bytes that files of other kinds begin with, or have at an offset. */
static const struct {
    const char *magic;
    size_t bytes;
    const char *advice;
    size_t offset;
} known[] = {
    {"\x1f\x8b", 2, "is compressed by gzip: give what gzip -dc FILE writes", 0},
    {"\x28\xb5\x2f\xfd", 4, "is compressed by zstd: give what zstd -dc FILE writes", 0},
    {"BZh", 3, "is compressed by bzip2: give what bzip2 -dc FILE writes", 0},
    {"\xfd"
     "7zXZ",
     5, "is compressed by xz: give what xz -dc FILE writes", 0},
    {"\x04\x22\x4d\x18", 4, "is compressed by lz4: give what lz4 -dc FILE writes", 0},
    {"PK\x03\x04", 4, "is an archive of zip: give the files in it", 0},
    {"PAR1", 4,
     "is a Parquet file: give its rows as .jsonl, as by "
     "datasets.Dataset.from_parquet(FILE).to_json(..)",
     0},
    {"ARROW1", 6,
     "is an Arrow file: give its rows as .jsonl, as by "
     "datasets.Dataset.from_file(FILE).to_json(..)",
     0},
    {"SQLite format 3", 15, "is a database of SQLite: give its texts as .jsonl", 0},
    {"\x89HDF", 4, "is an HDF5 file: give its texts as .jsonl", 0},
    {"\x93NUMPY", 6, "is an array of NumPy: give token ids as .bin (docs/data.md)", 0},
    {"ustar", 5, "is an archive of tar: give the files in it", 257},
    {"\x80\x02", 2, "is a pickle of Python: give its texts as .jsonl", 0},
    {"\x80\x04\x95", 3, "is a pickle of Python: give its texts as .jsonl", 0},
    {"\x80\x05\x95", 3, "is a pickle of Python: give its texts as .jsonl", 0},
    {"%PDF-", 5, "is a PDF: give its text", 0},
    {"\x7f"
     "ELF",
     4, "is a program: give text", 0},
    {"GGUF", 4, "is a model of GGUF: give text", 0},
    {"\xff\xfe", 2, "is text in UTF-16: give what iconv -f UTF-16 -t UTF-8 FILE writes", 0},
    {"\xfe\xff", 2, "is text in UTF-16: give what iconv -f UTF-16 -t UTF-8 FILE writes", 0},
};

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);

    return n > m && strcasecmp(name + n - m, ending) == 0;
}

/* Returns the object that a first line is; NULL: it is none, or is cut. */
static json_t *first_row(const char *text, size_t bytes, bool whole)
{
    const char *end = memchr(text, '\n', bytes);
    json_t *row =
        end || whole ? json_loadb(text, end ? (size_t)(end - text) : bytes, 0, NULL) : NULL;

    if (json_is_object(row))
        return row;
    json_decref(row);
    return NULL;
}

/* Returns true where a row has one of the usual keys of texts. */
static bool has_text(const json_t *row)
{
    static const char *const keys[] = {"text", "messages", "prompt", "conversations",
                                       "content"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(row, keys[i]))
            return true;
    return false;
}

static wf_dataset_file_kind look_at_text(const char *name, const char *text, size_t bytes,
                                         bool whole, const char **advice)
{
    const bool json = ends_with(name, ".json");
    size_t at = bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    json_t *row = NULL;
    bool texts;

    while (at < bytes && strchr(" \t\r\n", text[at]))
        at++;
    if (at < bytes && text[at] == '{')
        row = first_row(text + at, bytes - at, whole);
    texts = row && (json || has_text(row));
    json_decref(row);
    if (texts)
        return WF_DATASET_FILE_ROWS;
    *advice = "is one value of JSON: give its rows as .jsonl, a row a line, as jq -c '.[]' "
              "FILE writes those of a list";
    return json ? WF_DATASET_FILE_JSON : WF_DATASET_FILE_TEXT;
}

wf_dataset_file_kind wf_dataset_file_look(int fd, const char *name, const char **advice)
{
    char *head = malloc(HEAD);
    ssize_t n = head ? pread(fd, head, HEAD, 0) : 0;
    wf_dataset_file_kind kind = ends_with(name, ".jsonl") || ends_with(name, ".ndjson")
                                    ? WF_DATASET_FILE_ROWS
                                    : WF_DATASET_FILE_TEXT;

    *advice = n > 0 ? wf_input_pointer(head, (size_t)n) : NULL;
    if (*advice)
        kind = WF_DATASET_FILE_OTHER;
    for (size_t i = 0; n > 0 && !*advice && i < sizeof known / sizeof *known; i++)
        if ((size_t)n >= known[i].offset + known[i].bytes &&
            memcmp(head + known[i].offset, known[i].magic, known[i].bytes) == 0) {
            *advice = known[i].advice;
            kind = WF_DATASET_FILE_OTHER;
        }
    if (n > 0 && kind == WF_DATASET_FILE_TEXT)
        kind = look_at_text(name, head, (size_t)n, n < HEAD, advice);
    free(head);
    return kind;
}
