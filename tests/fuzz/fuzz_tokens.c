/*
 * tests/fuzz/fuzz_tokens.c - 1 byte: the vocabulary in powers of two, and whether anybody said
 * so; then a .bin file: of llm.c, or of two bytes a token, as nanoGPT writes it. What is
 * accepted has as many tokens as it says, each below the vocabulary where it can be read, alike
 * in one piece and one by one.
 */
#include "nn/dataset/token_file.h"
#include "tests/fuzz/fuzz.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { MOST = 1 << 15 };

static char path[64]; /* a file in a folder, since its ending counts */

static void check_tokens(const wf_token_file *file)
{
    static int32_t ids[MOST];
    wf_error error = {WF_OK, ""};
    wf_status status;
    int32_t id;

    PROMISE(file->tokens >= 1 && file->tokens <= MOST && !file->documents.index.documents);
    status = wf_token_file_read(file, 0, file->tokens, ids, &error);
    ANSWERED(status, error);
    for (int64_t i = 0; status == WF_OK && i < file->tokens; i++) {
        PROMISE(ids[i] >= 0 && ids[i] < file->vocabulary);
        PROMISE(i % 97 || wf_token_file_read(file, i, 1, &id, &error) == WF_OK);
        PROMISE(i % 97 || id == ids[i]);
    }
    status = wf_token_file_read(file, file->tokens, 1, &id, &error);
    PROMISE(status == WF_EIO || status == WF_EDATA);
}

static void remove_file(void)
{
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int descriptor = -1;
    wf_token_file file;
    wf_error error = {WF_OK, ""};
    wf_status status;

    if (size < 1)
        return 0;
    if (descriptor < 0) {
        snprintf(path, sizeof path, "/tmp/weft-fuzz-%d.bin", (int)getpid());
        descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        PROMISE(descriptor >= 0);
        atexit(remove_file);
    }
    PROMISE(ftruncate(descriptor, 0) == 0 &&
            pwrite(descriptor, data + 1, size - 1, 0) == (ssize_t)(size - 1));
    status = wf_token_file_open(path, "--data",
                                (wf_token_count){(int64_t)1 << data[0] % 32, data[0] & 128},
                                &file, &error);
    ANSWERED(status, error);
    if (status == WF_OK)
        check_tokens(&file);
    wf_token_file_close(&file);
    return 0;
}
