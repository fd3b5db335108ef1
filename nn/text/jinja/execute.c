/* nn/text/jinja/execute.c - statements. A scope has what is set in it: each iteration of a
   loop, a macro and a block have one. */
#include "nn/text/jinja/run_internal.h"
#include <stdlib.h>

typedef enum outcome { DONE, BROKEN, CONTINUED } outcome;

static outcome execute(wf_jinja_run *run, const jinja_nodes *body);

void jinja_set(wf_jinja_run *run, const char *name, value v)
{
    jinja_variable *variable;

    for (variable = run->scope->variables; variable; variable = variable->next)
        if (variable->name == name) {
            variable->value = v;
            return;
        }
    variable = jinja_take(run, sizeof *variable);
    *variable = (jinja_variable){name, v, run->scope->variables};
    run->scope->variables = variable;
}

static jinja_scope *enter(wf_jinja_run *run, jinja_scope *parent)
{
    jinja_scope *before = run->scope;

    run->scope = jinja_take(run, sizeof *run->scope);
    run->scope->parent = parent;
    return before;
}

/* Sets a variable, several of them to the items of a value, or an attribute of a namespace. */
static void assign(wf_jinja_run *run, const jinja_node *target, value v)
{
    const jinja_list *list;
    value space;

    if (target->kind == JINJA_VARIABLE) {
        jinja_set(run, target->name, v);
        return;
    }
    if (target->kind == JINJA_TARGET_ATTRIBUTE) {
        space = jinja_evaluate(run, &(jinja_node){.kind = JINJA_VARIABLE,
                                                  .name = target->name,
                                                  .line = target->line,
                                                  .column = target->column});
        run->at = target;
        if (space.kind != WF_JINJA_NAMESPACE)
            jinja_fail(run, "%s is no namespace: attributes of a namespace alone can be set",
                       target->name);
        if (target->value.text[0] == '_')
            jinja_fail(run, "a namespace cannot have attributes that begin with _");
        wf_jinja_dict_set(run, space, target->value, v);
        return;
    }
    run->at = target;
    list = jinja_iterate(run, v);
    if (list->count != target->list.count)
        jinja_fail(run, "%zu values cannot be assigned to %u names", list->count,
                   target->list.count);
    for (uint32_t i = 0; i < target->list.count; i++)
        assign(run, target->list.node[i], list->items[i]);
}

/* Executes a body in a scope of its own and returns what it writes. */
static value capture(wf_jinja_run *run, const jinja_nodes *body)
{
    const size_t begin = run->out_bytes;
    jinja_scope *before = enter(run, run->scope);
    value text;

    run->captures++;
    execute(run, body);
    run->captures--;
    run->scope = before;
    text = jinja_text_copy(run, run->out + begin, run->out_bytes - begin);
    run->out_bytes = begin;
    return text;
}

/* Applies a chain of filters, at the head of which is a value. */
static value filtered(wf_jinja_run *run, const jinja_node *n, value v)
{
    jinja_node head = {.kind = JINJA_CONST, .value = v}, copy;

    if (!n)
        return v;
    head.line = n->line;
    head.column = n->column;
    copy = *n;
    if (n->a)
        head.value = filtered(run, n->a, v);
    copy.a = &head;
    v = jinja_evaluate(run, &copy);
    run->at = n;
    return v;
}

value jinja_call_macro(wf_jinja_run *run, const jinja_macro *macro, const jinja_args *args)
{
    const jinja_nodes *parameters = &macro->node->list;
    jinja_scope *before;
    value text, *bound = jinja_take(run, (parameters->count + 1) * sizeof *bound);

    for (uint32_t i = 0; i < parameters->count; i++)
        bound[i] = (value){.kind = WF_JINJA_MISSING};
    for (size_t i = 0; i < args->count; i++) {
        uint32_t number = (uint32_t)i;

        if (args->names && args->names[i])
            for (number = 0; number < parameters->count; number++)
                if (parameters->node[number]->name == args->names[i])
                    break;
        if (number >= parameters->count)
            jinja_fail(run, "the macro %s takes no such argument: %s", macro->node->name,
                       args->names && args->names[i] ? args->names[i] : "there are too many");
        if (bound[number].kind != WF_JINJA_MISSING)
            jinja_fail(run, "the macro %s has two values for %s", macro->node->name,
                       args->names[i]);
        bound[number] = args->values[i];
    }
    jinja_deeper(run);
    before = enter(run, macro->scope);
    for (uint32_t i = 0; i < parameters->count; i++) {
        const jinja_node *p = parameters->node[i];

        if (bound[i].kind == WF_JINJA_MISSING)
            bound[i] = p->a ? jinja_evaluate(run, p->a) : jinja_undefined(p->name);
        jinja_set(run, p->name, bound[i]);
    }
    text = capture(run, &macro->node->body);
    run->scope = before;
    run->depth--;
    return text;
}

