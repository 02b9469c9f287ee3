/* Deciding, for each of the four collectives. */
#include "offload.h"
#include "comm_table.h"
#include "fault_tolerance.h"
#include "maps.h"

#include <limits.h>

/* The record of `comm`, which is nearly always in the table. Null: let MPI judge this handle. */
static inline comm_record *find(MPI_Comm comm) {
    comm_record *record = comm_table_find(comm);
    return __builtin_expect(record != NULL, 1) ? record : communicators_find(comm);
}

/* No reason to pass the call on. */
#define OFFLOAD_IT TRIBUTARY_PASS_REASONS

/* Brings a communicator that isn't simply ready into the state it has for this operation. */
static comm_state settle(comm_record *record, offload_mode mode) {
    comm_state state = atomic_load_explicit(&record->state, memory_order_relaxed);
    if (state != COMM_PASSES && fault_tolerance_is_on() &&
        fault_tolerance_is_revoked(record->comm)) {
        communicators_revoked(record);
    } else if (state == COMM_LATE && mode == OFFLOAD_BLOCKING) {
        communicators_join(record);
    }
    return atomic_load_explicit(&record->state, memory_order_relaxed);
}

/* decide() for a communicator that isn't simply ready, or arguments that aren't ours. */
static __attribute__((noinline)) comm_record *decide_slowly(comm_record *record,
                                                            uint32_t collective, uint32_t reason,
                                                            offload_mode mode) {
    if (reason == OFFLOAD_IT) {
        comm_state state = settle(record, mode);
        if (state == COMM_READY || state == COMM_WATCHED) {
            return record;
        }
        reason = atomic_load_explicit(&record->pass_reason, memory_order_relaxed);
    }
    /* What the program asked for comes before what the communicator can't do. */
    tributary_count_passed(record->core, collective, reason);
    return NULL;
}

/* The record, if the operation is to be run on it; `reason` is what its arguments say. */
static inline comm_record *decide(comm_record *record, uint32_t collective, uint32_t reason,
                                  offload_mode mode) {
    /* Acquire pairs with the release in communicators_join(). */
    comm_state state = atomic_load_explicit(&record->state, memory_order_acquire);
    bool is_plain = state == COMM_READY && reason == OFFLOAD_IT;
    return __builtin_expect(is_plain, 1) ? record
                                         : decide_slowly(record, collective, reason, mode);
}

/* What datatype, operator and count say; fills those fields of `operation`. */
static inline __attribute__((always_inline)) uint32_t judge_reduction(MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                                tributary_operation *operation) {
    operation->operator_ = maps_operator(op);
    if (operation->operator_ == 0) {
        return op == MPI_OP_NULL ? TRIBUTARY_PASS_ARGUMENTS : TRIBUTARY_PASS_USER_OPERATOR;
    }
    const datatype_entry *entry = maps_datatype(datatype);
    if (entry == NULL || entry->datatype == 0) {
        return datatype == MPI_DATATYPE_NULL ? TRIBUTARY_PASS_ARGUMENTS : TRIBUTARY_PASS_DATATYPE;
    }
    operation->datatype = entry->datatype;
    if ((entry->operators >> operation->operator_ & 1) == 0) {
        return TRIBUTARY_PASS_COMBINATION;
    }
    if (count <= 0) {
        return count == 0 ? TRIBUTARY_PASS_EMPTY : TRIBUTARY_PASS_ARGUMENTS;
    }
    operation->elements = (uint64_t)count;
    return OFFLOAD_IT;
}

/* MPI has no buffer at the null address, except through derived datatypes, which aren't here. */
static bool is_buffer(const void *buffer) {
    return buffer != NULL && buffer != MPI_IN_PLACE;
}

comm_record *offload_allreduce(const void *sendbuf, void *recvbuf, MPI_Count count,
                               MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, offload_mode mode,
                               tributary_operation *operation) {
    comm_record *record = find(comm);
    if (record == NULL) {
        return NULL;
    }
    uint32_t reason = judge_reduction(count, datatype, op, operation);
    bool in_place = sendbuf == MPI_IN_PLACE;
    if (reason == OFFLOAD_IT &&
        (!is_buffer(recvbuf) || sendbuf == NULL || (!in_place && sendbuf == recvbuf))) {
        reason = TRIBUTARY_PASS_ARGUMENTS;
    }
    operation->collective = TRIBUTARY_ALLREDUCE;
    operation->root = 0;
    operation->source = in_place ? recvbuf : sendbuf;
    operation->target = recvbuf;
    return decide(record, TRIBUTARY_ALLREDUCE, reason, mode);
}

