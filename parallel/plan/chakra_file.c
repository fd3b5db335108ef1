/* parallel/plan/chakra_file.c - see the header. Attributes have the types that readers of
   MLCommons and ASTRA-sim take them by. */
#include "parallel/plan/chakra_file_internal.h"

#if WEFT_HAS_PROTOBUF_C
#include <chakra.pb-c.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef ChakraProtoMsg__Node pb_node;
typedef ChakraProtoMsg__AttributeProto pb_attribute;

enum { MOST_ATTRIBUTES = 8, GROUP_TEXT = 16, LENGTH = 10 };
static const uint64_t NONE = UINT64_MAX;

/* A node of the record as a message of the schema. */
typedef struct message {
    pb_node node;
    pb_attribute attribute[MOST_ATTRIBUTES], *list[MOST_ATTRIBUTES];
    char group[GROUP_TEXT];
} message;

typedef struct file {
    wf_output *file;
    const wf_step_record *record;
    int rank;
    double now,
        shown; /* seconds of what was written, and those that whole microseconds have shown */
    uint64_t
        *last; /* [node of the record] its number here, or the last of those that it becomes */
    uint64_t next;    /* number */
    uint64_t *number; /* room for the numbers that a node waits for, and one more */
    uint8_t *bytes;
    size_t room;
} file;

static pb_attribute *attribute(message *m, const char *name, int type)
{
    pb_attribute *a = &m->attribute[m->node.n_attr];

    chakra_proto_msg__attribute_proto__init(a);
    a->name = (char *)name;
    a->value_case = (ChakraProtoMsg__AttributeProto__ValueCase)type;
    m->list[m->node.n_attr++] = a;
    return a;
}

static void put_int32(message *m, const char *name, int value)
{
    attribute(m, name, CHAKRA_PROTO_MSG__ATTRIBUTE_PROTO__VALUE_INT32_VAL)->int32_val = value;
}

static void put_int64(message *m, const char *name, int64_t value)
{
    attribute(m, name, CHAKRA_PROTO_MSG__ATTRIBUTE_PROTO__VALUE_INT64_VAL)->int64_val = value;
}

static void put_uint64(message *m, const char *name, uint64_t value)
{
    attribute(m, name, CHAKRA_PROTO_MSG__ATTRIBUTE_PROTO__VALUE_UINT64_VAL)->uint64_val = value;
}

static void put_text(message *m, const char *name, const char *value)
{
    attribute(m, name, CHAKRA_PROTO_MSG__ATTRIBUTE_PROTO__VALUE_STRING_VAL)->string_val =
        (char *)value;
}

static ChakraProtoMsg__CollectiveCommType type_of(const char *op)
{
    static const struct {
        const char *op;
        ChakraProtoMsg__CollectiveCommType type;
    } types[] = {
        {"all_reduce", CHAKRA_PROTO_MSG__COLLECTIVE_COMM_TYPE__ALL_REDUCE},
        {"reduce_scatter", CHAKRA_PROTO_MSG__COLLECTIVE_COMM_TYPE__REDUCE_SCATTER},
        {"all_gather", CHAKRA_PROTO_MSG__COLLECTIVE_COMM_TYPE__ALL_GATHER},
        {"all_to_all", CHAKRA_PROTO_MSG__COLLECTIVE_COMM_TYPE__ALL_TO_ALL},
        {"broadcast", CHAKRA_PROTO_MSG__COLLECTIVE_COMM_TYPE__BROADCAST},
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].op, op) == 0)
            return types[i].type;
    return CHAKRA_PROTO_MSG__COLLECTIVE_COMM_TYPE__BARRIER;
}

static void describe_op(message *m, const wf_step_node *n)
{
    m->node.type = CHAKRA_PROTO_MSG__NODE_TYPE__COMP_NODE;
    put_int64(m, "num_ops", (int64_t)n->operations);
    put_uint64(m, "tensor_size", (uint64_t)n->bytes);
}

/* Describes a collective. Another rank of the record's kind has its own group, and the same
   rank in it. */
