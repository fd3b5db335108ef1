/*
 * mesh/comm/collective.h - communication over a group of ranks: a handle per rank and group,
 * and collectives over plain buffers.
 *
 * Transports move bytes; arithmetic is ours. A sum over ranks is the midpoint tree
 * (core/numerics/tree.h) over the members in their order, computed by the functions of
 * wf_reduce_ops: the same bits over every transport.
 *
 *     all_reduce      out = sum or max over members of in
 *     reduce_scatter  member i keeps elements [cuts[i], cuts[i+1]) of that
 *     all_gather      member i brings elements [cuts[i], cuts[i+1]) of out
 *     all_to_all      all-to-all: block i of in goes to member i; block i of out comes from it
 *     broadcast       out = in of the root
 *
 * Every member makes the same calls over a group in the same order, and ends what it has begun
 * in the same order; one that differs makes WF_EMISMATCH on all. Pieces may be uneven and
 * empty.
 */
#ifndef WF_MESH_COMM_COLLECTIVE_H
#define WF_MESH_COMM_COLLECTIVE_H

#include "core/oplog.h"
#include "core/pace.h"
#include "core/trace.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

WF_BEGIN_DECLS

typedef struct wf_comm wf_comm;       /* one rank's handle of one group of ranks */
typedef struct wf_pending wf_pending; /* a collective that was begun and not ended */
struct wf_context;
struct wf_device;
struct wf_shared;

typedef enum wf_collective_kind {
    WF_ALL_REDUCE,
    WF_REDUCE_SCATTER,
    WF_ALL_GATHER,
    WF_ALL_TO_ALL,
    WF_BROADCAST,
    WF_SEND,
    WF_RECV,
    WF_BARRIER,
    WF_COLLECTIVE_KINDS
} wf_collective_kind;

typedef enum wf_reduction { WF_REDUCE_SUM, WF_REDUCE_MAX } wf_reduction;

/* The arithmetic of reductions, with the meaning of the same names in
   kernels/cpu/simd_internal.h. */
typedef struct wf_reduce_ops {
    void (*sum)(const float *const *src, int64_t n_src, bool tree, float *y, int64_t n);
    void (*maximum)(const float *a, const float *b, float *y, int64_t n);
    /* sum, to many results, by non-temporal stores where `stream`; NULL: sum, then copies */
    void (*sum_to_all)(const float *const *src, int64_t n_src, bool tree, float *const *dst,
                       int64_t n_dst, bool stream, int64_t n);
    /* copy by non-temporal stores what will not be read soon; NULL: there is no such copy */
    void (*stream)(const void *from, void *to, size_t bytes);
    /* floats as bf16 (core/numerics/bf16.h); NULL: one after the other */
    void (*narrow)(const float *from, uint16_t *to, int64_t n);
    bool chain; /* sums in ascending order of rank, not in the tree: exactness is off */
} wf_reduce_ops;

/*
 * One of the buffers of a collective; counts and cuts in elements. `cuts` has one more entry
 * than the group has members, begins with 0 and never falls. In place: out == in for
 * all_reduce, reduce_scatter and all_to_all, in == out or in == out + cuts[rank] for
 * all_gather; otherwise in and out do not overlap. reduce_scatter and all_to_all destroy an
 * `in` that overlaps `out`.
 *
 * What is cut (in of reduce_scatter and all_to_all, out of all_gather and all_to_all) holds the
 * members' parts one after the other, or, where a tensor is cut along an inner dim, `rows`
 * rows, each with a row of every part in order. A part by itself (the other side) is dense.
 * With more than one row all cuts are multiples of the rows, and in and out do not overlap.
 */
typedef struct wf_comm_buffer {
    const void *in;          /* not read by a broadcast's receivers and by recv */
    void *out;               /* not written by a broadcast's root and by send */
    int64_t count;           /* all_reduce, broadcast, send, recv */
    const int64_t *cuts;     /* reduce_scatter, all_gather; all_to_all: of in */
    const int64_t *out_cuts; /* all_to_all: of out */
    int64_t rows;            /* rows of what is cut; 0 is 1 */
    int64_t out_rows;        /* all_to_all: of out */
    /* all_reduce, all_gather: out is one memory that all members see (wf_comm_share) */
    bool one_out;
    /* reduce_scatter, a sum of floats: out takes it as bf16, rounded where it is complete; in
       and out do not overlap */
    bool rounds;
} wf_comm_buffer;

/* One collective over any number of buffers, which travel together: one check, one wait. */
typedef struct wf_collective {
    wf_collective_kind kind;
    wf_reduction reduction; /* all_reduce, reduce_scatter: of floats, or sums of bf16 */
    size_t element;         /* bytes of an element, of a bf16 2; 0 means those of a float */
    int peer;               /* broadcast: the root; send, recv: the other end */
    uint64_t tag;           /* send, recv: identifies the message; both ends give the same */
    int64_t n_buffers;
    const wf_comm_buffer
        *buffers; /* copied by begin, with their cuts; not what they point to */
    /* NULL, or this rank's device with memory of its own (wf_device_memory), where the buffers
       lie; reductions are then its own, and all members' buffers lie on devices */
    struct wf_device *device;
    bool at_once; /* begun only to be ended: no thread works on it in the background */
    /* NULL, or this rank's context: while a graph is captured there, a collective of its
       device's memory is kept for the graph's runs (core/graph.h), and not made */
    struct wf_context *context;
} wf_collective;

