/* core/files/checksum.c - XXH3 of bytes; see the header. */
#include "core/files/checksum_internal.h"
#include "core/numerics/bits.h"
#include <stdio.h>
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h> /* the same values, by the widest vectors of the machine */
#endif

uint64_t wf_checksum(const void *bytes, size_t n)
{
    return XXH3_64bits(bytes, n);
}

wf_checksum_stream *wf_checksum_begin(void)
{
    XXH3_state_t *state = XXH3_createState();

    if (state)
        XXH3_64bits_reset(state);
    return (wf_checksum_stream *)state;
}

void wf_checksum_add(wf_checksum_stream *stream, const void *bytes, size_t n)
{
    XXH3_64bits_update((XXH3_state_t *)stream, bytes, n);
}

uint64_t wf_checksum_end(wf_checksum_stream *stream)
{
    uint64_t checksum = stream ? XXH3_64bits_digest((XXH3_state_t *)stream) : 0;

    XXH3_freeState((XXH3_state_t *)stream);
    return checksum;
}

uint64_t wf_checksum_file(int64_t number, int64_t file_bytes, uint64_t header_checksum)
{
    return wf_mix64(header_checksum ^
                    wf_mix64((uint64_t)file_bytes ^ wf_mix64((uint64_t)number)));
}

char *wf_checksum_print(uint64_t checksum, char text[WF_CHECKSUM_TEXT])
{
    snprintf(text, WF_CHECKSUM_TEXT, "%016llx", (unsigned long long)checksum);
    return text;
}

bool wf_checksum_parse(const char *text, uint64_t *checksum)
{
    uint64_t value = 0;
    int digits = 0;

    for (; text[digits]; digits++) {
        char c = text[digits];

        if (digits == WF_CHECKSUM_TEXT - 1 ||
            !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        value = value << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    *checksum = value;
    return digits == WF_CHECKSUM_TEXT - 1;
}
