/* kernels/ops.c - the table of ops, made from ops.def. */
#include "kernels/op_table_internal.h"
#include <string.h>

#define OP(name, signature, flags) const char wf_signature_##name[] = signature;
#include "kernels/ops.def"
#undef OP

static const wf_op *const table[] = {
    NULL,
#define OP(name, signature, flags) &wf_op_##name,
#include "kernels/ops.def"
#undef OP
};

int wf_op_count(void)
{
    return WF_ID_count - 1;
}

const wf_op *wf_op_at(int id)
{
    return id >= 1 && id < WF_ID_count ? table[id] : NULL;
}

const wf_op *wf_op_find(const char *name)
{
    for (int id = 1; id < WF_ID_count; id++)
        if (strcmp(table[id]->name, name) == 0)
            return table[id];
    return NULL;
}