static void describe_collective(message *m, const file *f, const wf_step_node *n)
{
    int first, stride, first_there;
    int number = wf_step_record_group(f->record, n->axis, f->rank, &first, &stride);

    m->node.type = CHAKRA_PROTO_MSG__NODE_TYPE__COMM_COLL_NODE;
    put_int64(m, "comm_type", type_of(n->op));
    put_int64(m, "comm_size", n->brings);
    put_uint64(m, "received", (uint64_t)wf_step_record_received(f->record, n, f->rank));
    snprintf(m->group, sizeof m->group, "%d", number);
    put_text(m, "pg_name", m->group);
    if (n->peer < 0)
        return;
    wf_step_record_group(f->record, n->axis, f->record->rank, &first_there, &stride);
    put_int32(m, "root", n->peer - first_there + first);
}

/* Ends of a message find the same tag: what distinguishes it in a step, in the 31 bits that
   there are. */
static int tag_of(uint64_t tag)
{
    return (int)((tag & 0x3fffffff) | tag >> 63 << 30);
}

static void describe_message(message *m, const file *f, const wf_step_node *n, bool sends,
                             int peer)
{
    m->node.type = sends ? CHAKRA_PROTO_MSG__NODE_TYPE__COMM_SEND_NODE
                         : CHAKRA_PROTO_MSG__NODE_TYPE__COMM_RECV_NODE;
    put_int32(m, "comm_src", sends ? f->rank : peer);
    put_int32(m, "comm_dst", sends ? peer : f->rank);
    put_int64(m, "comm_size", n->brings);
    put_uint64(m, "received", sends ? 0 : (uint64_t)n->brings);
    put_int32(m, "comm_tag", tag_of(n->tag));
}

/* Whole microseconds whose sum over ops is never half of one off. */
static uint64_t micros_of(file *f, const wf_step_node *n)
{
    double micros;

    if (n->kind != WF_STEP_OP)
        return (uint64_t)llround(n->seconds * 1e6);
    f->now += n->seconds;
    micros = round((f->now - f->shown) * 1e6);
    f->shown += micros * 1e-6;
    return (uint64_t)micros;
}

/* Writes the fields that all kinds of nodes have. */
static void describe(message *m, file *f, int64_t i)
{
    const wf_step_node *n = &f->record->node[i];

    chakra_proto_msg__node__init(&m->node);
    m->node.id = f->next++;
    m->node.name = n->name;
    m->node.attr = m->list;
    m->node.duration_micros = micros_of(f, n);
    for (int w = 0; w < n->waits; w++)
        f->number[w] = f->last[f->record->wait[n->first_wait + w]];
    m->node.data_deps = f->number;
    m->node.n_data_deps = (size_t)n->waits;
    m->node.ctrl_deps = f->number + n->waits;
    m->node.n_ctrl_deps = n->after >= 0;
    if (n->after >= 0)
        f->number[n->waits] = f->last[n->after];
    attribute(m, "is_cpu_op", CHAKRA_PROTO_MSG__ATTRIBUTE_PROTO__VALUE_BOOL_VAL);
    f->last[i] = m->node.id;
}

/* Writes a message after its length. */
static wf_status put(file *f, const ProtobufCMessage *m, wf_error *error)
{
    size_t size = protobuf_c_message_get_packed_size(m), rest = size;
    uint8_t length[LENGTH], *larger;
    int n = 0;

    if (size > f->room) {
        larger = realloc(f->bytes, 2 * size);
        if (!larger)
            return wf_error_set(error, WF_ENOMEM, "no memory for a node of a trace");
        f->bytes = larger;
        f->room = 2 * size;
    }
    do
        length[n++] = (uint8_t)((rest & 127) | (rest > 127 ? 128 : 0));
    while (rest >>= 7);
    protobuf_c_message_pack(m, f->bytes);
    if (fwrite(length, 1, (size_t)n, wf_output_stream(f->file)) == (size_t)n &&
        fwrite(f->bytes, 1, size, wf_output_stream(f->file)) == size)
        return WF_OK;
    return wf_output_failed(f->file, error);
}

