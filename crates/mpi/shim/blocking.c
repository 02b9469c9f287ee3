/* The blocking collectives that are offloaded between hosts too. */
#include "blocking.h"
#include "offload_between.h"
#include "shim.h"
#include "timing.h"

/*
 * A communicator whose ranks are on one host takes the fast path, unless only MPI can combine the elements or a
 * clock runs: arguments in registers, nothing of the operation in memory. Others copy the operation, field by
 * field: if its own address were taken, or it were passed whole, the fast path would have to keep it in memory too.
 */
static __attribute__((noinline)) int run_copy(comm_record *record, tributary_operation *copy,
                                              staging *through) {
    return run(record, copy, through);
}

static inline __attribute__((always_inline)) int
run_through(comm_record *record, tributary_operation operation, staging *through) {
    tributary_operation copy = {
        .collective = operation.collective,
        .root = operation.root,
        .datatype = operation.datatype,
        .operator_ = operation.operator_,
        .elements = operation.elements,
        .source = operation.source,
        .target = operation.target,
        .combiner = {.combine = operation.combiner.combine,
                     .context = {operation.combiner.context[0], operation.combiner.context[1]},
                     .element_bytes = operation.combiner.element_bytes,
                     .commutes = operation.combiner.commutes},
    };
    return run_copy(record, &copy, through);
}

static inline int run_plainly(comm_record *record, tributary_operation operation) {
    static staging nothing_needed; /* and so nobody writes to it */
    return run_through(record, operation, &nothing_needed);
}

static inline bool takes_fast_path(const comm_record *record) {
    return __builtin_expect(record->takes_fast_path, 1);
}

static inline bool reduces_on_fast_path(const comm_record *record,
                                        const tributary_operation *operation) {
    return takes_fast_path(record) &&
           __builtin_expect(operation->combiner.combine == NULL, 1);
}

/* The MPI error code of what the fast path returned. */
static inline int finish(comm_record *record, int outcome) {
    return __builtin_expect(outcome == 0, 1) ? MPI_SUCCESS : failure_raise(record, outcome);
}

static inline int run_allreduce(comm_record *record, tributary_operation operation) {
    if (!reduces_on_fast_path(record, &operation)) {
        return run_plainly(record, operation);
    }
    uint32_t pair = TRIBUTARY_PAIR(operation.operator_, operation.datatype);
    return finish(record, tributary_allreduce(record->core, pair, operation.elements,
                                              operation.source, operation.target));
}

static inline int run_reduce(comm_record *record, tributary_operation operation) {
    if (!reduces_on_fast_path(record, &operation)) {
        return run_plainly(record, operation);
    }
    uint32_t pair = TRIBUTARY_PAIR(operation.operator_, operation.datatype);
    return finish(record, tributary_reduce(record->core, pair, operation.elements, operation.root,
                                           operation.source, operation.target));
}

static inline int run_broadcast(comm_record *record, tributary_operation operation,
                                staging *through) {
    if (!takes_fast_path(record) || !staging_is_idle(through)) {
        return run_through(record, operation, through);
    }
    return finish(record, tributary_broadcast(record->core, operation.elements, operation.root,
                                              operation.target));
}

static inline int run_barrier(comm_record *record, tributary_operation operation) {
    return takes_fast_path(record) ? finish(record, tributary_barrier(record->core))
                                   : run_plainly(record, operation);
}

/* The forms with int and with MPI_Count differ only in the type of the count. */
#define ALLREDUCE(name, count_type)                                                                \
    TIMED(name,                                                                                    \
          (const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype, MPI_Op op, \
           MPI_Comm comm),                                                                         \
          (sendbuf, recvbuf, count, datatype, op, comm), TRIBUTARY_ALLREDUCE, 0,                    \
          timing_len_bytes(count, datatype))                                                       \
    INTERPOSE(name,                                                                                \
              (const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype,        \
               MPI_Op op, MPI_Comm comm)) {                                                        \
        tributary_operation operation;                                                             \
        comm_record *record = offload_allreduce(sendbuf, recvbuf, count, datatype, op, comm,       \
                                                OFFLOAD_BLOCKING, &operation);                     \
        return record != NULL ? run_allreduce(record, operation)                                   \
                              : PASS_ON(name, (sendbuf, recvbuf, count, datatype, op, comm));      \
    }

#define REDUCE(name, count_type)                                                                   \
    TIMED(name,                                                                                    \
          (const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype, MPI_Op op, \
           int root, MPI_Comm comm),                                                               \
          (sendbuf, recvbuf, count, datatype, op, root, comm), TRIBUTARY_REDUCE, root,             \
          timing_rooted_bytes(root, count, datatype))                                              \
    INTERPOSE(name,                                                                                \
              (const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype,        \
               MPI_Op op, int root, MPI_Comm comm)) {                                              \
        tributary_operation operation;                                                             \
        comm_record *record = offload_reduce(sendbuf, recvbuf, count, datatype, op, root, comm,    \
                                             OFFLOAD_BLOCKING, &operation);                        \
        return record != NULL                                                                      \
                   ? run_reduce(record, operation)                                                 \
                   : PASS_ON(name, (sendbuf, recvbuf, count, datatype, op, root, comm));           \
    }

#define BCAST(name, count_type)                                                                    \
    TIMED(name, (void *buffer, count_type count, MPI_Datatype datatype, int root, MPI_Comm comm),  \
          (buffer, count, datatype, root, comm), TRIBUTARY_BROADCAST, root,                        \
          timing_rooted_bytes(root, count, datatype))                                              \
    INTERPOSE(name,                                                                                \
              (void *buffer, count_type count, MPI_Datatype datatype, int root, MPI_Comm comm)) {  \
        tributary_operation operation;                                                             \
        staging through;                                                                           \
        comm_record *record = offload_broadcast(buffer, count, datatype, root, comm,               \
                                                OFFLOAD_BLOCKING, &operation, &through);           \
        return record != NULL ? run_broadcast(record, operation, &through)                         \
                              : PASS_ON(name, (buffer, count, datatype, root, comm));              \
    }

ALLREDUCE(Allreduce, int)
REDUCE(Reduce, int)
BCAST(Bcast, int)

ALLREDUCE(Allreduce_c, MPI_Count)
REDUCE(Reduce_c, MPI_Count)
BCAST(Bcast_c, MPI_Count)

TIMED(Barrier, (MPI_Comm comm), (comm), TRIBUTARY_BARRIER, 0, 0)

INTERPOSE(Barrier, (MPI_Comm comm)) {
    tributary_operation operation;
    comm_record *record = offload_barrier(comm, OFFLOAD_BLOCKING, &operation);
    return record != NULL ? run_barrier(record, operation) : PASS_ON(Barrier, (comm));
}
