/* nn/text/jinja/evaluate.c - expressions. */
#include "nn/text/jinja/run_internal.h"
#include <math.h>
#include <stdio.h>

static _Noreturn void no_operation(wf_jinja_run *run, const char *op, value a, value b)
{
    if (a.kind == WF_JINJA_UNDEFINED || b.kind == WF_JINJA_UNDEFINED)
        jinja_fail(run, "'%.80s' is undefined", a.kind == WF_JINJA_UNDEFINED ? a.text : b.text);
    jinja_fail(run, "%s of a %s and a %s is not possible", op, jinja_type(a), jinja_type(b));
}

static value joined(wf_jinja_run *run, value a, value b)
{
    const bool markup = a.kind == WF_JINJA_MARKUP || b.kind == WF_JINJA_MARKUP;
    char *data;
    value v;

    if (markup && a.kind == WF_JINJA_TEXT)
        a = jinja_escape(run, a);
    if (markup && b.kind == WF_JINJA_TEXT)
        b = jinja_escape(run, b);
    jinja_work(run, (size_t)a.bytes + b.bytes);
    data = jinja_take(run, (size_t)a.bytes + b.bytes + 1);
    if (a.bytes)
        memcpy(data, a.text, a.bytes);
    if (b.bytes)
        memcpy(data + a.bytes, b.text, b.bytes);
    v = wf_jinja_text(run, data, (size_t)a.bytes + b.bytes);
    v.kind = markup ? WF_JINJA_MARKUP : WF_JINJA_TEXT;
    return v;
}

static value repeated(wf_jinja_run *run, value v, int64_t times)
{
    jinja_builder b = {.run = run};
    value list;

    if (jinja_is_text(v)) {
        for (; times > 0 && v.bytes; times--)
            jinja_build(&b, v.text, v.bytes);
        list = jinja_built(&b);
        list.kind = v.kind;
        return list;
    }
    list = jinja_list_of(run, v.kind, 4);
    for (; times > 0 && v.list->count; times--)
        for (size_t i = 0; i < v.list->count; i++) {
            jinja_work(run, 0);
            wf_jinja_list_add(run, list, v.list->items[i]);
        }
    return list;
}

static _Noreturn void too_large(wf_jinja_run *run)
{
    jinja_unsupported(run, "whole numbers beyond 64 bits are not supported");
}

static value power(wf_jinja_run *run, int64_t base, int64_t exponent)
{
    int64_t result = 1;

    for (; exponent > 0; exponent--) {
        jinja_work(run, 0);
        if (__builtin_mul_overflow(result, base, &result))
            too_large(run);
        if (result == 0 || base == 1)
            break;
    }
    return wf_jinja_integer(result);
}

static value whole(wf_jinja_run *run, int op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool over = false;

    if ((op == JINJA_OP_FLOOR || op == '%') && b == 0)
        jinja_fail(run, "division by zero");
    if (op == '+')
        over = __builtin_add_overflow(a, b, &result);
    else if (op == '-')
        over = __builtin_sub_overflow(a, b, &result);
    else if (op == '*')
        over = __builtin_mul_overflow(a, b, &result);
    else if (b == -1)
        over = op == JINJA_OP_FLOOR && __builtin_sub_overflow((int64_t)0, a, &result);
    else if (op == JINJA_OP_FLOOR)
        result = a / b - (a % b != 0 && (a < 0) != (b < 0));
    else
        result = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    if (over)
        too_large(run);
    return wf_jinja_integer(result);
}

static value real(wf_jinja_run *run, int op, double a, double b)
{
    double rest;

    if ((op == '/' || op == JINJA_OP_FLOOR || op == '%') && b == 0)
        jinja_fail(run, "division by zero");
    switch (op) {
    case '+':
        return wf_jinja_real(a + b);
    case '-':
        return wf_jinja_real(a - b);
    case '*':
        return wf_jinja_real(a * b);
    case '/':
        return wf_jinja_real(a / b);
    case JINJA_OP_POWER:
        if (a < 0 && b != floor(b))
            jinja_unsupported(run, "complex numbers are not supported");
        return wf_jinja_real(pow(a, b));
    default:
        rest = fmod(a, b);
        if (rest != 0 && (rest < 0) != (b < 0))
            rest += b;
        return wf_jinja_real(op == '%' ? rest : round((a - rest) / b));
    }
}