static wf_status put_metadata(file *f, wf_error *error)
{
    ChakraProtoMsg__GlobalMetadata data = CHAKRA_PROTO_MSG__GLOBAL_METADATA__INIT;
    message m;

    chakra_proto_msg__node__init(&m.node);
    put_text(&m, "generator", "weft");
    put_int32(&m, "rank", f->rank);
    put_int32(&m, "ranks", f->record->ranks);
    data.version = (char *)"0.0.4";
    data.attr = m.list;
    data.n_attr = m.node.n_attr;
    return put(f, &data.base, error);
}

static wf_status put_message(file *f, int64_t i, bool sends, int peer, wf_error *error)
{
    const wf_step_node *n = &f->record->node[i];
    uint64_t before = f->last[i];
    message m;

    describe(&m, f, i);
    if (n->kind == WF_STEP_TREE) {
        m.node.name = (char *)(sends ? "send world" : "recv world");
        if (before != NONE) { /* they follow each other */
            f->number[0] = before;
            m.node.n_data_deps = 1;
        }
    }
    describe_message(&m, f, n, sends, peer);
    return put(f, &m.node.base, error);
}

/* The messages of this rank in the tree. */
static wf_status put_tree(file *f, int64_t i, wf_error *error)
{
    int child = 2 * f->rank + 1;

    for (int c = child; c <= child + 1 && c < f->record->ranks && error->code == WF_OK; c++)
        put_message(f, i, false, c, error);
    if (f->rank > 0 && error->code == WF_OK)
        put_message(f, i, true, (f->rank - 1) / 2, error);
    return error->code;
}

static wf_status put_node(file *f, int64_t i, wf_error *error)
{
    const wf_step_node *n = &f->record->node[i];
    message m;

    f->last[i] = NONE;
    if (n->kind == WF_STEP_TREE)
        return put_tree(f, i, error);
    if (n->kind == WF_STEP_SEND || n->kind == WF_STEP_RECV)
        return put_message(f, i, n->kind == WF_STEP_SEND, n->peer - f->record->rank + f->rank,
                           error);
    describe(&m, f, i);
    if (n->kind == WF_STEP_OP)
        describe_op(&m, n);
    else
        describe_collective(&m, f, n);
    return put(f, &m.node.base, error);
}

static wf_status put_all(file *f, wf_error *error)
{
    int most = 1;

    for (int64_t i = 0; i < f->record->count; i++)
        most = f->record->node[i].waits > most ? f->record->node[i].waits : most;
    f->number = calloc((size_t)most + 1, sizeof *f->number);
    f->last = calloc((size_t)f->record->count + 1, sizeof *f->last);
    if (!f->number || !f->last)
        return wf_error_set(error, WF_ENOMEM, "no memory for a trace");
    put_metadata(f, error);
    for (int64_t i = 0; i < f->record->count && error->code == WF_OK; i++)
        put_node(f, i, error);
    return error->code;
}

bool wf_chakra_is_built(void)
{
    return true;
}

wf_status wf_chakra_file_write(wf_output_folder *folder, const wf_step_record *record, int rank,
                               wf_error *error)
{
    file f = {.record = record, .rank = rank};
    char name[32];

    snprintf(name, sizeof name, "weft.%d.et", rank);
    f.file = wf_output_open_in(folder, name, error);
    if (f.file && put_all(&f, error) == WF_OK)
        wf_output_publish(f.file, error);
    else
        wf_output_discard(f.file);
    free(f.number);
    free(f.last);
    free(f.bytes);
    return error->code;
}

#else

bool wf_chakra_is_built(void)
{
    return false;
}

wf_status wf_chakra_file_write(wf_output_folder *folder, const wf_step_record *record, int rank,
                               wf_error *error)
{
    (void)folder;
    (void)record;
    (void)rank;
    return wf_error_set(error, WF_EUNSUPPORTED, "no traces without protobuf-c");
}

#endif
