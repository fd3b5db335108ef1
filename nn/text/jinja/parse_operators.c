/* nn/text/jinja/parse_operators.c - operators, from those that bind tightest to the inline
   if. */
#include "nn/text/jinja/run_internal.h"

/* Binary operators by how tightly they bind, the loosest first. */
static jinja_node *operation(jinja_reader *r, int level)
{
    static const struct {
        const char *text;
        int op;
    } levels[4][5] = {{{"+", '+'}, {"-", '-'}},
                      {{"~", '~'}},
                      {{"*", '*'}, {"/", '/'}, {"//", JINJA_OP_FLOOR}, {"%", '%'}},
                      {{"**", JINJA_OP_POWER}}};
    jinja_node *n;
    int i;

    if (level == 4)
        return jinja_parse_unary(r, true);
    n = operation(r, level + 1);
    do {
        const jinja_token *t = jinja_peek(r);

        for (i = 0; levels[level][i].text; i++)
            if (jinja_skip_operator(r, levels[level][i].text)) {
                n = jinja_node_of(r, JINJA_BINARY, t, levels[level][i].op, n,
                                  operation(r, level + 1));
                break;
            }
    } while (levels[level][i].text);
    return n;
}

static int comparison(jinja_reader *r)
{
    static const struct {
        const char *text;
        int op;
    } ops[] = {{"==", JINJA_OP_EQ}, {"!=", JINJA_OP_NE}, {"<=", JINJA_OP_LE},
               {">=", JINJA_OP_GE}, {"<", '<'},          {">", '>'}};

    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (jinja_skip_operator(r, ops[i].text))
            return ops[i].op;
    if (jinja_skip_name(r, "in"))
        return JINJA_OP_IN;
    if (jinja_is_name(jinja_peek(r), "not") && jinja_is_name(jinja_peek(r) + 1, "in")) {
        r->at += 2;
        return JINJA_OP_NOT_IN;
    }
    return 0;
}

static jinja_node *compare(jinja_reader *r)
{
    const jinja_token *t = jinja_peek(r);
    jinja_node *n = operation(r, 0), *chain = NULL;
    int op;

    while ((t = jinja_peek(r), op = comparison(r))) {
        if (!chain)
            chain = jinja_node_of(r, JINJA_COMPARE, t, 0, n, NULL);
        jinja_nodes_add(r, &chain->list,
                        jinja_node_of(r, JINJA_UNARY, t, op, operation(r, 0), NULL));
    }
    return chain ? chain : n;
}

static jinja_node *negation(jinja_reader *r)
{
    const jinja_token *t = jinja_peek(r);
    jinja_node *n;

    if (!jinja_skip_name(r, "not"))
        return compare(r);
    jinja_enter(r);
    n = jinja_node_of(r, JINJA_UNARY, t, JINJA_OP_NOT, negation(r), NULL);
    jinja_leave(r);
    return n;
}

static jinja_node *conjunction(jinja_reader *r)
{
    jinja_node *n = negation(r);

    for (const jinja_token *t = jinja_peek(r); jinja_skip_name(r, "and"); t = jinja_peek(r))
        n = jinja_node_of(r, JINJA_AND, t, 0, n, negation(r));
    return n;
}

jinja_node *jinja_parse_without_condition(jinja_reader *r)
{
    jinja_node *n = conjunction(r);

    for (const jinja_token *t = jinja_peek(r); jinja_skip_name(r, "or"); t = jinja_peek(r))
        n = jinja_node_of(r, JINJA_OR, t, 0, n, conjunction(r));
    return n;
}

jinja_node *jinja_parse_expression(jinja_reader *r)
{
    jinja_node *n;

    jinja_enter(r);
    n = jinja_parse_without_condition(r);
    for (const jinja_token *t = jinja_peek(r); jinja_skip_name(r, "if"); t = jinja_peek(r)) {
        n = jinja_node_of(r, JINJA_CONDITIONAL, t, 0, n, jinja_parse_without_condition(r));
        if (jinja_skip_name(r, "else"))
            n->c = jinja_parse_expression(r);
    }
    jinja_leave(r);
    return n;
}