static const char *spelled(int op)
{
    return op == '+'              ? "+"
           : op == '-'            ? "-"
           : op == '*'            ? "*"
           : op == '/'            ? "/"
           : op == '%'            ? "%"
           : op == JINJA_OP_FLOOR ? "//"
                                  : "**";
}

value jinja_binary(wf_jinja_run *run, int op, value a, value b)
{
    value list;

    if (op == '~') {
        const value left = jinja_string(run, a), right = jinja_string(run, b);

        return joined(run,
                      (value){.kind = WF_JINJA_TEXT, .bytes = left.bytes, .text = left.text},
                      (value){.kind = WF_JINJA_TEXT, .bytes = right.bytes, .text = right.text});
    }
    if (op == '+' && jinja_is_text(a) && jinja_is_text(b))
        return joined(run, a, b);
    if (op == '%' && a.kind == WF_JINJA_TEXT)
        return jinja_formatted(run, a, b);
    if (op == '+' && a.kind == b.kind &&
        (a.kind == WF_JINJA_LIST || a.kind == WF_JINJA_TUPLE)) {
        list = repeated(run, a, 1);
        for (size_t i = 0; i < b.list->count; i++) {
            jinja_work(run, 0);
            wf_jinja_list_add(run, list, b.list->items[i]);
        }
        return list;
    }
    if (op == '*' && jinja_is_integer(b) &&
        (jinja_is_text(a) || a.kind == WF_JINJA_LIST || a.kind == WF_JINJA_TUPLE))
        return repeated(run, a, jinja_integer_of(b));
    if (op == '*' && jinja_is_integer(a) &&
        (jinja_is_text(b) || b.kind == WF_JINJA_LIST || b.kind == WF_JINJA_TUPLE))
        return repeated(run, b, jinja_integer_of(a));
    if (!jinja_is_number(a) || !jinja_is_number(b))
        no_operation(run, spelled(op), a, b);
    if (jinja_is_integer(a) && jinja_is_integer(b) && op == JINJA_OP_POWER &&
        jinja_integer_of(b) >= 0)
        return power(run, jinja_integer_of(a), jinja_integer_of(b));
    if (jinja_is_integer(a) && jinja_is_integer(b) && op != '/' && op != JINJA_OP_POWER)
        return whole(run, op, jinja_integer_of(a), jinja_integer_of(b));
    return real(run, op, jinja_real_of(a), jinja_real_of(b));
}

value jinja_unary(wf_jinja_run *run, int op, value a)
{
    if (op == JINJA_OP_NOT)
        return wf_jinja_bool(!jinja_truth(run, a));
    if (!jinja_is_number(a))
        no_operation(run, spelled(op), a, wf_jinja_integer(0));
    if (a.kind == WF_JINJA_REAL)
        return wf_jinja_real(op == '-' ? -a.real : a.real);
    return whole(run, op, 0, jinja_integer_of(a));
}

bool jinja_compare(wf_jinja_run *run, int op, value a, value b)
{
    const bool nan = (a.kind == WF_JINJA_REAL && isnan(a.real)) ||
                     (b.kind == WF_JINJA_REAL && isnan(b.real));

    switch (op) {
    case JINJA_OP_EQ:
        return jinja_equal(run, a, b);
    case JINJA_OP_NE:
        return !jinja_equal(run, a, b);
    case JINJA_OP_IN:
        return jinja_contains(run, b, a);
    case JINJA_OP_NOT_IN:
        return !jinja_contains(run, b, a);
    case '<':
        return jinja_order(run, a, b) < 0 && !nan;
    case '>':
        return jinja_order(run, a, b) > 0 && !nan;
    case JINJA_OP_LE:
        return jinja_order(run, a, b) <= 0 && !nan;
    default:
        return jinja_order(run, a, b) >= 0 && !nan;
    }
}

static value compare(wf_jinja_run *run, const jinja_node *n)
{
    value left = jinja_evaluate(run, n->a);

    for (uint32_t i = 0; i < n->list.count; i++) {
        value right = jinja_evaluate(run, n->list.node[i]->a);

        run->at = n->list.node[i];
        if (!jinja_compare(run, n->list.node[i]->op, left, right))
            return wf_jinja_bool(false);
        left = right;
    }
    return wf_jinja_bool(true);
}

