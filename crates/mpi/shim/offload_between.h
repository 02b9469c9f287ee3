/*
 * Decides for the collectives that are offloaded between hosts too. In a header: for an operation of a
 * few bytes, a call more would cost measurable time.
 */
#ifndef TRIBUTARY_OFFLOAD_BETWEEN_H
#define TRIBUTARY_OFFLOAD_BETWEEN_H

#include "deciding.h"

#include <limits.h>

/* Inlined, so that the fast path keeps the operation's fields in registers. */
#define OFFLOAD_INLINE inline __attribute__((always_inline))

static OFFLOAD_INLINE comm_record *offload_allreduce(const void *sendbuf, void *recvbuf,
                                                     MPI_Count count, MPI_Datatype datatype,
                                                     MPI_Op op, MPI_Comm comm, offload_mode mode,
                                                     tributary_operation *operation) {
    comm_record *record = find(comm);
    if (record == NULL) {
        return NULL;
    }
    verdict judged = judge_reduction(count, datatype, op, operation);
    bool in_place = sendbuf == MPI_IN_PLACE;
    if (!verdict_passes(judged) &&
        (!is_buffer(recvbuf) || sendbuf == NULL || (!in_place && sendbuf == recvbuf))) {
        judged = verdict_pass(TRIBUTARY_PASS_ARGUMENTS);
    }
    operation->collective = TRIBUTARY_ALLREDUCE;
    operation->root = 0;
    operation->source = in_place ? recvbuf : sendbuf;
    operation->target = recvbuf;
    return decide(record, TRIBUTARY_ALLREDUCE, judged, mode, operation);
}

static inline bool reduce_buffers_are_valid(const void *sendbuf, void *recvbuf, bool is_root) {
    if (!is_root) {
        return is_buffer(sendbuf);
    }
    return sendbuf != NULL && is_buffer(recvbuf) && sendbuf != recvbuf;
}

static OFFLOAD_INLINE comm_record *offload_reduce(const void *sendbuf, void *recvbuf,
                                                  MPI_Count count, MPI_Datatype datatype,
                                                  MPI_Op op, int root, MPI_Comm comm,
                                                  offload_mode mode,
                                                  tributary_operation *operation) {
    comm_record *record = find(comm);
    if (record == NULL) {
        return NULL;
    }
    verdict judged = judge_reduction(count, datatype, op, operation);
    bool is_root = root == record->rank;
    if (!verdict_passes(judged) && (root < 0 || root >= record->size ||
                                    !reduce_buffers_are_valid(sendbuf, recvbuf, is_root))) {
        judged = verdict_pass(TRIBUTARY_PASS_ARGUMENTS);
    }
    operation->collective = TRIBUTARY_REDUCE;
    operation->root = (uint32_t)root;
    operation->source = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
    operation->target = is_root ? recvbuf : NULL;
    return decide(record, TRIBUTARY_REDUCE, judged, mode, operation);
}

static OFFLOAD_INLINE comm_record *offload_barrier(MPI_Comm comm, offload_mode mode,
                                                   tributary_operation *operation) {
    comm_record *record = find(comm);
    if (record == NULL) {
        return NULL;
    }
    operation->collective = TRIBUTARY_BARRIER;
    operation->root = 0;
    operation->datatype = TRIBUTARY_U8;
    operation->operator_ = TRIBUTARY_BARRIER_OPERATOR;
    operation->elements = 0;
    operation->source = NULL;
    operation->target = NULL;
    operation->combiner = no_combiner();
    return decide(record, TRIBUTARY_BARRIER, VERDICT_OFFLOAD, mode, operation);
}

/*
 * The limit and the check of MPI_Pack apply to dense types too: another rank may describe the same bytes
 * by a type that must be packed.
 */
static OFFLOAD_INLINE verdict judge_broadcast(MPI_Count count, MPI_Datatype datatype,
                                               tributary_operation *operation, bool *dense) {
    int64_t size_bytes = 0;
    int64_t total_bytes = 0;
    if (count < 0 || !element_of(datatype, &size_bytes, dense)) {
        return verdict_pass(TRIBUTARY_PASS_ARGUMENTS);
    }
    if (__builtin_mul_overflow(size_bytes, (int64_t)count, &total_bytes) || total_bytes > INT_MAX) {
        return verdict_pass(TRIBUTARY_PASS_TOO_LONG);
    }
    operation->elements = (uint64_t)total_bytes;
    if (total_bytes == 0) {
        return verdict_pass(TRIBUTARY_PASS_EMPTY);
    }
    return staging_is_possible() ? VERDICT_OFFLOAD : verdict_pass(TRIBUTARY_PASS_DATATYPE);
}

static OFFLOAD_INLINE comm_record *offload_broadcast(void *buffer, MPI_Count count,
                                                     MPI_Datatype datatype, int root,
                                                     MPI_Comm comm, offload_mode mode,
                                                     tributary_operation *operation,
                                                     staging *through) {
    comm_record *record = find(comm);
    if (record == NULL) {
        return NULL;
    }
    bool dense = false;
    verdict judged = judge_broadcast(count, datatype, operation, &dense);
    if (!verdict_passes(judged) &&
        (root < 0 || root >= record->size || buffer == MPI_IN_PLACE || (dense && buffer == NULL))) {
        judged = verdict_pass(TRIBUTARY_PASS_ARGUMENTS);
    }
    operation->collective = TRIBUTARY_BROADCAST;
    operation->root = (uint32_t)root;
    operation->datatype = TRIBUTARY_U8;
    operation->operator_ = TRIBUTARY_BROADCAST_OPERATOR;
    operation->combiner = no_combiner();
    operation->source = buffer;
    operation->target = buffer;
    /* Nobody reads the other fields unless one of these holds. */
    bool in_pieces = mode == OFFLOAD_BLOCKING && operation->elements > STAGING_PIECE_BYTES;
    through->needed = !dense || in_pieces;
    through->needs_cuts = false;
    if (through->needed) {
        const staging_side elements = {.user = buffer, .count = (int)count, .datatype = datatype};
        *through = (staging){
            .needed = true,
            .in_pieces = in_pieces,
            .is_dense = dense,
            .packs = root == record->rank,
            .unpacks = root != record->rank,
            .from = elements,
            .to = elements,
            .len_bytes = (int)operation->elements,
        };
    }
    return decide(record, TRIBUTARY_BROADCAST, judged, mode, operation);
}

#endif
