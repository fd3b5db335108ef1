/*
 * tests/fuzz/fuzz_requests.c - lines of requests for gpt_eval choices: of what is accepted
 * every request has a context and a continuation, in tokens that the tokenizer has, and no more
 * than the model has positions for.
 */
#include "parallel/generate/requests.h"
#include "tests/fuzz/fuzz.h"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { POSITIONS = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static wf_tok *tokenizer;
    static int file = -1;
    static char path[64];
    wf_gen_requests all = {.count = 0};
    wf_error error = {WF_OK, ""};
    wf_status status;

    if (file < 0) {
        file = memfd_create("requests", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        PROMISE(wf_tok_open(NULL, &tokenizer, &error) == WF_OK);
    }
    PROMISE(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size);
    status = wf_gen_requests_read(path, tokenizer, POSITIONS, &all, &error);
    ANSWERED(status, error);
    for (int64_t i = 0; status == WF_OK && i < all.count; i++) {
        const wf_gen_request *r = &all.list[i];

        PROMISE(r->context > 0 && r->count > r->context && r->count <= POSITIONS + 1);
        PROMISE(r->begin >= 0 && r->begin + r->count <= (int64_t)all.ids.count);
        PROMISE(r->bytes > 0 && r->label >= -1);
        for (int64_t k = 0; k < r->count; k++)
            PROMISE(all.ids.data[r->begin + k] >= 0 && all.ids.data[r->begin + k] < 256);
    }
    wf_gen_requests_free(&all);
    return 0;
}
