/* core/warning.c - what is legal, and seldom meant: reported once. */
#include "core/context_internal.h"
#include <stdio.h>

static bool is_new(wf_context *ctx, const void *of)
{
    for (int i = 0; i < ctx->n_warned; i++)
        if (ctx->warned[i] == of)
            return false;
    if (ctx->n_warned == WF_WARNINGS)
        return false;
    ctx->warned[ctx->n_warned++] = of;
    return true;
}

void wf_context_warn(wf_context *ctx, const void *of, const char *format, ...)
{
    char text[WF_ERROR_TEXT];
    va_list args;

    if (!is_new(ctx, of))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (ctx->warning)
        ctx->warning(ctx->warning_self, text);
}

void wf_context_on_warning(wf_context *ctx, void (*warning)(void *self, const char *text),
                           void *self)
{
    ctx->warning = warning;
    ctx->warning_self = self;
}
