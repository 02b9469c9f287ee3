/* The blocking collectives that go between hosts as well. */
#include "blocking.h"
#include "offload_between.h"
#include "shim.h"

/*
 * The short way first. What it refuses is run as a whole operation, which is passed by value: so nothing
 * of it has to be in memory before.
 */
static __attribute__((noinline)) int run_whole(comm_record *record, tributary_operation operation) {
    return run(record, &operation);
}

static inline int run_allreduce(comm_record *record, tributary_operation operation) {
    uint32_t pair = TRIBUTARY_PAIR(operation.operator_, operation.datatype);
    int outcome = tributary_express_allreduce(record->core, pair, operation.elements,
                                              operation.source, operation.target);
    return outcome == TRIBUTARY_EXPRESS_DONE ? MPI_SUCCESS : run_whole(record, operation);
}

static inline int run_reduce(comm_record *record, tributary_operation operation) {
    uint32_t pair = TRIBUTARY_PAIR(operation.operator_, operation.datatype);
    int outcome = tributary_express_reduce(record->core, pair, operation.elements, operation.root,
                                           operation.source, operation.target);
    return outcome == TRIBUTARY_EXPRESS_DONE ? MPI_SUCCESS : run_whole(record, operation);
}

static __attribute__((noinline)) int run_whole_through(comm_record *record,
                                                       tributary_operation operation,
                                                       staging *through) {
    return run_through(record, &operation, through);
}

static inline int run_broadcast(comm_record *record, tributary_operation operation,
                                staging *through) {
    if (staging_is_idle(through) &&
        tributary_express_broadcast(record->core, operation.elements, operation.root,
                                    operation.target) == TRIBUTARY_EXPRESS_DONE) {
        return MPI_SUCCESS;
    }
    return run_whole_through(record, operation, through);
}

static inline int run_barrier(comm_record *record, tributary_operation operation) {
    return tributary_express_barrier(record->core) == TRIBUTARY_EXPRESS_DONE
               ? MPI_SUCCESS
               : run_whole(record, operation);
}

/* The forms with int and with MPI_Count differ in nothing else. */
#define ALLREDUCE(name, count_type)                                                                \
    INTERPOSE(name,                                                                                \
              (const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype,        \
               MPI_Op op, MPI_Comm comm),                                                          \
              (sendbuf, recvbuf, count, datatype, op, comm)) {                                     \
        tributary_operation operation;                                                             \
        comm_record *record = offload_allreduce(sendbuf, recvbuf, count, datatype, op, comm,       \
                                                OFFLOAD_BLOCKING, &operation);                     \
        return record != NULL ? run_allreduce(record, operation)                                   \
                              : beneath.name(sendbuf, recvbuf, count, datatype, op, comm);         \
    }

#define REDUCE(name, count_type)                                                                   \
    INTERPOSE(name,                                                                                \
              (const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype,        \
               MPI_Op op, int root, MPI_Comm comm),                                                \
              (sendbuf, recvbuf, count, datatype, op, root, comm)) {                               \
        tributary_operation operation;                                                             \
        comm_record *record = offload_reduce(sendbuf, recvbuf, count, datatype, op, root, comm,    \
                                             OFFLOAD_BLOCKING, &operation);                        \
        return record != NULL ? run_reduce(record, operation)                                      \
                              : beneath.name(sendbuf, recvbuf, count, datatype, op, root, comm);   \
    }

#define BCAST(name, count_type)                                                                    \
    INTERPOSE(name,                                                                                \
              (void *buffer, count_type count, MPI_Datatype datatype, int root, MPI_Comm comm),    \
              (buffer, count, datatype, root, comm)) {                                             \
        tributary_operation operation;                                                             \
        staging through;                                                                           \
        comm_record *record = offload_broadcast(buffer, count, datatype, root, comm,               \
                                                OFFLOAD_BLOCKING, &operation, &through);           \
        return record != NULL ? run_broadcast(record, operation, &through)                         \
                              : beneath.name(buffer, count, datatype, root, comm);                 \
    }

ALLREDUCE(Allreduce, int)
REDUCE(Reduce, int)
BCAST(Bcast, int)

#if MPI_VERSION >= 4
ALLREDUCE(Allreduce_c, MPI_Count)
REDUCE(Reduce_c, MPI_Count)
BCAST(Bcast_c, MPI_Count)
#endif

INTERPOSE(Barrier, (MPI_Comm comm), (comm)) {
    tributary_operation operation;
    comm_record *record = offload_barrier(comm, OFFLOAD_BLOCKING, &operation);
    return record != NULL ? run_barrier(record, operation) : beneath.Barrier(comm);
}
