/* What all offload decisions share. Only the files named offload_* include it. */
#ifndef TRIBUTARY_DECIDING_H
#define TRIBUTARY_DECIDING_H

#include "combining.h"
#include "comm_table.h"
#include "maps.h"
#include "offload.h"
#include "staging.h"

/* The record of `comm`, which is nearly always in the table. Null: MPI must judge this handle. */
static inline comm_record *find(MPI_Comm comm) {
    comm_record *record = comm_table_find(comm);
    return __builtin_expect(record != NULL, 1) ? record : communicators_find(comm);
}

/*
 * decide() for a communicator that is not COMM_READY, for arguments that are not offloaded, and where only
 * MPI can combine the elements. `element_bytes` is then their size, and `elements` how many one rank
 * contributes. `source` and `target` are the program's buffers, or null.
 */
comm_record *decide_slowly(comm_record *record, uint32_t collective, verdict judged,
                           uint32_t element_bytes, uint64_t elements, offload_mode mode,
                           const void *source, const void *target);

/* The record, if the operation is offloaded; else it counts the call as passed on. */
static inline __attribute__((always_inline)) comm_record *
decide(comm_record *record, uint32_t collective, verdict judged, offload_mode mode,
       const tributary_operation *operation) {
    /* Acquire pairs with the release in communicators_join(). */
    comm_state state = atomic_load_explicit(&record->state, memory_order_acquire);
    bool is_plain = state == COMM_READY && judged == VERDICT_OFFLOAD;
    return __builtin_expect(is_plain, 1) ? record
                                         : decide_slowly(record, collective, judged,
                                                         operation->combiner.element_bytes,
                                                         operation->elements, mode,
                                                         operation->source, operation->target);
}

/* Of an operation that has a kernel, or reduces nothing. */
static inline tributary_combiner no_combiner(void) {
    return (tributary_combiner){.combine = NULL};
}

/* judge_reduction() where MPI has to combine the elements. */
static inline __attribute__((always_inline)) verdict
judge_combining(MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                tributary_operation *operation) {
    combining_elements elements = combining_judge(datatype, op);
    if (verdict_passes(elements.judged)) {
        return elements.judged;
    }
    if (count <= 0) {
        return verdict_pass(count == 0 ? TRIBUTARY_PASS_EMPTY : TRIBUTARY_PASS_ARGUMENTS);
    }
    operation->elements = (uint64_t)count;
    operation->combiner.combine = combining_call;
    operation->combiner.context[0] = (void *)(uintptr_t)datatype;
    operation->combiner.context[1] = (void *)(uintptr_t)op;
    operation->combiner.element_bytes = elements.bytes;
    operation->combiner.commutes = elements.judged == VERDICT_COMBINE;
    /* As constants: the compiler then knows that no kernel runs. */
    return operation->combiner.commutes ? VERDICT_COMBINE : VERDICT_COMBINE_IN_ORDER;
}

/* judge_reduction() where there is no kernel. */
static inline __attribute__((always_inline)) verdict
judge_without_kernel(MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                     tributary_operation *operation) {
    if (op == MPI_OP_NULL || datatype == MPI_DATATYPE_NULL) {
        return verdict_pass(TRIBUTARY_PASS_ARGUMENTS);
    }
    operation->operator_ = maps_operator(op);
    const datatype_entry *entry = maps_datatype(datatype);
    bool has_both = operation->operator_ != 0 && entry != NULL && entry->datatype != 0;
    return has_both ? verdict_pass(TRIBUTARY_PASS_COMBINATION)
                    : judge_combining(count, datatype, op, operation);
}

/* The verdict on datatype, operator and count; fills those fields of `operation`. */
static inline __attribute__((always_inline)) verdict
judge_reduction(MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                tributary_operation *operation) {
    operation->combiner = no_combiner();
    const pair_entry *pair = maps_pair(datatype, op);
    if (__builtin_expect(pair == NULL, 0)) {
        return judge_without_kernel(count, datatype, op, operation);
    }
    operation->operator_ = pair->operator_;
    operation->datatype = pair->datatype;
    if (count <= 0) {
        return verdict_pass(count == 0 ? TRIBUTARY_PASS_EMPTY : TRIBUTARY_PASS_ARGUMENTS);
    }
    operation->elements = (uint64_t)count;
    return VERDICT_OFFLOAD;
}

/* No buffer is at the null address, except of derived datatypes, which do not come here. */
static inline bool is_buffer(const void *buffer) {
    return buffer != NULL && buffer != MPI_IN_PLACE;
}

/* element_of() for a datatype that is not in the table, or has gaps. */
bool element_of_unusual(MPI_Datatype datatype, int64_t *size_bytes, bool *dense);

/*
 * Bytes of one element, and whether elements lie densely in the order of the type map. False: MPI must
 * judge the datatype.
 */
static inline bool element_of(MPI_Datatype datatype, int64_t *size_bytes, bool *dense) {
    const datatype_entry *entry = maps_datatype(datatype);
    if (entry == NULL || entry->size_bytes == 0) {
        return element_of_unusual(datatype, size_bytes, dense);
    }
    *size_bytes = entry->size_bytes;
    *dense = true;
    return true;
}

#endif