static bool reduce_buffers_are_valid(const void *sendbuf, void *recvbuf, bool is_root) {
    if (!is_root) {
        return is_buffer(sendbuf);
    }
    return sendbuf != NULL && is_buffer(recvbuf) && sendbuf != recvbuf;
}

comm_record *offload_reduce(const void *sendbuf, void *recvbuf, MPI_Count count,
                            MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm,
                            offload_mode mode, tributary_operation *operation) {
    comm_record *record = find(comm);
    if (record == NULL) {
        return NULL;
    }
    uint32_t reason = judge_reduction(count, datatype, op, operation);
    bool is_root = root == record->rank;
    if (reason == OFFLOAD_IT && (root < 0 || root >= record->size ||
                                 !reduce_buffers_are_valid(sendbuf, recvbuf, is_root))) {
        reason = TRIBUTARY_PASS_ARGUMENTS;
    }
    operation->collective = TRIBUTARY_REDUCE;
    operation->root = (uint32_t)root;
    operation->source = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
    operation->target = is_root ? recvbuf : NULL;
    return decide(record, TRIBUTARY_REDUCE, reason, mode);
}

comm_record *offload_barrier(MPI_Comm comm, offload_mode mode, tributary_operation *operation) {
    comm_record *record = find(comm);
    if (record == NULL) {
        return NULL;
    }
    *operation = (tributary_operation){
        .collective = TRIBUTARY_BARRIER,
        .datatype = TRIBUTARY_U8,
        .operator_ = TRIBUTARY_BARRIER_OPERATOR,
    };
    return decide(record, TRIBUTARY_BARRIER, OFFLOAD_IT, mode);
}

/* Bytes of one element and whether elements lie densely; false when MPI must judge the datatype. */
static bool element_of(MPI_Datatype datatype, int64_t *size_bytes, bool *dense) {
    const datatype_entry *entry = maps_datatype(datatype);
    if (entry != NULL && entry->size_bytes != 0) {
        *size_bytes = entry->size_bytes;
        *dense = true;
        return true;
    }
    int size = MPI_UNDEFINED;
    *dense = false;
    if (datatype == MPI_DATATYPE_NULL || !staging_accepts(datatype) ||
        beneath.Type_size(datatype, &size) != MPI_SUCCESS) {
        return false;
    }
    *size_bytes = size != MPI_UNDEFINED ? size : INT64_MAX;
    return true;
}

/*
 * The limit and the check of MPI_Pack hold for dense types as well, because another rank may
 * describe the same bytes by a type that must be packed.
 */
static uint32_t judge_broadcast(MPI_Count count, MPI_Datatype datatype,
                                tributary_operation *operation, bool *dense) {
    int64_t size_bytes = 0;
    int64_t total_bytes = 0;
    if (count < 0 || !element_of(datatype, &size_bytes, dense)) {
        return TRIBUTARY_PASS_ARGUMENTS;
    }
    if (__builtin_mul_overflow(size_bytes, (int64_t)count, &total_bytes) || total_bytes > INT_MAX) {
        return TRIBUTARY_PASS_TOO_LONG;
    }
    operation->elements = (uint64_t)total_bytes;
    if (total_bytes == 0) {
        return TRIBUTARY_PASS_EMPTY;
    }
    return staging_is_possible() ? OFFLOAD_IT : TRIBUTARY_PASS_DATATYPE;
}

comm_record *offload_broadcast(void *buffer, MPI_Count count, MPI_Datatype datatype, int root,
                               MPI_Comm comm, offload_mode mode, tributary_operation *operation,
                               staging *through) {
    comm_record *record = find(comm);
    if (record == NULL) {
        return NULL;
    }
    bool dense = false;
    uint32_t reason = judge_broadcast(count, datatype, operation, &dense);
    if (reason == OFFLOAD_IT &&
        (root < 0 || root >= record->size || buffer == MPI_IN_PLACE || (dense && buffer == NULL))) {
        reason = TRIBUTARY_PASS_ARGUMENTS;
    }
    operation->collective = TRIBUTARY_BROADCAST;
    operation->root = (uint32_t)root;
    operation->datatype = TRIBUTARY_U8;
    operation->operator_ = TRIBUTARY_BROADCAST_OPERATOR;
    operation->source = buffer;
    operation->target = buffer;
    *through = (staging){
        .needed = !dense,
        .is_root = root == record->rank,
        .user = buffer,
        .count = (int)count,
        .datatype = datatype,
        .len_bytes = (int)operation->elements,
    };
    return decide(record, TRIBUTARY_BROADCAST, reason, mode);
}