static value variable(wf_jinja_run *run, const char *name)
{
    const jinja_function *function;

    for (const jinja_scope *s = run->scope; s; s = s->parent)
        for (const jinja_variable *v = s->variables; v; v = v->next)
            if (v->name == name)
                return v->value;
    function = jinja_find_function(name);
    return function ? (value){.kind = WF_JINJA_FUNCTION, .function = function}
                    : jinja_undefined(name);
}

static value literal(wf_jinja_run *run, const jinja_node *n)
{
    value v = n->op == '{' ? wf_jinja_dict(run)
                           : jinja_list_of(run, n->op == '(' ? WF_JINJA_TUPLE : WF_JINJA_LIST,
                                           n->list.count);

    for (uint32_t i = 0; i < n->list.count; i++) {
        value item = jinja_evaluate(run, n->list.node[i]);

        if (n->op == '{')
            wf_jinja_dict_set(run, v, item, jinja_evaluate(run, n->list.node[++i]));
        else
            wf_jinja_list_add(run, v, item);
    }
    return v;
}

static value item(wf_jinja_run *run, const jinja_node *n)
{
    value of = jinja_evaluate(run, n->a), part[3];

    if (n->b->kind != JINJA_SLICE) {
        part[0] = jinja_evaluate(run, n->b);
        run->at = n;
        return jinja_item(run, of, part[0]);
    }
    for (int i = 0; i < 3; i++)
        part[i] =
            n->b->list.node[i] ? jinja_evaluate(run, n->b->list.node[i]) : wf_jinja_none();
    run->at = n;
    return jinja_slice(run, of, part);
}

static value call(wf_jinja_run *run, const jinja_node *n)
{
    value *values = jinja_take(run, (n->args.values.count + 1) * sizeof *values),
          of = {.kind = WF_JINJA_MISSING};
    const jinja_args args = {values, n->args.names, n->args.values.count};

    if (n->kind != JINJA_CALL && !n->row)
        jinja_unsupported(run, "the %s %s is not supported",
                          n->kind == JINJA_FILTER ? "filter" : "test", n->name);
    if (n->a)
        of = jinja_evaluate(run, n->a);
    for (uint32_t i = 0; i < n->args.values.count; i++)
        values[i] = jinja_evaluate(run, n->args.values.node[i]);
    run->at = n;
    return n->kind == JINJA_CALL ? jinja_call_value(run, of, &args)
                                 : jinja_call_row(run, n->row, of, &args);
}

value jinja_evaluate(wf_jinja_run *run, const jinja_node *n)
{
    value v, other;

    jinja_work(run, 0);
    jinja_deeper(run);
    run->at = n;
    switch (n->kind) {
    case JINJA_CONST:
        v = n->value;
        break;
    case JINJA_VARIABLE:
        v = variable(run, n->name);
        break;
    case JINJA_LITERAL:
        v = literal(run, n);
        break;
    case JINJA_ATTRIBUTE:
        v = jinja_evaluate(run, n->a);
        run->at = n;
        v = jinja_attribute(run, v, n->name);
        break;
    case JINJA_ITEM:
        v = item(run, n);
        break;
    case JINJA_CALL:
    case JINJA_FILTER:
    case JINJA_TEST:
        v = call(run, n);
        break;
    case JINJA_UNARY:
        v = jinja_evaluate(run, n->a);
        run->at = n;
        v = jinja_unary(run, n->op, v);
        break;
    case JINJA_BINARY:
        v = jinja_evaluate(run, n->a);
        other = jinja_evaluate(run, n->b);
        run->at = n;
        v = jinja_binary(run, n->op, v, other);
        break;
    case JINJA_COMPARE:
        v = compare(run, n);
        break;
    case JINJA_AND:
    case JINJA_OR:
        v = jinja_evaluate(run, n->a);
        if (jinja_truth(run, v) == (n->kind == JINJA_AND))
            v = jinja_evaluate(run, n->b);
        break;
    case JINJA_CONDITIONAL:
        if (jinja_truth(run, jinja_evaluate(run, n->b)))
            v = jinja_evaluate(run, n->a);
        else
            v = n->c ? jinja_evaluate(run, n->c) : jinja_undefined("the else of an inline if");
        break;
    default:
        jinja_fail(run, "this is no expression");
    }
    run->depth--;
    return v;
}
