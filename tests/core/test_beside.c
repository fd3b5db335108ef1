/*
 * tests/core/test_beside.c - two functions of one context that alternate: the order in which
 * they continue, and state of the context that each has of its own.
 *
 * ctest: builds address thread
 */
#include "core/beside.h"
#include "core/trace.h"
#include "tests/core/core_harness.h"

static const double ones[4] = {1, 1, 1, 1};

/* The order of work, a letter each: a and b by the functions, 0 and 1 where one continues. */
typedef struct story {
    wf_context *ctx;
    char text[64];
    int turns[2]; /* waits of each */
    bool good;
} story;

static void add(story *s, char letter)
{
    s->text[strlen(s->text)] = letter;
}

static void first(void *arg)
{
    story *s = arg;

    add(s, 'a');
    for (int i = 0; i < s->turns[0]; i++) {
        wf_beside_turn(s->ctx);
        add(s, 'a');
    }
}

static void second(void *arg)
{
    story *s = arg;

    add(s, 'b');
    for (int i = 0; i < s->turns[1]; i++) {
        wf_beside_turn(s->ctx);
        add(s, 'b');
    }
}

static void turn(void *self, int which)
{
    add(self, which ? '1' : '0');
}

static void in_turns(void)
{
    static const struct {
        int first, second;
        const char *text;
    } rows[] = {{0, 0, "a1b0"},      {1, 0, "a1b0a"},        {0, 1, "a1bb0"},
                {1, 1, "a1b0a1b0"},  {2, 2, "a1b0a1b0a1b0"}, {3, 1, "a1b0a1b0aa"},
                {1, 3, "a1b0a1bbb0"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wf_context *ctx = open_reference(0);
        story s = {.ctx = ctx, .turns = {rows[i].first, rows[i].second}};

        CU_ASSERT_EQUAL(wf_beside_run(ctx, &(wf_beside){.run = {first, second},
                                                        .arg = {&s, &s},
                                                        .turn = turn,
                                                        .self = &s}),
                        WF_OK);
        CU_ASSERT_STRING_EQUAL(s.text, rows[i].text);
        CU_ASSERT_FALSE(wf_beside_waits(ctx));
        wf_beside_turn(ctx); /* nobody is there */
        wf_context_close(ctx);
    }
}

/* Tensors, settings and names of one that the other would else release, record or change. */
static void own_things(story *s, const char *name, double value, wf_memory_kind kind)
{
    wf_context *ctx = s->ctx;
    const double values[4] = {value, value, value, value};
    const char *path = wf_context_enter(ctx, name), *phase = wf_context_phase(ctx, name);
    wf_memory_kind outside = wf_context_memory_kind(ctx, kind);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *t, *sum;

    wf_context_position(ctx, (int64_t)value, wf_context_sequences(ctx));
    wf_scope_open(ctx);
    t = make(ctx, 0, 4, values);
    wf_beside_turn(ctx);
    wf_scope_open(ctx);
    sum = wf_add(t, t);
    wf_beside_turn(ctx);
    sum = wf_scope_return(ctx, sum);
    s->good &= equals(t, 4, values) && ((double *)sum->data)[3] == 2 * value;
    s->good &= wf_context_path(ctx) == name && wf_context_phase_now(ctx) == name;
    s->good &= wf_context_memory_kind_now(ctx) == kind;
    s->good &= wf_context_step(ctx) == (int64_t)value;
    wf_scope_close(ctx);
    s->good &= wf_tape_switch(ctx, NULL) == tape;
    wf_tape_close(tape);
    wf_context_memory_kind(ctx, outside);
    wf_context_phase(ctx, phase);
    wf_context_enter(ctx, path);
}

static void own_first(void *arg)
{
    own_things(arg, "one", 1, WF_MEMORY_GRADIENT);
    own_things(arg, "three", 3, WF_MEMORY_ACTIVATION);
}

/* Leaves a tensor in the outermost scope that it has. */
static void own_second(void *arg)
{
    make(((story *)arg)->ctx, 0, 4, ones);
    own_things(arg, "two", 2, WF_MEMORY_PARAMETER);
}

static void each_has_its_own(void)
{
    wf_context *ctx = open_reference(0);
    story s = {.ctx = ctx, .good = true};
    wf_tensor *outside = make(ctx, 0, 4, ones);
    size_t before = in_use(ctx);

    wf_context_phase(ctx, "before");
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(
            wf_beside_run(ctx, &(wf_beside){.run = {own_first, own_second}, .arg = {&s, &s}}),
            WF_OK);
    CU_ASSERT_TRUE(s.good);
    CU_ASSERT_TRUE(equals(outside, 4, ones));
    CU_ASSERT_EQUAL(in_use(ctx), before);
    CU_ASSERT_STRING_EQUAL(wf_context_phase_now(ctx), "before");
    CU_ASSERT_PTR_NULL(wf_context_path(ctx));
    wf_context_close(ctx);
}

static void phase_first(void *arg)
{
    story *s = arg;

    wf_context_phase(s->ctx, "a");
    wf_context_action(s->ctx, "A");
    first(s);
}

static void phase_second(void *arg)
{
    story *s = arg;

    wf_context_phase(s->ctx, "b");
    wf_context_action(s->ctx, "B");
    second(s);
}

/* Reads from a trace the names of events of a kind, each of which begins where the last one has
   ended, or later. */
static void read_names(const wf_trace *trace, wf_trace_kind kind, char *names)
{
    int64_t end = 0;

    for (int64_t i = 0; i < wf_trace_count(trace); i++) {
        const wf_trace_event *e = wf_trace_at(trace, i);

        if (e->kind != kind)
            continue;
        CU_ASSERT_TRUE(e->start >= end && e->end >= e->start);
        end = e->end;
        names[strlen(names)] = e->name[0];
    }
}

/* A trace has what each did between two turns as a part of its phase and of its action. */
static void traced_in_parts(void)
{
    wf_error error = {WF_OK, ""};
    wf_context *ctx = open_reference(0);
    wf_trace *trace = wf_trace_open(64, &error);
    story s = {.ctx = ctx, .turns = {2, 2}};
    char phases[64] = "", actions[64] = "";

    CU_ASSERT_PTR_NOT_NULL_FATAL(trace);
    wf_context_trace(ctx, trace);
    wf_beside_run(ctx, &(wf_beside){.run = {phase_first, phase_second}, .arg = {&s, &s}});
    wf_context_phase(ctx, NULL);
    wf_context_action(ctx, NULL);
    wf_context_trace(ctx, NULL);
    CU_ASSERT_STRING_EQUAL(s.text, "ababab");
    read_names(trace, WF_TRACE_PHASE, phases);
    read_names(trace, WF_TRACE_ACTION, actions);
    CU_ASSERT_STRING_EQUAL(phases, "abababa");
    CU_ASSERT_STRING_EQUAL(actions, "ABABABA");
    wf_trace_close(trace);
    wf_context_close(ctx);
}

static const wf_extension of_call = {"calls", sizeof(int), .of_call = true};
static const wf_extension of_call_later = {"later", sizeof(int), .of_call = true};
static const wf_extension of_context = {"context", sizeof(int), .of_call = false};

static void count(story *s, int by)
{
    int *call = wf_context_extension(s->ctx, &of_call);
    int *all = wf_context_extension(s->ctx, &of_context);
    int *later = wf_context_extension(s->ctx, &of_call_later);

    for (int i = 0; i < 4; i++) {
        *call += by;
        *later += by;
        *all += by;
        wf_beside_turn(s->ctx);
    }
    s->good &= *call == 5 + 4 * by && *later == 4 * by;
}

static void count_one(void *arg)
{
    count(arg, 1);
}

static void count_ten(void *arg)
{
    count(arg, 10);
}

/* An extension of a call begins as it was for both, and stays as the first has left it; also
   one that neither has used before. */
static void extensions(void)
{
    wf_context *ctx = open_reference(0);
    story s = {.ctx = ctx, .good = true};

    *(int *)wf_context_extension(ctx, &of_call) = 5;
    *(int *)wf_context_extension(ctx, &of_context) = 5;
    wf_beside_run(ctx, &(wf_beside){.run = {count_one, count_ten}, .arg = {&s, &s}});
    CU_ASSERT_TRUE(s.good);
    CU_ASSERT_EQUAL(*(int *)wf_context_extension(ctx, &of_call), 9);
    CU_ASSERT_EQUAL(*(int *)wf_context_extension(ctx, &of_call_later), 4);
    CU_ASSERT_EQUAL(*(int *)wf_context_extension(ctx, &of_context), 49);
    wf_context_close(ctx);
}

static void fails(void *arg)
{
    story *s = arg;

    wf_beside_turn(s->ctx);
    wf_fail(s->ctx, WF_EDATA, "no data");
}

static void nested(void *arg)
{
    story *s = arg;

    wf_beside_run(s->ctx, &(wf_beside){.run = {first, second}, .arg = {s, s}});
}

/* The other one ends, too, and finds the error. */
static void errors(void)
{
    wf_context *ctx = open_reference(0);
    story s = {.ctx = ctx, .turns = {3, 3}};

    CU_ASSERT_EQUAL(wf_beside_run(ctx, &(wf_beside){.run = {first, fails}, .arg = {&s, &s}}),
                    WF_EDATA);
    CU_ASSERT_STRING_EQUAL(s.text, "aaaa");
    CU_ASSERT_TRUE(refused(ctx, WF_EDATA, "no data"));
    wf_beside_run(ctx, &(wf_beside){.run = {nested, second}, .arg = {&s, &s}});
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "a third one has no turn"));
    wf_context_close(ctx);
}

/* Scopes of the debug mode are each one's own, too: who uses a tensor after its scope is
   reported which one that was. */
static void with_handles(void)
{
    const wf_context_options options = {.debug_handles = true};
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_reference_device(&error), &options, &error);
    story s = {.ctx = ctx, .good = true};

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    wf_beside_run(ctx, &(wf_beside){.run = {own_first, own_second}, .arg = {&s, &s}});
    CU_ASSERT_TRUE(s.good);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {
        {"turns", in_turns},
        {"scopes, tape and settings", each_has_its_own},
        {"a trace", traced_in_parts},
        {"extensions", extensions},
        {"errors", errors},
        {"the debug mode of handles", with_handles},
        {NULL, NULL},
    };

    return wf_test_main("beside", tests);
}
