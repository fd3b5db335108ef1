/*
 * parallel/train/read_batch.c - the batches of a training step: made, numbered and read.
 *
 * The sequences of a global batch are numbered from outer to inner by what is summed last to
 * what is summed first, so that every strategy has the same tree over the same numbers:
 *
 *     local accumulation                   (rank, micro-step, sequence)
 *     a reduction per micro-step           (micro-step, rank, sequence)
 *     the same inside of groups of ranks   (group, micro-step, rank in the group, sequence)
 *
 * With a reduction per micro-step and one sequence a rank in it the last micro-step may have
 * fewer sequences than ranks. The ranks without one are idle: they compute the last sequence
 * once more, so that collectives have all their members, and their results are left out of all
 * sums.
 */
#include "parallel/train/read_batch_internal.h"
#include "parallel/train/step_alike_internal.h"
#include "core/host_data.h"
#include "core/numerics/bits.h"
#include "mesh/comm/collective.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static int dims_of(const wf_par_field *field)
{
    int n = 0;

    while (n < WF_MAX_DIMS - 1 && field->dim[n].size != 0)
        n++;
    return n;
}

/* Writes the shape of a field's tensor for a number of sequences; returns its number of
   dims. */
static int shape_of(const wf_par_field *field, int64_t sequences, wf_dim dim[WF_MAX_DIMS])
{
    int n = dims_of(field);

    dim[0] = wf_dim_batch(sequences);
    memcpy(dim + 1, field->dim, (size_t)n * sizeof *dim);
    return n + 1;
}

static const char *cut_of(const wf_par_trainer *t)
{
    return t->options.cut ? t->options.cut : "tokens,targets";
}

/* Returns true where ranks of cp have parts of a field's tokens. */
static bool is_cut(const wf_par_trainer *t, int field)
{
    const char *at = cut_of(t), *name = t->options.field[field].name;
    size_t length = strlen(name);

    while (t->par->cp_axis >= 0 && at) {
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
            return true;
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    return false;
}

/* Checks that ranks which split tokens have some to split. */
static wf_status check_cut(const wf_par_trainer *t)
{
    wf_context *ctx = t->par->ctx;
    int cut = 0;

    for (int i = 0; i < t->fields; i++) {
        cut += is_cut(t, i);
        if (is_cut(t, i) && t->options.field[i].dim[0].chunks != WF_CHUNKS_8)
            wf_fail(ctx, WF_EINVAL,
                    "field %s of a batch is cut by tokens (.cut), and its first dim is none of "
                    "them (wf_dim_chunked)",
                    t->options.field[i].name);
    }
    if (t->par->cp_axis >= 0 && t->fields && !cut)
        wf_fail(
            ctx, WF_EINVAL,
            "cp %d splits the tokens of fields %s, and the batch has none of them: name those "
            "that have tokens in wf_par_train_options.cut",
            wf_mesh_size(t->par->mesh, t->par->cp_axis), cut_of(t));
    return wf_context_status(ctx);
}

static int64_t batch_size(const wf_par_trainer *t)
{
    return t->options.micro_batch * wf_par_dp(t->par);
}

wf_status wf_par_fields_check(wf_par_trainer *t)
{
    wf_context *ctx = t->par->ctx;
    const wf_par_field *field = t->options.field;
    int64_t most = t->options.micro_batch * wf_par_dp(t->par);

    wf_scope_open(ctx);
    for (t->fields = 0; t->fields < WF_PAR_FIELDS && field[t->fields].name; t->fields++) {
        const wf_par_field *f = &field[t->fields];
        wf_dim dim[WF_MAX_DIMS];
        int ndim = shape_of(f, most, dim);

        if (!*f->name)
            wf_fail(ctx, WF_EINVAL, "field %d of a batch has an empty name", t->fields);
        for (int i = 0; i < t->fields; i++)
            if (strcmp(field[i].name, f->name) == 0)
                wf_fail(ctx, WF_EINVAL, "two fields of a batch have the name %s", f->name);
        if ((unsigned)f->dtype >= WF_DTYPES)
            wf_fail(ctx, WF_EINVAL, "field %s of a batch has dtype %d, which is none", f->name,
                    (int)f->dtype);
        else
            wf_tensor_fake(ctx, f->dtype, ndim, dim,
                           NULL); /* says what is wrong with dims, of a micro-step's batch */
    }
    wf_scope_close(ctx);
    return wf_context_status(ctx) == WF_OK ? check_cut(t) : wf_context_status(ctx);
}

/* Ranks that each micro-step sums over have neighbours in it; with groups of micro-steps, in a
   group. */
wf_sequences wf_par_sequences(const wf_par_trainer *t, int64_t k)
{
    const wf_par *par = t->par;
    int64_t micro = t->options.micro_batch, ranks = t->ranks, group = par->group * micro;

    if (par->reduced && par->group > 1)
        return (wf_sequences){.first = k / par->group * ranks * group + k % par->group * micro,
                              .run = micro,
                              .stride = group};
    return (wf_sequences){
        .first = k * ranks * micro, .run = ranks * micro, .stride = t->sequences};
}

/* The first sequence that this rank reads for micro-step k: where it has none, the last one,
   which the others have. */
static int64_t first_of(const wf_par_trainer *t, const wf_par_batch *batch, int64_t k)
{
    wf_sequences sequences = wf_par_sequences(t, k);
    int64_t row = batch->tensor[0]->start[0], first = wf_sequence_of(&sequences, row);
    int64_t number = k * t->ranks + row % t->ranks, last = t->sequences - 1;

    return t->per_sequence && number > last ? first - (number - last) : first;
}

double wf_par_share_of(const wf_par_trainer *t, int64_t first, int64_t last)
{
    int64_t own = 0, rank = t->per_sequence ? wf_par_dp_rank(t->par) % t->ranks : 0;

    for (int64_t k = first; k <= last; k++)
        own += !t->per_sequence || k * t->ranks + rank < t->sequences;
    return (double)own / (double)(last - first + 1);
}

wf_par_batch wf_par_batch_without_tensors(const wf_par_trainer *t)
{
    return (wf_par_batch){.ctx = t->par->ctx,
                          .global_batch = t->batch,
                          .counted = -1,
                          .fields = t->fields,
                          .field = t->options.field};
}

wf_par_batch wf_par_batch_new(wf_par_trainer *t)
{
    const wf_layout *whole = wf_par_batch_layout(t->par);
    wf_par_batch batch = wf_par_batch_without_tensors(t);

    for (int i = 0; i < t->fields; i++) {
        wf_dim dim[WF_MAX_DIMS];
        int ndim = shape_of(&batch.field[i], batch_size(t), dim);
        const wf_layout *layout =
            is_cut(t, i) ? wf_layout_split(t->par->mesh, whole, 1, t->par->cp_axis) : whole;

        batch.tensor[i] = wf_tensor_new(t->par->ctx, batch.field[i].dtype, ndim, dim, layout,
                                        WF_MEMORY_ACTIVATION);
    }
    return batch;
}

static wf_status check_data(const wf_par_trainer *t, const wf_par_data *data)
{
    if (!data || !data->read)
        return wf_fail(t->par->ctx, WF_EINVAL, "there is no data to read a batch from");
    if (!t->fields)
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "a batch has no fields to read data into: name them in "
                       "wf_par_train_options.field");
    return WF_OK;
}

