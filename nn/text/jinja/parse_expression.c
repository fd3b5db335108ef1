/* nn/text/jinja/parse_expression.c - expressions, with Jinja's grammar: its parser has a
   function of the same name for each. */
#include "nn/text/jinja/run_internal.h"

jinja_node *jinja_node_of(jinja_reader *r, jinja_node_kind kind, const jinja_token *at, int op,
                          jinja_node *a, jinja_node *b)
{
    jinja_node *n = jinja_node_new(r, kind, at);

    n->op = op;
    n->a = a;
    n->b = b;
    return n;
}

static jinja_node *primary(jinja_reader *r);
static jinja_node *postfix(jinja_reader *r, jinja_node *n);

static void arguments(jinja_reader *r, jinja_call *args)
{
    const char *names[256] = {NULL};

    jinja_expect_operator(r, "(");
    while (!jinja_skip_operator(r, ")")) {
        const jinja_token *t = jinja_peek(r);

        if (args->values.count) {
            jinja_expect_operator(r, ",");
            if (jinja_skip_operator(r, ")"))
                break;
            t = jinja_peek(r);
        }
        if (jinja_is_operator(t, "*") || jinja_is_operator(t, "**"))
            jinja_refuse(r, WF_EUNSUPPORTED, t->line, t->column,
                         "arguments by * and ** are not supported");
        if (args->values.count == sizeof names / sizeof *names)
            jinja_refuse(r, WF_EUNSUPPORTED, t->line, t->column,
                         "a call has more than 256 arguments");
        if (t->kind == JINJA_NAME && jinja_is_operator(t + 1, "=")) {
            names[args->values.count] = t->text;
            r->at += 2;
        } else if (args->values.count && names[args->values.count - 1]) {
            jinja_unexpected(r, "an argument with a name, as those before it");
        }
        jinja_nodes_add(r, &args->values, jinja_parse_expression(r));
    }
    args->names = jinja_reader_take(r, (args->values.count + 1) * sizeof *args->names);
    memcpy(args->names, names, args->values.count * sizeof *args->names);
}

/* Parses the part of a subscript between commas. */
static jinja_node *subscript(jinja_reader *r)
{
    const jinja_token *t = jinja_peek(r);
    jinja_node *n, *first = NULL;

    if (!jinja_is_operator(t, ":")) {
        first = jinja_parse_expression(r);
        if (!jinja_is_operator(jinja_peek(r), ":"))
            return first;
    }
    n = jinja_node_new(r, JINJA_SLICE, t);
    jinja_nodes_add(r, &n->list, first);
    for (int i = 1; i < 3; i++) {
        bool there = jinja_skip_operator(r, ":");

        t = jinja_peek(r);
        jinja_nodes_add(r, &n->list,
                        there && !jinja_is_operator(t, ":") && !jinja_is_operator(t, "]") &&
                                !jinja_is_operator(t, ",")
                            ? jinja_parse_expression(r)
                            : NULL);
    }
    return n;
}

static jinja_node *attribute(jinja_reader *r, jinja_node *of)
{
    const jinja_token *dot = &r->tokens[r->at - 1], *t = jinja_peek(r);
    jinja_node *n;

    if (t->kind == JINJA_CONSTANT && t->value.kind == WF_JINJA_INTEGER) {
        n = jinja_node_of(r, JINJA_ITEM, dot, 0, of, jinja_node_new(r, JINJA_CONST, t));
        n->b->value = t->value;
    } else if (t->kind == JINJA_NAME) {
        n = jinja_node_of(r, JINJA_ATTRIBUTE, dot, 0, of, NULL);
        n->name = t->text;
    } else {
        jinja_unexpected(r, "the name of an attribute");
    }
    r->at++;
    return n;
}

static jinja_node *postfix(jinja_reader *r, jinja_node *n)
{
    for (;;) {
        const jinja_token *t = jinja_peek(r);

        if (jinja_skip_operator(r, ".")) {
            n = attribute(r, n);
        } else if (jinja_skip_operator(r, "[")) {
            n = jinja_node_of(r, JINJA_ITEM, t, 0, n, subscript(r));
            if (jinja_is_operator(jinja_peek(r), ","))
                jinja_refuse(r, WF_EUNSUPPORTED, t->line, t->column,
                             "a subscript of several parts is not supported");
            jinja_expect_operator(r, "]");
        } else if (jinja_is_operator(t, "(")) {
            n = jinja_node_of(r, JINJA_CALL, t, 0, n, NULL);
            arguments(r, &n->args);
        } else {
            return n;
        }
    }
}

