/* parallel/report/event_file.c - scalars of a run for TensorBoard: one file of events per run. */
#include "parallel/report/event_file.h"
#include "parallel/report/atomic_write_internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "events.out.tfevents."

/* Keys of protobuf: (field number << 3) | wire type. */
enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };
enum {
    EVENT_TIME = 1 << 3 | FIXED64,
    EVENT_STEP = 2 << 3 | VARINT,
    EVENT_VERSION = 3 << 3 | BYTES,
    EVENT_SUMMARY = 5 << 3 | BYTES,
    EVENT_SESSION = 7 << 3 | BYTES,
    SUMMARY_VALUE = 1 << 3 | BYTES,
    VALUE_TAG = 1 << 3 | BYTES,
    VALUE_SIMPLE = 2 << 3 | FIXED32,
    SESSION_STATUS = 1 << 3 | VARINT,
    SESSION_START = 1
};

struct wf_event_file {
    int file;
    bool began; /* SessionLog START is in it */
    char *path;
};

uint32_t wf_crc32c(const void *bytes, size_t size)
{
    const unsigned char *next = bytes;
    uint32_t crc = ~0u;

    while (size--) {
        crc ^= *next++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0); /* the polynomial, reflected */
    }
    return ~crc;
}

/* TFRecord rotates a checksum and adds a constant, since one of data with checksums in it is weak. */
static uint32_t masked(const void *bytes, size_t size)
{
    uint32_t crc = wf_crc32c(bytes, size);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_fixed(FILE *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        putc((int)(value >> 8 * i & 0xff), to);
}

static void put_varint(FILE *to, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        putc((int)(value & 0x7f) | 0x80, to);
    putc((int)value, to);
}

static void put_text(FILE *to, int key, const char *text)
{
    size_t size = strlen(text);

    put_varint(to, (uint64_t)key);
    put_varint(to, size);
    fwrite(text, 1, size, to);
}

static void begin_event(FILE *to, int64_t step)
{
    struct timespec now;
    double seconds;
    uint64_t bits;

    clock_gettime(CLOCK_REALTIME, &now);
    seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    memcpy(&bits, &seconds, sizeof bits);
    put_varint(to, EVENT_TIME);
    put_fixed(to, bits, 8);
    put_varint(to, EVENT_STEP);
    put_varint(to, (uint64_t)step);
}

/* A key of 1 byte, a length of 1 byte and the tag; a key of 1 byte and the value. */
static size_t value_size(const wf_event_scalar *scalar)
{
    return 2 + strlen(scalar->tag) + 5;
}

static void put_summary(FILE *to, const wf_event_scalar *scalars, int count)
{
    size_t size = 0;
    uint32_t bits;

    for (int i = 0; i < count; i++)
        size += 2 + value_size(&scalars[i]);
    put_varint(to, EVENT_SUMMARY);
    put_varint(to, size);
    for (int i = 0; i < count; i++) {
        put_varint(to, SUMMARY_VALUE);
        put_varint(to, value_size(&scalars[i]));
        put_text(to, VALUE_TAG, scalars[i].tag);
        put_varint(to, VALUE_SIMPLE);
        memcpy(&bits, &scalars[i].value, sizeof bits);
        put_fixed(to, bits, 4);
    }
}

static void put_record(FILE *to, const char *event, size_t size)
{
    unsigned char length[8];

    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)size >> 8 * i);
    fwrite(length, 1, sizeof length, to);
    put_fixed(to, masked(length, sizeof length), 4);
    fwrite(event, 1, size, to);
    put_fixed(to, masked(event, size), 4);
}

static wf_status no_memory(wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "no memory for a record of the TensorBoard log");
}

/* What: the text of a version, scalars, or neither: the start of a session. */
static wf_status append(wf_event_file *f, int64_t step, const char *version,
                        const wf_event_scalar *scalars, int count, wf_error *error)
{
    char *event = NULL, *record = NULL;
    size_t size = 0, length = 0;
    FILE *to = open_memstream(&event, &size);
    wf_status status = WF_OK;

    if (!to)
        return no_memory(error);
    begin_event(to, step);
    if (version)
        put_text(to, EVENT_VERSION, version);
    else if (scalars)
        put_summary(to, scalars, count);
    else
        put_text(to, EVENT_SESSION, (const char[]){SESSION_STATUS, SESSION_START, 0});
    if (fclose(to))
        status = no_memory(error);
    to = status == WF_OK ? open_memstream(&record, &length) : NULL;
    if (to)
        put_record(to, event, size);
    if (!to || fclose(to))
        status = no_memory(error);
    if (status == WF_OK)
        status = wf_write_whole(f->file, f->path, record, length, error);
    free(record);
    free(event);
    return status;
}

/* The time of the newest file of events in a directory; 0: there is none. */
static long long newest(const char *directory)
{
    long long last = 0;
    DIR *list = opendir(directory);

    for (const struct dirent *entry; list && (entry = readdir(list));) {
        long long time = strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) == 0
                             ? strtoll(entry->d_name + sizeof PREFIX - 1, NULL, 10)
                             : 0;

        if (time > last && time < 9999999999)
            last = time;
    }
    if (list)
        closedir(list);
    return last;
}

wf_status wf_event_file_open(const char *directory, wf_event_file **file, wf_error *error)
{
    char host[256] = "";
    wf_event_file *f = calloc(1, sizeof *f);
    long long now = (long long)time(NULL), last = newest(directory);
    wf_status status;

    *file = NULL;
    gethostname(host, sizeof host - 1);
    if (!f || asprintf(&f->path, "%s/" PREFIX "%010lld.%s.%d.0", directory,
                       now > last ? now : last + 1, host, (int)getpid()) < 0) {
        free(f);
        return no_memory(error);
    }
    if (mkdir(directory, 0777) && errno != EEXIST)
        status = wf_error_set(error, WF_EIO, "cannot make directory %s of .tensorboard: %s",
                              directory, strerror(errno));
    else if ((f->file = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) < 0)
        status = wf_error_set(error, WF_EIO, "cannot open log file %s: %s", f->path,
                              strerror(errno));
    else {
        *file = f;
        status = append(f, 0, "brain.Event:2", NULL, 0, error);
        if (status == WF_OK)
            return WF_OK;
        *file = NULL;
        close(f->file);
    }
    free(f->path);
    free(f);
    return status;
}

wf_status wf_event_file_scalars(wf_event_file *file, int64_t step,
                                const wf_event_scalar *scalars, int count, wf_error *error)
{
    wf_status status = file->began ? WF_OK : append(file, step, NULL, NULL, 0, error);

    if (status != WF_OK)
        return status;
    file->began = true;
    return append(file, step, NULL, scalars, count, error);
}

wf_status wf_event_file_close(wf_event_file *file, wf_error *error)
{
    wf_status status = WF_OK;

    if (!file)
        return WF_OK;
    if (close(file->file))
        status = wf_error_set(error, WF_EIO, "cannot close log file %s: %s", file->path,
                              strerror(errno));
    free(file->path);
    free(file);
    return status;
}