wf_status wf_par_count(const wf_par_data *data, int64_t step, int64_t *count, wf_error *error)
{
    wf_status status;

    *count = -1;
    if (!data->counted)
        return WF_OK;
    status = data->counted(data->self, step, count, error);
    if (status == WF_OK && *count < 0)
        status = wf_error_set(error, WF_EINVAL,
                              "the data say that %" PRId64 " elements of the losses of step "
                              "%" PRId64 " count, which cannot be",
                              *count, step);
    return status;
}

/* Returns the bytes of a field of a sequence. */
static size_t field_bytes(const wf_par_field *f)
{
    size_t bytes = wf_dtype_size(f->dtype);

    for (int d = 0; d < dims_of(f); d++)
        bytes *= (size_t)f->dim[d].size;
    return bytes;
}

/* A hash of what was read, and of how much of it counts. */
static uint64_t hash_of(const wf_par_trainer *t, const wf_par_batch *batch, void *const *room)
{
    uint64_t hash = wf_mix64((uint64_t)batch->counted);

    for (int i = 0; i < t->fields; i++)
        hash = wf_mix64(hash ^ XXH3_64bits(room[i], (size_t)batch->tensor[i]->local[0] *
                                                        field_bytes(&t->options.field[i])));
    return hash;
}

wf_status wf_par_step_count(wf_par_trainer *t, const wf_par_data *data)
{
    wf_context *ctx = t->par->ctx;
    wf_error error = {WF_OK, "the data gave no reason"};

    if (wf_context_status(ctx) == WF_OK && !wf_context_dry_run(ctx) &&
        wf_par_count(data, t->step.number, &t->step.counted, &error) != WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    return wf_context_status(ctx);
}

/* Fields that are being read: a tensor's data, or whole sequences of which it has parts. */
typedef struct reading {
    wf_host_data view[WF_PAR_FIELDS];
    void *room[WF_PAR_FIELDS], *part[WF_PAR_FIELDS]; /* part: NULL where room is the tensor's */
} reading;

static void open_fields(const wf_par_trainer *t, const wf_par_batch *batch, reading *r)
{
    *r = (reading){.room = {NULL}};
    for (int i = 0; i < t->fields; i++) {
        const wf_par_field *f = &t->options.field[i];
        size_t bytes = (size_t)batch->tensor[i]->local[0] * field_bytes(f);

        r->room[i] = wf_data_write(batch->tensor[i], false, &r->view[i]);
        if (!is_cut(t, i))
            continue;
        r->part[i] = r->room[i];
        r->room[i] = malloc(bytes + 1);
        if (!r->room[i])
            wf_fail(t->par->ctx, WF_ENOMEM,
                    "no memory for field %s of whole sequences, %zu bytes", f->name, bytes);
    }
}

/* Takes this rank's tokens out of whole sequences. */
static void take_parts(const wf_par_trainer *t, const wf_par_batch *batch, const reading *r)
{
    for (int i = 0; i < t->fields; i++) {
        const wf_tensor *x = batch->tensor[i];
        size_t whole = field_bytes(&t->options.field[i]), token, part;

        if (!r->part[i] || x->dim[1].size == 0)
            continue;
        token = whole / (size_t)x->dim[1].size;
        part = token * (size_t)x->local[1];
        for (int64_t b = 0; b < x->local[0]; b++)
            memcpy((char *)r->part[i] + (size_t)b * part,
                   (char *)r->room[i] + (size_t)b * whole + token * (size_t)x->start[1], part);
    }
}

static void close_fields(const wf_par_trainer *t, reading *r)
{
    for (int i = 0; i < t->fields; i++) {
        wf_data_close(&r->view[i]);
        if (r->part[i])
            free(r->room[i]);
    }
}

/* Reads a micro-step's sequences. Where batches grow, they are numbered as whole batches have
   them: sequence i of a run is number i % batch of step i / batch. */
static wf_status read_sequences(const wf_par_trainer *t, const wf_par_data *data, int64_t step,
                                int64_t first, void *const *room, wf_error *error)
{
    int64_t count = t->options.micro_batch, whole = t->options.global_batch, before = 0;
    bool grows = t->options.rampup.start && t->step.at == WF_PAR_AT_MICRO_STEPS;
    wf_status status = WF_OK;

    if (!grows)
        return data->read(data->self, step, first, count, room, error);
    if (data->counted)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "the data count elements of whole batches, and batches grow: train "
                            "without a ramp, or on data without masks");
    wf_par_step_batch(&t->options, step, &before);
    for (int64_t done = 0, n; done < count && status == WF_OK && error->code == WF_OK;
         done += n) {
        int64_t at = before + first + done;
        void *to[WF_PAR_FIELDS];

        n = count - done < whole - at % whole ? count - done : whole - at % whole;
        for (int i = 0; i < t->fields; i++)
            to[i] = (char *)room[i] + (size_t)done * field_bytes(&t->options.field[i]);
        status = data->read(data->self, at / whole + 1, at % whole, n, to, error);
    }
    return status;
}