/* Parses the name of a filter or a test, which is to be known. */
static jinja_node *named(jinja_reader *r, jinja_node_kind kind, jinja_node *input)
{
    const jinja_token *t = jinja_peek(r);
    jinja_node *n = jinja_node_of(r, kind, t, 0, input, NULL);

    if (t->kind != JINJA_NAME)
        jinja_unexpected(r,
                         kind == JINJA_FILTER ? "the name of a filter" : "the name of a test");
    n->name = t->text;
    n->row = kind == JINJA_FILTER ? jinja_find_filter(t->text) : jinja_find_test(t->text);
    if (!n->row &&
        !r->conditions) /* in an if it is an error where it is reached, as in Jinja */
        jinja_refuse(r, WF_EUNSUPPORTED, t->line, t->column, "the %s %s is not supported",
                     kind == JINJA_FILTER ? "filter" : "test", t->text);
    r->at++;
    return n;
}

jinja_node *jinja_parse_filters(jinja_reader *r, jinja_node *input, bool first)
{
    while (first || jinja_skip_operator(r, "|")) {
        input = named(r, JINJA_FILTER, input);
        if (jinja_is_operator(jinja_peek(r), "("))
            arguments(r, &input->args);
        first = false;
    }
    return input;
}

static jinja_node *test(jinja_reader *r, jinja_node *input)
{
    bool not = jinja_skip_name(r, "not");
    const jinja_token *at = jinja_peek(r), *t;
    jinja_node *n = named(r, JINJA_TEST, input);

    t = jinja_peek(r);
    if (jinja_is_operator(t, "(")) {
        arguments(r, &n->args);
    } else if (jinja_is_name(t, "is")) {
        jinja_unexpected(r, "no second test: tests cannot be chained");
    } else if ((t->kind == JINJA_NAME && !jinja_is_name(t, "else") && !jinja_is_name(t, "or") &&
                !jinja_is_name(t, "and")) ||
               t->kind == JINJA_CONSTANT || jinja_is_operator(t, "[") ||
               jinja_is_operator(t, "{")) {
        jinja_nodes_add(r, &n->args.values, postfix(r, primary(r)));
        n->args.names = jinja_reader_take(r, sizeof *n->args.names);
    }
    return not ? jinja_node_of(r, JINJA_UNARY, at, JINJA_OP_NOT, n, NULL) : n;
}

static jinja_node *filters(jinja_reader *r, jinja_node *n)
{
    for (;;) {
        const jinja_token *t = jinja_peek(r);

        if (jinja_is_operator(t, "|")) {
            n = jinja_parse_filters(r, n, false);
        } else if (jinja_skip_name(r, "is")) {
            n = test(r, n);
        } else if (jinja_is_operator(t, "(")) {
            n = jinja_node_of(r, JINJA_CALL, t, 0, n, NULL);
            arguments(r, &n->args);
        } else {
            return n;
        }
    }
}

static jinja_node *literal(jinja_reader *r, const char *end)
{
    jinja_node *n = jinja_node_new(r, JINJA_LITERAL, jinja_peek(r));

    n->op = *jinja_peek(r)->text;
    r->at++;
    while (!jinja_skip_operator(r, end)) {
        if (n->list.count) {
            jinja_expect_operator(r, ",");
            if (jinja_skip_operator(r, end))
                break;
        }
        jinja_nodes_add(r, &n->list, jinja_parse_expression(r));
        if (n->op == '{') {
            jinja_expect_operator(r, ":");
            jinja_nodes_add(r, &n->list, jinja_parse_expression(r));
        }
    }
    return n;
}

/* Texts that stand side by side are one. */
static jinja_node *constant(jinja_reader *r, const jinja_token *t)
{
    jinja_node *n = jinja_node_new(r, JINJA_CONST, t);

    n->value = t->value;
    r->at++;
    while (n->value.kind == WF_JINJA_TEXT && (t = jinja_peek(r))->kind == JINJA_CONSTANT &&
           t->value.kind == WF_JINJA_TEXT) {
        char *both = jinja_reader_take(r, (size_t)n->value.bytes + t->value.bytes + 1);

        memcpy(both, n->value.text, n->value.bytes);
        memcpy(both + n->value.bytes, t->value.text, t->value.bytes);
        n->value.text = both;
        n->value.bytes += t->value.bytes;
        r->at++;
    }
    if (n->value.kind == WF_JINJA_TEXT)
        jinja_intern(r, n->value.text, n->value.bytes);
    return n;
}

static jinja_node *name(jinja_reader *r, const jinja_token *t)
{
    static const struct {
        const char *name;
        value value;
    } words[] = {{"true", {.kind = WF_JINJA_BOOL, .truth = true}},
                 {"True", {.kind = WF_JINJA_BOOL, .truth = true}},
                 {"false", {.kind = WF_JINJA_BOOL}},
                 {"False", {.kind = WF_JINJA_BOOL}},
                 {"none", {.kind = WF_JINJA_NONE}},
                 {"None", {.kind = WF_JINJA_NONE}}};
    static const char *const refused[] = {"varargs", "kwargs", "caller", "self",
                                          "super",   "lipsum", "cycler", "joiner"};
    jinja_node *n = jinja_node_new(r, JINJA_VARIABLE, t);

    n->name = t->text;
    r->at++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (jinja_is_name(t, words[i].name)) {
            n->kind = JINJA_CONST;
            n->value = words[i].value;
        }
    for (size_t i = r->macros ? 0 : 3; i < sizeof refused / sizeof *refused; i++)
        if (jinja_is_name(t, refused[i]))
            jinja_refuse(r, WF_EUNSUPPORTED, t->line, t->column, "%s is not supported",
                         t->text);
    if (r->tests && jinja_is_name(t, "loop"))
        jinja_refuse(r, WF_EDATA, t->line, t->column,
                     "loop is not there in the condition of a for");
    return n;
}

