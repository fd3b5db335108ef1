/* nn/text/jinja/ast_internal.h - a template as tokens, and as a tree. */
#ifndef WF_NN_TEXT_JINJA_AST_INTERNAL_H
#define WF_NN_TEXT_JINJA_AST_INTERNAL_H

#include "nn/text/jinja/arena_internal.h"
#include "nn/text/jinja/jinja_internal.h"
#include <setjmp.h>

typedef enum jinja_token_kind {
    JINJA_END,
    JINJA_DATA,           /* text outside of tags */
    JINJA_BLOCK_BEGIN,    /* {% */
    JINJA_BLOCK_END,      /* %} */
    JINJA_VARIABLE_BEGIN, /* {{ */
    JINJA_VARIABLE_END,   /* }} */
    JINJA_NAME,
    JINJA_CONSTANT, /* a text or a number */
    JINJA_OPERATOR
} jinja_token_kind;

typedef struct jinja_token {
    jinja_token_kind kind;
    uint32_t line, column; /* from 1 on */
    const char *text;      /* as it stands there; of a name: interned */
    uint32_t bytes;
    wf_jinja_value value; /* a constant or data */
} jinja_token;

typedef enum jinja_node_kind {
    /* Expressions. */
    JINJA_CONST,     /* value */
    JINJA_VARIABLE,  /* name */
    JINJA_LITERAL,   /* list: op '[', '(' or '{' (keys and values alternate) */
    JINJA_ATTRIBUTE, /* a.name */
    JINJA_ITEM,      /* a[b] */
    JINJA_SLICE,     /* list[0]:list[1]:list[2], of which each may be NULL */
    JINJA_CALL,      /* a(args) */
    /* a | row(args); a is NULL at the head of a filter of set; row NULL: there is none */
    JINJA_FILTER,
    JINJA_TEST,        /* a is row(args) */
    JINJA_UNARY,       /* op a */
    JINJA_BINARY,      /* a op b */
    JINJA_COMPARE,     /* a, then a chain of `list` with `op` in each node */
    JINJA_AND,         /* a and b */
    JINJA_OR,          /* a or b */
    JINJA_CONDITIONAL, /* a if b else c; c may be NULL */
    /* Statements. */
    JINJA_PRINT,        /* a */
    JINJA_WRITE,        /* value: data */
    JINJA_IF,           /* a, body, other */
    JINJA_FOR,          /* target a, in b, if c; body, other */
    JINJA_SET,          /* target a, value b */
    JINJA_SET_BLOCK,    /* target a, filters b, body */
    JINJA_DEFINE,       /* macro name; list: parameters (a NULL or its standard), body */
    JINJA_GENERATION,   /* body */
    JINJA_FILTER_BLOCK, /* filters b, body */
    JINJA_BREAK,
    JINJA_CONTINUE,
    JINJA_TARGET_ATTRIBUTE /* name.attribute; `value` is the attribute's name */
} jinja_node_kind;

typedef struct jinja_node jinja_node;

typedef struct jinja_nodes {
    jinja_node **node;
    uint32_t count, room;
} jinja_nodes;

/* Arguments as they are written: names[i] is NULL for those without a name, which come
   first. */
typedef struct jinja_call {
    jinja_nodes values;
    const char **names;
} jinja_call;

struct jinja_node {
    jinja_node_kind kind;
    int op; /* a character, or one of jinja_operator */
    uint32_t line, column;
    const char *name; /* interned, with an end */
    wf_jinja_value value;
    jinja_node *a, *b, *c;
    jinja_nodes list, body, other;
    jinja_call args;
    const struct jinja_row *row;
};

/* Operators of more than one character, and words. */
typedef enum jinja_operator {
    JINJA_OP_EQ = 256,
    JINJA_OP_NE,
    JINJA_OP_LE,
    JINJA_OP_GE,
    JINJA_OP_FLOOR,
    JINJA_OP_POWER,
    JINJA_OP_IN,
    JINJA_OP_NOT_IN,
    JINJA_OP_NOT
} jinja_operator;

/* A text that is there once: names are compared by address. */
typedef struct jinja_word {
    struct jinja_word *next;
    uint32_t bytes;
    char text[];
} jinja_word;

enum { JINJA_BUCKETS = 256, JINJA_MOST_SOURCE = 1 << 22, JINJA_MOST_NESTING = 150 };

struct wf_jinja {
    jinja_arena arena;
    const char *name;
    jinja_word *words[JINJA_BUCKETS];
    jinja_nodes body;
    bool marks;
};

/* A template that is being read. */
typedef struct jinja_reader {
    wf_jinja *template;
    wf_error *error;
    jmp_buf jump;
    const char *source;
    size_t bytes;
    jinja_token *tokens;
    uint32_t count, room, at;
    int nesting, loops, macros, tests, conditions;
} jinja_reader;

void *jinja_reader_take(jinja_reader *r, size_t bytes);
const char *jinja_intern(jinja_reader *r, const char *text, size_t bytes);
/* Returns a template's own copy of a word; NULL: it has none. */
const char *jinja_find_word(const wf_jinja *t, const char *text, size_t bytes);
_Noreturn void jinja_refuse(jinja_reader *r, wf_status status, uint32_t line, uint32_t column,
                            const char *format, ...) WF_PRINTF(5, 6);

/* Reads a text constant without its quotes into `data`, which has as many bytes; NULL, or what
   is wrong with it. */
const char *jinja_unescape(const char *text, size_t bytes, char *data, size_t *written);

bool jinja_is_utf8(const char *text, size_t bytes);

/* Reads the tokens of a source. */
void jinja_lex(jinja_reader *r);

/* Parsing: looking at the next token, and taking it. */
const jinja_token *jinja_peek(const jinja_reader *r);
bool jinja_is_operator(const jinja_token *t, const char *text);
bool jinja_is_name(const jinja_token *t, const char *text);
bool jinja_skip_operator(jinja_reader *r, const char *text);
bool jinja_skip_name(jinja_reader *r, const char *text);
void jinja_expect_operator(jinja_reader *r, const char *text);
_Noreturn void jinja_unexpected(jinja_reader *r, const char *wanted);
jinja_node *jinja_node_new(jinja_reader *r, jinja_node_kind kind, const jinja_token *at);
void jinja_nodes_add(jinja_reader *r, jinja_nodes *nodes, jinja_node *node);
void jinja_enter(jinja_reader *r); /* one level deeper; JINJA_MOST_NESTING is the limit */
void jinja_leave(jinja_reader *r);

jinja_node *jinja_node_of(jinja_reader *r, jinja_node_kind kind, const jinja_token *at, int op,
                          jinja_node *a, jinja_node *b);
/* Parses an operand: a value with a sign, what follows it, and where they may stand, filters
   and tests. */
jinja_node *jinja_parse_unary(jinja_reader *r, bool with_filters);

/* Expressions; a tuple needs no parentheses. */
jinja_node *jinja_parse_expression(jinja_reader *r);
jinja_node *jinja_parse_without_condition(
    jinja_reader *r); /* without `x if y else z` at the top */
jinja_node *jinja_parse_tuple(jinja_reader *r, bool conditions);
jinja_node *jinja_parse_target(jinja_reader *r, bool attributes);
jinja_node *jinja_parse_filters(jinja_reader *r, jinja_node *input, bool first);

/* Statements, up to the end of the source. */
void jinja_parse(jinja_reader *r);

#endif
