/* nn/text/tokenizer/added.c - the tokens that are recognised in a text before all else. */
#include "nn/text/tokenizer/tokenizer_internal.h"
#include <stdlib.h>
#include <string.h>

/* Returns the node of a byte among siblings, made where it is missing; -1: out of memory. */
static int32_t node_of(wf_tok_added_set *set, int32_t above, uint8_t byte)
{
    int32_t first = above < 0 ? set->first[byte] : set->nodes[above].down, i;

    for (i = first; i >= 0 && set->nodes[i].byte != byte; i = set->nodes[i].next)
        ;
    if (i >= 0)
        return i;
    if (set->node_count == set->node_room) {
        int32_t room = 2 * set->node_room + 64;
        wf_tok_added_node *nodes = realloc(set->nodes, (size_t)room * sizeof *nodes);

        if (!nodes)
            return -1;
        set->nodes = nodes;
        set->node_room = room;
    }
    i = set->node_count++;
    set->nodes[i] = (wf_tok_added_node){byte, -1, above < 0 ? -1 : first, -1};
    if (above < 0)
        set->first[byte] = i;
    else
        set->nodes[above].down = i;
    return i;
}

bool wf_tok_added_add(wf_tok_added_set *set, const wf_tok_added *token)
{
    int32_t node = -1;

    if (set->count == 0) {
        memset(set->first, -1, sizeof set->first);
        set->begins = (uint8_t)*token->text;
    }
    if (set->begins != (uint8_t)*token->text)
        set->begins = -1;
    if (set->count == set->room) {
        int32_t room = 2 * set->room + 16;
        wf_tok_added *tokens = realloc(set->tokens, (size_t)room * sizeof *tokens);

        if (!tokens)
            return false;
        set->tokens = tokens;
        set->room = room;
    }
    set->tokens[set->count] = *token;
    set->tokens[set->count].text = malloc(token->bytes);
    if (!set->tokens[set->count].text)
        return false;
    memcpy(set->tokens[set->count++].text, token->text, token->bytes);
    for (uint32_t i = 0; i < token->bytes; i++) {
        node = node_of(set, node, (uint8_t)token->text[i]);
        if (node < 0)
            return false;
    }
    set->nodes[node].token = set->count - 1;
    return true;
}

void wf_tok_added_free(wf_tok_added_set *set)
{
    for (int32_t i = 0; i < set->count; i++)
        free(set->tokens[i].text);
    free(set->tokens);
    free(set->nodes);
    *set = (wf_tok_added_set){0};
}

/* Returns the longest token that begins at a byte; NULL: none does. */
static const wf_tok_added *longest(const wf_tok_added_set *set, bool without_special,
                                   const uint8_t *text, size_t n)
{
    const wf_tok_added *found = NULL;
    int32_t node = set->first[text[0]];

    for (size_t i = 1; node >= 0; i++) {
        const wf_tok_added_node *here = &set->nodes[node];

        if (here->token >= 0 && !(without_special && set->tokens[here->token].special))
            found = &set->tokens[here->token];
        if (i == n)
            break;
        node = here->down;
        while (node >= 0 && set->nodes[node].byte != text[i])
            node = set->nodes[node].next;
    }
    return found;
}

const wf_tok_added *wf_tok_added_find(const wf_tok_added_set *set, bool without_special,
                                      const uint8_t *text, size_t n, size_t from, size_t *at)
{
    for (size_t i = from; set->count && i < n; i++) {
        const wf_tok_added *found;

        if (set->begins >= 0) {
            const uint8_t *next = memchr(text + i, set->begins, n - i);

            if (!next)
                return NULL;
            i = (size_t)(next - text);
        }
        if (set->first[text[i]] < 0)
            continue;
        found = longest(set, without_special, text + i, n - i);
        if (found) {
            *at = i;
            return found;
        }
    }
    return NULL;
}