static jinja_node *primary(jinja_reader *r)
{
    const jinja_token *t = jinja_peek(r);
    jinja_node *n;

    jinja_enter(r);
    if (t->kind == JINJA_NAME) {
        n = name(r, t);
    } else if (t->kind == JINJA_CONSTANT) {
        n = constant(r, t);
    } else if (jinja_skip_operator(r, "(")) {
        if (jinja_skip_operator(r, ")")) {
            n = jinja_node_new(r, JINJA_LITERAL, t);
            n->op = '(';
        } else {
            n = jinja_parse_tuple(r, true);
            jinja_expect_operator(r, ")");
        }
    } else if (jinja_is_operator(t, "[")) {
        n = literal(r, "]");
    } else if (jinja_is_operator(t, "{")) {
        n = literal(r, "}");
    } else {
        jinja_unexpected(r, "an expression");
    }
    jinja_leave(r);
    return n;
}

jinja_node *jinja_parse_unary(jinja_reader *r, bool with_filters)
{
    const jinja_token *t = jinja_peek(r);
    jinja_node *n;

    jinja_enter(r);
    if (jinja_skip_operator(r, "-"))
        n = jinja_node_of(r, JINJA_UNARY, t, '-', jinja_parse_unary(r, false), NULL);
    else if (jinja_skip_operator(r, "+"))
        n = jinja_node_of(r, JINJA_UNARY, t, '+', jinja_parse_unary(r, false), NULL);
    else
        n = primary(r);
    n = postfix(r, n);
    jinja_leave(r);
    return with_filters ? filters(r, n) : n;
}

static bool ends_tuple(const jinja_token *t)
{
    return t->kind == JINJA_VARIABLE_END || t->kind == JINJA_BLOCK_END ||
           jinja_is_operator(t, ")");
}

jinja_node *jinja_parse_tuple(jinja_reader *r, bool conditions)
{
    const jinja_token *t = jinja_peek(r);
    jinja_node *n = conditions ? jinja_parse_expression(r) : jinja_parse_without_condition(r),
               *tuple;

    if (!jinja_is_operator(jinja_peek(r), ","))
        return n;
    tuple = jinja_node_new(r, JINJA_LITERAL, t);
    tuple->op = '(';
    jinja_nodes_add(r, &tuple->list, n);
    while (jinja_skip_operator(r, ",") && !ends_tuple(jinja_peek(r)))
        jinja_nodes_add(r, &tuple->list,
                        conditions ? jinja_parse_expression(r)
                                   : jinja_parse_without_condition(r));
    return tuple;
}

static jinja_node *target(jinja_reader *r, bool attributes)
{
    const jinja_token *t = jinja_peek(r);
    jinja_node *n;

    if (jinja_skip_operator(r, "(")) {
        n = jinja_parse_target(r, attributes);
        jinja_expect_operator(r, ")");
        return n;
    }
    n = primary(r);
    if (n->kind != JINJA_VARIABLE || jinja_is_name(t, "loop"))
        jinja_refuse(r, WF_EDATA, t->line, t->column, "nothing can be assigned to this");
    if (attributes && jinja_skip_operator(r, ".")) {
        const jinja_token *word = jinja_peek(r);

        if (word->kind != JINJA_NAME)
            jinja_unexpected(r, "the name of an attribute");
        n->kind = JINJA_TARGET_ATTRIBUTE;
        n->value = (value){.kind = WF_JINJA_TEXT, .bytes = word->bytes, .text = word->text};
        r->at++;
    }
    return n;
}

jinja_node *jinja_parse_target(jinja_reader *r, bool attributes)
{
    const jinja_token *t = jinja_peek(r);
    jinja_node *n, *tuple;

    jinja_enter(r);
    n = target(r, attributes);
    if (jinja_is_operator(jinja_peek(r), ",")) {
        tuple = jinja_node_new(r, JINJA_LITERAL, t);
        tuple->op = '(';
        jinja_nodes_add(r, &tuple->list, n);
        while (jinja_skip_operator(r, ",") && !ends_tuple(jinja_peek(r)) &&
               !jinja_is_name(jinja_peek(r), "in") && !jinja_is_operator(jinja_peek(r), "="))
            jinja_nodes_add(r, &tuple->list, target(r, attributes));
        n = tuple;
    }
    jinja_leave(r);
    return n;
}
