/* mesh/array/message.c - messages between ranks of an axis; see the header. */
#include "mesh/array/message.h"
#include "mesh/array/array_internal.h"

struct wf_message {
    wf_tensor *tensor; /* retained */
    wf_pending *pending;
};

static wf_message *begin(wf_tensor *t, wf_collective_kind kind, int axis, int peer,
                         uint64_t tag)
{
    wf_context *ctx = t->ctx;
    wf_mesh *mesh = wf_mesh_of(ctx);
    wf_status status = wf_handle_check(t, "a message: the tensor");
    wf_comm_buffer buffer = {.in = t->data, .out = t->data, .count = wf_tensor_local_count(t)};
    wf_collective what = {.kind = kind,
                          .element = wf_dtype_size(t->dtype),
                          .peer = peer,
                          .tag = tag,
                          .n_buffers = 1,
                          .buffers = &buffer,
                          .device =
                              wf_context_device(ctx)->memory ? wf_context_device(ctx) : NULL,
                          .context = ctx};
    wf_error error = {WF_OK, ""};
    wf_message *m;

    if (status != WF_OK || wf_context_status(ctx) != WF_OK)
        return NULL;
    m = wf_blocks_take(wf_context_blocks(ctx), sizeof *m);
    if (!m) {
        wf_fail(ctx, WF_ENOMEM, "no memory for a message");
        return NULL;
    }
    wf_comm_position(mesh->comm[axis], wf_context_step(ctx), wf_context_path(ctx));
    if (wf_collective_begin(mesh->comm[axis], &what, &m->pending, &error) != WF_OK) {
        wf_fail(ctx, error.code, "%s", error.text);
        wf_blocks_give(wf_context_blocks(ctx), m, sizeof *m);
        return NULL;
    }
    m->tensor = wf_tensor_retain(t);
    return m;
}

wf_message *wf_message_send(wf_tensor *x, int axis, int to, uint64_t tag)
{
    return x ? begin(x, WF_SEND, axis, to, tag) : NULL;
}

wf_message *wf_message_recv(wf_tensor *into, int axis, int from, uint64_t tag)
{
    return into ? begin(into, WF_RECV, axis, from, tag) : NULL;
}

wf_status wf_message_end(wf_message *m)
{
    wf_error error = {WF_OK, ""};
    wf_status status;
    wf_context *ctx;

    if (!m)
        return WF_EINVAL; /* the reason is in the context */
    ctx = m->tensor->ctx;
    status = wf_collective_end(m->pending, &error);
    if (status != WF_OK)
        wf_fail(ctx, status, "%s", error.text);
    wf_tensor_release(m->tensor);
    wf_blocks_give(wf_context_blocks(ctx), m, sizeof *m);
    return wf_context_status(ctx);
}
