/*
 * tests/lint/consumer.c - a user's program, built against the installed library: it includes
 * the umbrella and a single header, and calls into the library.
 */
#include <weft/weft.h>
#include <weft/core/status.h>
#include <stdio.h>

int main(void)
{
    wf_error error = {WF_OK, ""};

    wf_error_set(&error, (wf_status)1, "%s", "said by the installed library");
    printf("weft %s: %s\n", WF_VERSION, error.text);
    return error.text[0] ? 0 : 1;
}
