/* nn/text/tokenizer/text.c - texts before they are encoded: valid, and in parts. */
#include "nn/text/tokenizer/tokenizer_internal.h"
#include "nn/text/utf8_internal.h"
#include <string.h>

bool wf_tok_valid_text(wf_tok_bytes *room, const uint8_t **text, size_t *n)
{
    const uint8_t *from = *text;
    size_t left = *n, good = wf_text_utf8_valid(from, left);

    if (good == left)
        return true;
    room->bytes = 0;
    for (; good < left; good = wf_text_utf8_valid(from, left)) {
        int wrong;

        wf_text_utf8_take(from + good, left - good, &wrong);
        if (!wf_tok_bytes_add(room, from, good) || !wf_tok_bytes_add(room, "\xef\xbf\xbd", 3))
            return false;
        from += good + (size_t)wrong;
        left -= good + (size_t)wrong;
    }
    if (!wf_tok_bytes_add(room, from, left))
        return false;
    *text = (const uint8_t *)room->data;
    *n = room->bytes;
    return true;
}

void wf_tok_print(const char *text, size_t bytes, FILE *out)
{
    const uint8_t *from = (const uint8_t *)text;

    while (bytes > 0) {
        size_t good = wf_text_utf8_valid(from, bytes);
        int wrong = 0;

        fwrite(from, 1, good, out);
        if (good < bytes) {
            wf_text_utf8_take(from + good, bytes - good, &wrong);
            fputs("\xef\xbf\xbd", out);
        }
        from += good + (size_t)wrong;
        bytes -= good + (size_t)wrong;
    }
}

bool wf_tok_mend(const char *text, size_t bytes, wf_tok_bytes *to)
{
    const uint8_t *from = (const uint8_t *)text;
    wf_tok_bytes room = {0};
    bool ok = wf_tok_valid_text(&room, &from, &bytes) && wf_tok_bytes_add(to, from, bytes);

    wf_tok_bytes_free(&room);
    return ok;
}

/* Returns true where an added token reaches over a space after a letter. */
static bool reaches_over(const wf_tok_added_set *set)
{
    for (int32_t i = 0; i < set->count; i++) {
        const wf_tok_added *a = &set->tokens[i];

        if (a->left || a->right || a->single_word)
            return true;
        for (uint32_t k = 1; k < a->bytes; k++)
            if (a->text[k] == ' ' && a->text[k - 1] != ' ')
                return true;
    }
    return false;
}

/* Returns whether words end at spaces: the known patterns end a word between a letter and a
   space, whatever is around them; so do patterns of digits, which reach neither. */
static bool ends_at_spaces(const wf_tok_step *step)
{
    return step->kind == WF_TOK_STEP_SPLIT &&
           (step->pattern.scan || strcmp(step->pattern.text, "\\p{N}") == 0 ||
            strcmp(step->pattern.text, "\\p{N}+") == 0);
}

static bool may_be_cut(const wf_tok *t)
{
    for (int i = 0; i < t->normalizers.count; i++)
        if (t->normalizers.steps[i].kind != WF_TOK_STEP_NFC)
            return false;
    for (int i = 0; i < t->pre_tokenizers.count; i++)
        if (!ends_at_spaces(&t->pre_tokenizers.steps[i]))
            return false;
    return t->pre_tokenizers.count > 0 && !reaches_over(&t->added) &&
           !reaches_over(&t->added_normalized);
}

size_t wf_tok_cut(const wf_tok *t, const char *text, size_t bytes)
{
    if (t->bytes)
        return bytes;
    if (bytes == 0 || !may_be_cut(t))
        return 0;
    for (size_t at = bytes - 1; at > 0; at--)
        if (text[at] == ' ' && ((text[at - 1] | 32) >= 'a' && (text[at - 1] | 32) <= 'z'))
            return at;
    return 0;
}
