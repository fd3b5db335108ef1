/*
 * nn/text/chat/chat.h - conversations as the text, and the token ids, that a model was trained
 * on: its own chat template is rendered.
 *
 *     wf_chat_template_open(&(wf_chat_options){.tokenizer = "smollm2"}, &template, &error);
 *     wf_chat_writer_new(template, &writer, &error);
 *     wf_chat_row_read(template, "line 1", line, bytes, &row, &error);
 *     wf_chat_write(writer, row, WF_CHAT_ASSISTANT, 0, &written, &error);
 *     wf_chat_encode(encoder, &written, &ids, &trained, &error);
 */
#ifndef WF_NN_TEXT_CHAT_CHAT_H
#define WF_NN_TEXT_CHAT_CHAT_H

#include "nn/text/tokenizer/tokenizer.h"

WF_BEGIN_DECLS

typedef struct wf_chat_template wf_chat_template;

typedef struct wf_chat_options {
    /* a folder, or a file in one, with a template and special tokens; NULL: none */
    const char *tokenizer;
    /* a template of the folder, one of templates.def, or a file of Jinja; NULL: the folder's */
    const char *name;
    const char *variables; /* an object of JSON: variables of the template; NULL: none */
    /* fields of rows and messages that may be left out, with commas between; NULL: none */
    const char *ignored;
} wf_chat_options;

/**
 * wf_chat_template_open - finds a template and compiles it; where the folder has one that is
 * called "tool_use" and no name is given, conversations with tools are written by that one
 *
 * Owner:   the caller, wf_chat_template_close
 * Errors:  WF_EINVAL (no such template; the text says which there are), WF_EDATA,
 *          WF_EUNSUPPORTED (file, line, column), WF_EIO, WF_ENOMEM
 */
WF_API wf_status wf_chat_template_open(const wf_chat_options *options, wf_chat_template **t,
                                       wf_error *error);
WF_API void wf_chat_template_close(wf_chat_template *t);

/** wf_chat_template_name - returns a name of templates.def, or the file of the template. Owner:
 * the template. */
WF_API const char *wf_chat_template_name(const wf_chat_template *t);

/** wf_chat_is_ignored - returns true for a field that the options ignore */
WF_API bool wf_chat_is_ignored(const wf_chat_template *t, const char *field, size_t bytes);

/** wf_chat_is_harmless - returns true for a field of a row that trains nothing: id, source,
 * metadata, .. */
WF_API bool wf_chat_is_harmless(const char *field);

/* A line of chat data. */
typedef struct wf_chat_row wf_chat_row;

/**
 * wf_chat_row_read - reads {"messages": [{"role", "content", ..}, ..]}, or {"prompt",
 * "completion"}, whose values are such lists, or what a user says and what the assistant
 * answers; of these two the completion alone is trained
 *
 * Beside them a row may have "tools", "documents" and "chat_template_kwargs" (variables of the
 * template), and fields that train nothing (id, source, metadata, ..). A message may have
 * "weight" (0 or 1) or "train", which say whether it is trained, and what its template reads.
 * Any other field is refused, unless the template's options say to ignore it.
 *
 * @param name  of the line, for errors
 * Owner:   the caller, wf_chat_row_free
 * Errors:  WF_EDATA (name and key), WF_EUNSUPPORTED (a field or a role that is not known),
 *          WF_ENOMEM; *row is then NULL
 */
WF_API wf_status wf_chat_row_read(const wf_chat_template *t, const char *name, const char *text,
                                  size_t bytes, wf_chat_row **row, wf_error *error);

/** wf_chat_row_free - frees a row; NULL is allowed. */
WF_API void wf_chat_row_free(wf_chat_row *row);

/* A part of a text that is trained. */
typedef struct wf_chat_span {
    size_t begin, end;
} wf_chat_span;

/* Zero-initialise it; it grows as needed and may be reused. */
typedef struct wf_chat_written {
    wf_tok_bytes text;
    wf_chat_span *spans;
    size_t count, room;
    bool exact; /* spans end as turns do: generation blocks define them */
} wf_chat_written;

/** wf_chat_written_free - frees what it has grown to and zeroes it. */
WF_API void wf_chat_written_free(wf_chat_written *written);

/* The form in which a conversation is written, and the parts of it that are trained. */
typedef enum wf_chat_train {
    WF_CHAT_PROMPT,    /* the text asks for an answer at its end; nothing is trained */
    WF_CHAT_ASSISTANT, /* all that assistants say, with the end of each turn */
    WF_CHAT_LAST,      /* the last of it */
    /* a text of each turn of an assistant, which ends with it and of which it is trained */
    WF_CHAT_EACH,
    WF_CHAT_ALL /* the whole text */
} wf_chat_train;

/* The state of a thread that writes. */
typedef struct wf_chat_writer wf_chat_writer;

/** wf_chat_writer_new - makes a writer, one per thread. Owner: the caller, wf_chat_writer_free,
 * before the template is closed */
WF_API wf_status wf_chat_writer_new(const wf_chat_template *t, wf_chat_writer **writer,
                                    wf_error *error);
WF_API void wf_chat_writer_free(wf_chat_writer *writer);

/** wf_chat_parts - returns the number of texts of a row: more than one with WF_CHAT_EACH */
WF_API size_t wf_chat_parts(const wf_chat_row *row, wf_chat_train train);

/**
 * wf_chat_write - writes a part of a row, replacing the content of `written`
 *
 * A template with generation blocks says what is trained. Without them it is what an answer
 * adds to the text that asks for it: the conversation is rendered up to each turn, and each of
 * these texts has to begin the next one.
 *
 * Errors: WF_EDATA (what the template refuses; a row of which nothing is trained; a template
 *         that writes a turn in another way once others follow), WF_EUNSUPPORTED (a field that
 *         the template does not read), WF_ENOMEM
 */
WF_API wf_status wf_chat_write(wf_chat_writer *writer, const wf_chat_row *row,
                               wf_chat_train train, size_t part, wf_chat_written *written,
                               wf_error *error);

/**
 * wf_chat_encode - appends its ids; special tokens in the text are encoded as such
 *
 * @param trained  NULL, or gets a 1 for each id that begins in a span, or at its begin, else a
 *                 0; of a span that is not exact, white space after the special token that ends
 *                 a turn is not trained
 * Errors: WF_EDATA, WF_ENOMEM
 */
WF_API wf_status wf_chat_encode(wf_tok_encoder *encoder, const wf_chat_written *written,
                                wf_tok_ids *ids, wf_tok_ids *trained, wf_error *error);

WF_END_DECLS

#endif
