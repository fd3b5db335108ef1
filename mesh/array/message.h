/*
 * mesh/array/message.h - tensors sent from one rank of an axis to another, as between the
 * stages of a pipeline.
 *
 *     wf_message *m = wf_message_send(x, axis, next, tag);   or wf_message_recv(y, axis, last,
 *                                                            tag)
 *     .. compute ..
 *     wf_message_end(m);
 *
 * A message moves the bytes of this rank's part, so both ends have tensors of one shape, type
 * and layout. Those from one rank to another arrive in the order in which they were sent.
 */
#ifndef WF_MESH_ARRAY_MESSAGE_H
#define WF_MESH_ARRAY_MESSAGE_H

#include "mesh/array/mesh.h"

WF_BEGIN_DECLS

typedef struct wf_message wf_message;

/**
 * wf_message_send - begins to send a tensor's local part
 *
 * @param x     retained until wf_message_end, and not to be written before
 * @param axis  of the mesh
 * @param to    the coordinate on it of the rank that receives; all other coordinates are this
 *              rank's
 * @param tag   identifies the message; WF_EMISMATCH on both ranks where the receiver's differs
 * Collective:  between the two
 * Owner:       caller; wf_message_end
 * Errors:      those of wf_collective_begin, in the context; NULL then
 */
WF_API wf_message *wf_message_send(wf_tensor *x, int axis, int to, uint64_t tag);

/** wf_message_recv - begins to receive into a tensor's local part, which has values after
 * wf_message_end. */
WF_API wf_message *wf_message_recv(wf_tensor *into, int axis, int from, uint64_t tag);

/**
 * wf_message_end - waits until the message has been received
 *
 * @param message  freed, also after an error; NULL is the error before
 * Errors:         those of wf_collective_end, in the context
 */
WF_API wf_status wf_message_end(wf_message *message);

WF_END_DECLS

#endif