/* Communication counters of a group: calls, the bytes that this rank received from other
   members, and those of them that it could compute nothing beside (exposed communication). */
typedef struct wf_comm_counters {
    struct {
        int64_t calls, bytes, exposed;
    } of[WF_COLLECTIVE_KINDS];
} wf_comm_counters;

/** wf_comm_rank - returns this rank's number in the group, 0 .. size - 1. */
WF_API int wf_comm_rank(const wf_comm *comm);

/** wf_comm_size - returns the members of the group. */
WF_API int wf_comm_size(const wf_comm *comm);

/** wf_comm_name - returns the group's name, as errors show it. Owner: the group. */
WF_API const char *wf_comm_name(const wf_comm *comm);

/** wf_comm_world_rank - returns the rank in the world of a member. */
WF_API int wf_comm_world_rank(const wf_comm *comm, int member);

/** wf_comm_transport - returns the name of the transport below, for instance "threads". */
WF_API const char *wf_comm_transport(const wf_comm *comm);

/** wf_comm_groups_messages - returns true where the messages that a rank has begun end
 * together, as one group. A wait for one of them then waits for the others too: ranks that wait
 * for messages made from those they send, as in a pipeline, can deadlock. */
WF_API bool wf_comm_groups_messages(const wf_comm *comm);

/**
 * wf_comm_share - takes memory that all members share, for the next result that they have alike
 *
 * Every member takes it for the same result, and none waits here.
 *
 * @param shared  filled: this member's part of it (core/sharing.h); NULL where members are not
 *                threads of one process, and then for all of them, or where they differ in
 *                bytes
 * Errors:  WF_ENOMEM
 */
WF_API wf_status wf_comm_share(wf_comm *comm, size_t bytes, struct wf_shared **shared,
                               wf_error *error);

/** wf_comm_set_reduce - sets the arithmetic of this handle's reductions; groups split off
 * inherit it. */
WF_API void wf_comm_set_reduce(wf_comm *comm, const wf_reduce_ops *ops);

/**
 * wf_comm_trace - traces the collectives over this handle that are begun from now on, in flight
 * and waited for. NULL ends it.
 *
 * @param trace  the caller's, and open as long; kept by the rank's own thread
 */
WF_API void wf_comm_trace(wf_comm *comm, wf_trace *trace);

/** wf_comm_oplog - logs collectives and messages that are begun over this handle from now on,
 * those of a plan too, and their ends. The op log is the caller's, and outlives its use; NULL
 * ends it. */
WF_API void wf_comm_oplog(wf_comm *comm, const wf_oplog *oplog);

/**
 * wf_comm_pace - throttles this handle's collectives, on transport threads (core/pace.h);
 * groups split off inherit it. NULL ends it.
 *
 * @param pace  the rank's, and there as long
 * Errors:      WF_EUNSUPPORTED: another transport
 */
WF_API wf_status wf_comm_pace(wf_comm *comm, wf_pace *pace, wf_error *error);

/**
 * wf_comm_position - records the rank's position in training for the flight recorder: the step
 * and the module
 *
 * @param step   0 where there is none
 * @param module  copied; NULL for none
 */
WF_API void wf_comm_position(wf_comm *comm, int64_t step, const char *module);

/**
 * wf_comm_action - records the action of a pipeline schedule that the rank is in from now on,
 * for the flight recorder and for reports of failures: "I3.17 (action 41 of 96)"
 *
 * @param name    copied, and cut to 19 characters; NULL: it is in none
 * @param number  from 1 to `of`
 */
WF_API void wf_comm_action(wf_comm *comm, const char *name, int64_t number, int64_t of);

/**
 * wf_comm_at_files - marks that the rank reads or writes files from now on (true), or no longer
 *
 * A disk may be as slow as it likes: a rank at files does not stall
 * (wf_launch_options.stall_timeout).
 */
WF_API void wf_comm_at_files(wf_comm *comm, bool at_files);

/** wf_comm_locate - appends "; it was on .." to the text of a rank's error: host, coordinates
 * in the mesh, step and collective. Nothing where the text has it already. */
WF_API void wf_comm_locate(wf_comm *comm, wf_error *error);

/** wf_comm_counters_of - returns the counters of this rank's communication over the group since
 * the last reset. Owner: the group. */
WF_API const wf_comm_counters *wf_comm_counters_of(const wf_comm *comm);

/** wf_comm_counters_reset - sets the counters to zero. */
WF_API void wf_comm_counters_reset(wf_comm *comm);

/**
 * wf_comm_count_too - counts collectives that begin over the group from now on in `counters`
 * too; NULL: no longer
 *
 * One that a graph keeps (core/graph.h) is counted there in every run of it. The counters
 * belong to the caller, and have to be there as long as the group and such graphs.
 */