/* Returns the items of a loop: those of which its condition is true. */
static const jinja_list *items_of(wf_jinja_run *run, const jinja_node *n)
{
    const jinja_list *all;
    value some = jinja_evaluate(run, n->b);

    run->at = n;
    all = jinja_iterate(run, some);
    if (!n->c)
        return all;
    some = jinja_list_of(run, WF_JINJA_LIST, 4);
    for (size_t i = 0; i < all->count; i++) {
        jinja_scope *before = enter(run, run->scope);

        assign(run, n->a, all->items[i]);
        if (jinja_truth(run, jinja_evaluate(run, n->c)))
            wf_jinja_list_add(run, some, all->items[i]);
        run->scope = before;
    }
    return some.list;
}

static outcome execute_for(wf_jinja_run *run, const jinja_node *n, const char *loop_name)
{
    const jinja_list *items = items_of(run, n);
    jinja_loop *loop = jinja_take(run, sizeof *loop);
    jinja_scope *before = run->scope;
    outcome out = DONE;

    *loop = (jinja_loop){
        .items = items->items, .count = items->count, .changed = {.kind = WF_JINJA_MISSING}};
    for (; loop->at < items->count && out != BROKEN; loop->at++) {
        jinja_work(run, 0);
        enter(run, before);
        if (loop_name)
            jinja_set(run, loop_name, (value){.kind = WF_JINJA_LOOP, .loop = loop});
        assign(run, n->a, items->items[loop->at]);
        out = execute(run, &n->body);
    }
    out = DONE;
    if (items->count == 0) { /* break and continue in it are those of the loop around */
        enter(run, before);
        out = execute(run, &n->other);
    }
    run->scope = before;
    return out;
}

static void execute_generation(wf_jinja_run *run, const jinja_node *n)
{
    const size_t begin = run->out_bytes;
    jinja_scope *before = enter(run, run->scope);

    if (run->captures)
        jinja_unsupported(run, "a generation block in a macro, a filter or a set block is not "
                               "supported: transformers "
                               "does not find its text, either");
    run->captures++;
    execute(run, &n->body);
    run->captures--;
    run->scope = before;
    if (run->span_count == run->span_room) {
        size_t room = 2 * run->span_room + 16;
        wf_jinja_span *spans = realloc(run->spans, room * sizeof *spans);

        if (!spans)
            wf_jinja_abort(run, WF_ENOMEM, "no memory for spans");
        run->spans = spans;
        run->span_room = room;
    }
    run->spans[run->span_count++] = (wf_jinja_span){begin, run->out_bytes};
}

static void define(wf_jinja_run *run, const jinja_node *n)
{
    jinja_macro *macro = jinja_take(run, sizeof *macro);

    *macro = (jinja_macro){n, run->scope};
    jinja_set(run, n->name, (value){.kind = WF_JINJA_MACRO, .macro = macro});
}

static outcome execute_one(wf_jinja_run *run, const jinja_node *n)
{
    value v;

    switch (n->kind) {
    case JINJA_WRITE:
        jinja_put(run, n->value.text, n->value.bytes);
        return DONE;
    case JINJA_PRINT:
        v = jinja_evaluate(run, n->a);
        run->at = n;
        v = jinja_string(run, v);
        jinja_put(run, v.text, v.bytes);
        return DONE;
    case JINJA_IF:
        return execute(run, jinja_truth(run, jinja_evaluate(run, n->a)) ? &n->body : &n->other);
    case JINJA_FOR:
        return execute_for(run, n, jinja_find_word(run->template, "loop", 4));
    case JINJA_SET:
        assign(run, n->a, jinja_evaluate(run, n->b));
        return DONE;
    case JINJA_SET_BLOCK:
        assign(run, n->a, filtered(run, n->b, capture(run, &n->body)));
        return DONE;
    case JINJA_FILTER_BLOCK:
        v = jinja_string(run, filtered(run, n->b, capture(run, &n->body)));
        jinja_put(run, v.text, v.bytes);
        return DONE;
    case JINJA_DEFINE:
        define(run, n);
        return DONE;
    case JINJA_GENERATION:
        execute_generation(run, n);
        return DONE;
    case JINJA_BREAK:
        return BROKEN;
    case JINJA_CONTINUE:
        return CONTINUED;
    default:
        jinja_fail(run, "this is no statement");
    }
}

static outcome execute(wf_jinja_run *run, const jinja_nodes *body)
{
    outcome out = DONE;

    jinja_deeper(run);
    for (uint32_t i = 0; i < body->count && out == DONE; i++) {
        run->at = body->node[i];
        jinja_work(run, 0);
        out = execute_one(run, body->node[i]);
    }
    run->depth--;
    return out;
}

void jinja_execute_template(wf_jinja_run *run)
{
    execute(run, &run->template->body);
}
