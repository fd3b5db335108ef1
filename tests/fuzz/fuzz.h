/* tests/fuzz/fuzz.h - what a fuzzer is: a function of bytes that stops the program where a
   promise is broken. */
#ifndef WF_TESTS_FUZZ_FUZZ_H
#define WF_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PROMISE(condition)                                                                     \
    do {                                                                                       \
        if (!(condition))                                                                      \
            abort();                                                                           \
    } while (0)

/* The promise of every parser: success without an error, or an error with a text. */
#define ANSWERED(status, error)                                                                \
    PROMISE((status) == (error).code && ((status) == WF_OK) == !(error).text[0])

#endif