WF_API void wf_comm_count_too(wf_comm *comm, wf_comm_counters *counters);

/** wf_collective_name - returns "all_reduce" and so on. Owner: static string. */
WF_API const char *wf_collective_name(wf_collective_kind kind);

/**
 * wf_comm_split - makes a group of some members of another
 *
 * Every member of the parent makes the same number of splits, each naming its own group; the
 * groups of one split share no member. (The members are listed, not gathered, so a group's size
 * is known to a rank that runs alone on the fake transport.)
 *
 * @param name     for errors and reports; cut to 31 characters
 * @param members  ranks of the parent, ascending; the caller is among them
 * Collective:     over the parent; returns without waiting
 * Owner:          caller; wf_comm_close
 * Errors:         WF_EINVAL, WF_ENOMEM, WF_EMISMATCH where members list the group differently,
 *                 WF_ELOST
 */
WF_API wf_status wf_comm_split(wf_comm *parent, const char *name, const int *members, int n,
                               wf_comm **out, wf_error *error);

/** wf_comm_close - closes a handle; NULL is allowed. Closing over collectives in flight is an
 * error that aborts the world. */
WF_API void wf_comm_close(wf_comm *comm);

/**
 * wf_comm_abort - fails the world: wakes all its ranks with WF_ELOST
 *
 * When it returns no peer reads this rank's buffers any more. Collectives in flight are still
 * to be ended (they return at once).
 *
 * @param cause  cited by the others' errors; the first abort of a world stays
 */
WF_API void wf_comm_abort(wf_comm *comm, const wf_error *cause);

/**
 * wf_collective_begin - posts this rank's part and returns, without waiting for the others
 *
 * The buffers belong to the collective until it is ended or wf_comm_abort has returned. It
 * waits only where 32 collectives of the group are unfinished among the peers. Over threads
 * everything but messages progresses while the rank computes, exchanges of a rank in the order
 * in which they were begun; wf_collective_run spares the thread that this takes.
 *
 * @param pending  set on success, else NULL; goes to wf_collective_end exactly once
 * Collective:     over comm
 * Errors:         WF_EINVAL, WF_ENOMEM, WF_EMISMATCH, WF_ELOST, WF_ETIMEOUT (a deadlock)
 */
WF_API wf_status wf_collective_begin(wf_comm *comm, const wf_collective *what,
                                     wf_pending **pending, wf_error *error);

/**
 * wf_collective_end - waits until the results are in `out` and every peer is done with this
 * rank's buffers; frees the handle, also on failure
 *
 * Errors:  WF_EMISMATCH, WF_ELOST, WF_ETIMEOUT; the contents of `out` are then undefined
 */
WF_API wf_status wf_collective_end(wf_pending *pending, wf_error *error);

/** wf_collective_run - begins and ends a collective. Collective: over comm. */
WF_API wf_status wf_collective_run(wf_comm *comm, const wf_collective *what, wf_error *error);

/** wf_all_reduce_received - returns the elements that a member of `size` receives in an
 * all_reduce of `count`: those of a ring. */
WF_API int64_t wf_all_reduce_received(int64_t count, int size, int member);

/** wf_all_reduce - computes the sum or maximum over members of one buffer of floats; out may be
 * in. Collective: over comm. */
WF_API wf_status wf_all_reduce(wf_comm *comm, wf_reduction reduction, const float *in,
                               float *out, int64_t count, wf_error *error);

/** wf_reduce_scatter - computes out[..] = elements [cuts[rank], cuts[rank+1]) of the sum or
 * maximum of in. Collective: over comm. */
WF_API wf_status wf_reduce_scatter(wf_comm *comm, wf_reduction reduction, const float *in,
                                   float *out, const int64_t *cuts, wf_error *error);

/** wf_all_gather - gathers every member's in: elements [cuts[i], cuts[i+1]) of out are member
 * i's. Collective: over comm. */
WF_API wf_status wf_all_gather(wf_comm *comm, size_t element, const void *in, void *out,
                               const int64_t *cuts, wf_error *error);

/** wf_all_to_all - exchanges blocks between all members, as experts and context parallelism do:
 * block i of out is block `rank` of member i's in. Collective: over comm. */
WF_API wf_status wf_all_to_all(wf_comm *comm, size_t element, const void *in,
                               const int64_t *in_cuts, void *out, const int64_t *out_cuts,
                               wf_error *error);

/** wf_broadcast - copies the root's buffer to every member. Collective: over comm. */
WF_API wf_status wf_broadcast(wf_comm *comm, size_t element, int root, void *buffer,
                              int64_t count, wf_error *error);

/** wf_send - sends to one member, which receives as much; returns when it has. */
WF_API wf_status wf_send(wf_comm *comm, size_t element, int to, const void *buffer,
                         int64_t count, wf_error *error);

/** wf_recv - receives the next message of one member. */
WF_API wf_status wf_recv(wf_comm *comm, size_t element, int from, void *buffer, int64_t count,
                         wf_error *error);

/** wf_barrier - waits until every member has called it. Collective: over comm. */
WF_API wf_status wf_barrier(wf_comm *comm, wf_error *error);

WF_END_DECLS

#endif