wf_status wf_par_batch_read(wf_par_trainer *t, wf_par_batch *batch, const wf_par_data *data,
                            int64_t step, int64_t k)
{
    wf_context *ctx = t->par->ctx;
    wf_error error = {WF_OK, "the data gave no reason"};
    wf_comm *world = wf_mesh_world(t->par->mesh);
    wf_status status = WF_OK;
    reading r;

    if (wf_context_status(ctx) != WF_OK || wf_context_dry_run(ctx) ||
        check_data(t, data) != WF_OK)
        return wf_context_status(ctx);
    open_fields(t, batch, &r);
    if (wf_context_status(ctx) == WF_OK) {
        const wf_trace_mark begun = wf_context_host_begin(ctx);

        wf_comm_at_files(world, true);
        status = read_sequences(t, data, step, first_of(t, batch, k), r.room, &error);
        if (status == WF_OK)
            /* a reader that sets an error has failed, whatever it returns */
            status = error.code;
        if (status == WF_OK)
            status = wf_par_count(data, step, &batch->counted, &error);
        wf_comm_at_files(world, false);
        wf_context_host_end(ctx, begun, "read batch");
        if (t->step.at == WF_PAR_AT_MICRO_STEPS)
            t->step.counted = batch->counted;
    }
    if (status == WF_OK && wf_context_status(ctx) == WF_OK)
        wf_par_alike_read(t, step, k, hash_of(t, batch, r.room));
    if (status == WF_OK && wf_context_status(ctx) == WF_OK)
        take_parts(t, batch, &r);
    close_fields(t, &r);
    if (status != WF_OK)
        wf_fail(ctx, status, "%s", error.text);
    return wf_context_status(ctx);
}
