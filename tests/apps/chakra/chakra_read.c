/* tests/apps/chakra/chakra_read.c - chakra_read FILE prints a Chakra execution trace as lines
   of JSON, by protobuf-c: its metadata, then its nodes; tests/apps/test_chakra.sh runs it. */
#include "chakra.pb-c.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 20 };

static bool read_length(FILE *file, size_t *length)
{
    int shift = 0, byte;

    *length = 0;
    do {
        byte = getc(file);
        if (byte == EOF || shift > 28)
            return false;
        *length |= (size_t)(byte & 127) << shift;
        shift += 7;
    } while (byte & 128);
    return true;
}

static json_t *value_of(const ChakraProtoMsg__AttributeProto *a)
{
    switch (a->value_case) {
    case CHAKRA_PROTO_MSG__ATTRIBUTE_PROTO__VALUE_INT32_VAL:
        return json_integer(a->int32_val);
    case CHAKRA_PROTO_MSG__ATTRIBUTE_PROTO__VALUE_INT64_VAL:
        return json_integer(a->int64_val);
    case CHAKRA_PROTO_MSG__ATTRIBUTE_PROTO__VALUE_UINT64_VAL:
        return json_integer((json_int_t)a->uint64_val);
    case CHAKRA_PROTO_MSG__ATTRIBUTE_PROTO__VALUE_BOOL_VAL:
        return json_boolean(a->bool_val);
    case CHAKRA_PROTO_MSG__ATTRIBUTE_PROTO__VALUE_STRING_VAL:
        return json_string(a->string_val);
    default:
        return NULL;
    }
}

static json_t *attributes(size_t n, ChakraProtoMsg__AttributeProto **attr)
{
    json_t *object = json_object();

    for (size_t i = 0; i < n; i++)
        json_object_set_new(object, attr[i]->name, value_of(attr[i]));
    return object;
}

static json_t *numbers(size_t n, const uint64_t *number)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer((json_int_t)number[i]));
    return list;
}

static json_t *node_json(const ChakraProtoMsg__Node *n)
{
    const ProtobufCEnumValue *type = protobuf_c_enum_descriptor_get_value(
        &chakra_proto_msg__node_type__descriptor, (int)n->type);

    return json_pack("{s:I, s:s, s:s, s:o, s:o, s:I, s:o}", "id", (json_int_t)n->id, "name",
                     n->name, "type", type ? type->name : "unknown", "ctrl",
                     numbers(n->n_ctrl_deps, n->ctrl_deps), "data",
                     numbers(n->n_data_deps, n->data_deps), "micros",
                     (json_int_t)n->duration_micros, "attr", attributes(n->n_attr, n->attr));
}

static json_t *message_json(bool first, size_t size, const uint8_t *bytes)
{
    json_t *object = NULL;

    if (first) {
        ChakraProtoMsg__GlobalMetadata *m =
            chakra_proto_msg__global_metadata__unpack(NULL, size, bytes);

        if (m)
            object = json_pack("{s:s, s:o}", "version", m->version, "attr",
                               attributes(m->n_attr, m->attr));
        chakra_proto_msg__global_metadata__free_unpacked(m, NULL);
    } else {
        ChakraProtoMsg__Node *n = chakra_proto_msg__node__unpack(NULL, size, bytes);

        if (n)
            object = node_json(n);
        chakra_proto_msg__node__free_unpacked(n, NULL);
    }
    return object;
}

int main(int argc, char **argv)
{
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    uint8_t *bytes = malloc(MOST);
    bool good = file && bytes, first = true;
    size_t length;

    while (good && read_length(file, &length)) {
        json_t *object = NULL;

        if (length <= MOST && fread(bytes, 1, length, file) == length)
            object = message_json(first, length, bytes);
        good = object && json_dumpf(object, stdout, JSON_COMPACT) == 0 && putchar('\n') != EOF;
        json_decref(object);
        first = false;
    }
    good = good && !first && feof(file);
    if (!good)
        fprintf(stderr, "chakra_read: %s is no whole trace\n", argc == 2 ? argv[1] : "");
    if (file)
        fclose(file);
    free(bytes);
    return good ? 0 : 1;
}
