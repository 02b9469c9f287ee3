/* Deciding, for the collectives that go between hosts as well. */
#include "offload.h"
#include "deciding.h"
#include "fault_tolerance.h"

#include <limits.h>

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

__attribute__((noinline)) comm_record *decide_slowly(comm_record *record, uint32_t collective,
                                                     uint32_t reason, offload_mode mode) {
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

/* How deep a type made by MPI_Type_contiguous of another is looked into. */
#define NESTED_MAX 4

#if MPI_VERSION >= 4
/* Types may have been made with counts that the form with int refuses to tell. */
typedef MPI_Count type_count;
#else
typedef int type_count;
#endif

/* What MPI_Type_contiguous or MPI_Type_dup made `datatype` of; MPI_DATATYPE_NULL if neither did. */
static MPI_Datatype made_of(MPI_Datatype datatype) {
    int combiner = MPI_COMBINER_NAMED;
    MPI_Datatype inner = MPI_DATATYPE_NULL;
    MPI_Aint no_address = 0;
    int number = 0;
    type_count integers = 0;
    type_count addresses = 0;
    type_count datatypes = 0;
#if MPI_VERSION >= 4
    MPI_Count count = 0;
    MPI_Count counts = 0;
    int error = beneath.Type_get_envelope_c(datatype, &integers, &addresses, &counts, &datatypes,
                                            &combiner);
    bool is_one = integers + counts <= 1 && addresses == 0 && datatypes == 1;
#else
    int error =
        beneath.Type_get_envelope(datatype, &integers, &addresses, &datatypes, &combiner);
    bool is_one = integers <= 1 && addresses == 0 && datatypes == 1;
#endif
    if (error != MPI_SUCCESS || !is_one ||
        (combiner != MPI_COMBINER_CONTIGUOUS && combiner != MPI_COMBINER_DUP)) {
        return MPI_DATATYPE_NULL;
    }
#if MPI_VERSION >= 4
    error = beneath.Type_get_contents_c(datatype, integers, addresses, counts, datatypes, &number,
                                        &no_address, &count, &inner);
#else
    error = beneath.Type_get_contents(datatype, integers, addresses, datatypes, &number,
                                      &no_address, &inner);
#endif
    return error == MPI_SUCCESS ? inner : MPI_DATATYPE_NULL;
}

/* Whether a committed type that isn't in the table is a row of elements that lie densely. */
static bool is_dense_row(MPI_Datatype datatype, int depth) {
    MPI_Datatype inner = made_of(datatype);
    if (inner == MPI_DATATYPE_NULL) {
        return false;
    }
    const datatype_entry *entry = maps_datatype(inner);
    if (entry != NULL) {
        return entry->size_bytes != 0; /* predefined: nothing to free */
    }
    bool dense = depth < NESTED_MAX && is_dense_row(inner, depth + 1);
    int named = MPI_COMBINER_NAMED;
    int ignored[3];
    /* A predefined type that the table lacks must not be freed. */
    bool is_made = beneath.Type_get_envelope(inner, &ignored[0], &ignored[1], &ignored[2],
                                             &named) != MPI_SUCCESS ||
                   named != MPI_COMBINER_NAMED;
    if (is_made) {
        beneath.Type_free(&inner);
    }
    return dense;
}

bool element_of(MPI_Datatype datatype, int64_t *size_bytes, bool *dense) {
    const datatype_entry *entry = maps_datatype(datatype);
    if (entry != NULL && entry->size_bytes != 0) {
        *size_bytes = entry->size_bytes;
        *dense = true;
        return true;
    }
    int size = MPI_UNDEFINED;
    if (datatype == MPI_DATATYPE_NULL || !staging_accepts(datatype) ||
        beneath.Type_size(datatype, &size) != MPI_SUCCESS) {
        return false;
    }
    *size_bytes = size != MPI_UNDEFINED ? size : INT64_MAX;
    *dense = entry == NULL && is_dense_row(datatype, 0);
    return true;
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
    /* The rest of it is looked at only where one of these holds. */
    through->needed = !dense;
    through->needs_cuts = false;
    if (!dense) {
        const staging_side elements = {.user = buffer, .count = (int)count, .datatype = datatype};
        *through = (staging){
            .needed = true,
            .packs = root == record->rank,
            .unpacks = root != record->rank,
            .from = elements,
            .to = elements,
            .len_bytes = (int)operation->elements,
        };
    }
    return decide(record, TRIBUTARY_BROADCAST, reason, mode);
}
