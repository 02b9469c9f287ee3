/* The nonblocking collectives that are offloaded between hosts too. */
#include "offload_between.h"
#include "pending.h"
#include "shim.h"

#define IALLREDUCE(name, count_type)                                                               \
    INTERPOSE(name,                                                                                \
              (const void *sendbuf, void *recvbuf, count_type count,                               \
               MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,                                    \
               MPI_Request *request)) {                                                            \
        tributary_operation operation;                                                             \
        comm_record *record = offload_allreduce(sendbuf, recvbuf, count, datatype, op, comm,       \
                                                OFFLOAD_NONBLOCKING, &operation);                  \
        return record != NULL                                                                      \
                   ? pending_start(record, &operation, NULL, request)                              \
                   : underlying.name(sendbuf, recvbuf, count, datatype, op, comm, request);        \
    }

#define IREDUCE(name, count_type)                                                                  \
    INTERPOSE(name,                                                                                \
              (const void *sendbuf, void *recvbuf, count_type count,                               \
               MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm,                          \
               MPI_Request *request)) {                                                            \
        tributary_operation operation;                                                             \
        comm_record *record = offload_reduce(sendbuf, recvbuf, count, datatype, op, root, comm,    \
                                             OFFLOAD_NONBLOCKING, &operation);                     \
        return record != NULL                                                                      \
                   ? pending_start(record, &operation, NULL, request)                              \
                   : underlying.name(sendbuf, recvbuf, count, datatype, op, root, comm, request);  \
    }

#define IBCAST(name, count_type)                                                                   \
    INTERPOSE(name,                                                                                \
              (void *buffer, count_type count, MPI_Datatype datatype, int root,                    \
               MPI_Comm comm, MPI_Request *request)) {                                             \
        tributary_operation operation;                                                             \
        staging through;                                                                           \
        comm_record *record = offload_broadcast(buffer, count, datatype, root, comm,               \
                                                OFFLOAD_NONBLOCKING, &operation, &through);        \
        return record != NULL ? pending_start(record, &operation, &through, request)               \
                              : underlying.name(buffer, count, datatype, root, comm, request);     \
    }

IALLREDUCE(Iallreduce, int)
IREDUCE(Ireduce, int)
IBCAST(Ibcast, int)

IALLREDUCE(Iallreduce_c, MPI_Count)
IREDUCE(Ireduce_c, MPI_Count)
IBCAST(Ibcast_c, MPI_Count)

INTERPOSE(Ibarrier, (MPI_Comm comm, MPI_Request *request)) {
    tributary_operation operation;
    comm_record *record = offload_barrier(comm, OFFLOAD_NONBLOCKING, &operation);
    return record != NULL ? pending_start(record, &operation, NULL, request)
                          : underlying.Ibarrier(comm, request);
}
