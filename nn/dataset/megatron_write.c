/* nn/dataset/megatron_write.c - one document as a pair of files; see megatron_writer.h. */
#include "nn/dataset/megatron_writer.h"

wf_status wf_megatron_write(const char *prefix, int64_t vocabulary, const int32_t *ids,
                            int64_t count, wf_error *error)
{
    wf_megatron_writer *writer;

    if (wf_megatron_writer_open(prefix, vocabulary, &writer, error) != WF_OK)
        return error->code;
    if (wf_megatron_writer_add(writer, ids, count, error) == WF_OK &&
        wf_megatron_writer_end_document(writer, error) == WF_OK)
        return wf_megatron_writer_finish(writer, NULL, error);
    wf_megatron_writer_discard(writer);
    return error->code;
}
