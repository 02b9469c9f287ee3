/* The blocking collectives that go between hosts as well. */
#include "blocking.h"
#include "offload.h"
#include "shim.h"

/* The forms with int and with MPI_Count differ in nothing else. */
#define ALLREDUCE(name, count_type)                                                                \
    INTERPOSE(name,                                                                                \
              (const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype,        \
               MPI_Op op, MPI_Comm comm),                                                          \
              (sendbuf, recvbuf, count, datatype, op, comm)) {                                     \
        tributary_operation operation;                                                             \
        comm_record *record = offload_allreduce(sendbuf, recvbuf, count, datatype, op, comm,       \
                                                OFFLOAD_BLOCKING, &operation);                     \
        return record != NULL ? run(record, &operation)                                            \
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
        return record != NULL ? run(record, &operation)                                            \
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
        return record != NULL ? run_through(record, &operation, &through)                        \
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
    return record != NULL ? run(record, &operation) : beneath.Barrier(comm);
}
