/* The persistent forms of the collectives that are offloaded between hosts too. */
#include "offload_between.h"
#include "persistent.h"
#include "shim.h"

/*
 * The decision is taken here, once for all starts, and may set the communicator up: these calls are
 * collective, and MPI lets them wait for other ranks (MPI 4.1 section 6.13). What goes to the MPI is counted
 * as one call.
 *
 * `define` is INTERPOSE or INTERPOSE_EXTENSION, and `underlying_name` the member of `underlying`.
 */
#define ALLREDUCE_INIT(define, name, underlying_name, count_type)                                  \
    define(name,                                                                                   \
           (const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype,           \
            MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request)) {                      \
        tributary_operation operation = {.cuts = NULL};                                            \
        comm_record *record = offload_allreduce(sendbuf, recvbuf, count, datatype, op, comm,       \
                                                OFFLOAD_PERSISTENT, &operation);                   \
        return record != NULL ? persistent_make(record, &operation, NULL, request)                 \
                              : persistent_passed(underlying.underlying_name(                      \
                                    sendbuf, recvbuf, count, datatype, op, comm, info, request),   \
                                request);                                                          \
    }

#define REDUCE_INIT(define, name, underlying_name, count_type)                                     \
    define(name,                                                                                   \
           (const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype,           \
            MPI_Op op, int root, MPI_Comm comm, MPI_Info info, MPI_Request *request)) {            \
        tributary_operation operation = {.cuts = NULL};                                            \
        comm_record *record = offload_reduce(sendbuf, recvbuf, count, datatype, op, root, comm,    \
                                             OFFLOAD_PERSISTENT, &operation);                      \
        return record != NULL ? persistent_make(record, &operation, NULL, request)                 \
                              : persistent_passed(underlying.underlying_name(                      \
                                    sendbuf, recvbuf, count, datatype, op, root, comm, info,       \
                                    request), request);                                            \
    }

#define BCAST_INIT(define, name, underlying_name, count_type)                                      \
    define(name,                                                                                   \
           (void *buffer, count_type count, MPI_Datatype datatype, int root, MPI_Comm comm,        \
            MPI_Info info, MPI_Request *request)) {                                                \
        tributary_operation operation = {.cuts = NULL};                                            \
        staging through;                                                                           \
        comm_record *record = offload_broadcast(buffer, count, datatype, root, comm,               \
                                                OFFLOAD_PERSISTENT, &operation, &through);         \
        return record != NULL ? persistent_make(record, &operation, &through, request)             \
                              : persistent_passed(underlying.underlying_name(                      \
                                    buffer, count, datatype, root, comm, info, request),           \
                                request);                                                          \
    }

#define BARRIER_INIT(define, name, underlying_name)                                                \
    define(name, (MPI_Comm comm, MPI_Info info, MPI_Request *request)) {                           \
        tributary_operation operation;                                                             \
        comm_record *record = offload_barrier(comm, OFFLOAD_PERSISTENT, &operation);               \
        return record != NULL ? persistent_make(record, &operation, NULL, request)                 \
                              : persistent_passed(                                                 \
                                    underlying.underlying_name(comm, info, request), request);     \
    }

ALLREDUCE_INIT(INTERPOSE, Allreduce_init, Allreduce_init, int)
REDUCE_INIT(INTERPOSE, Reduce_init, Reduce_init, int)
BCAST_INIT(INTERPOSE, Bcast_init, Bcast_init, int)
BARRIER_INIT(INTERPOSE, Barrier_init, Barrier_init)

ALLREDUCE_INIT(INTERPOSE, Allreduce_init_c, Allreduce_init_c, MPI_Count)
REDUCE_INIT(INTERPOSE, Reduce_init_c, Reduce_init_c, MPI_Count)
BCAST_INIT(INTERPOSE, Bcast_init_c, Bcast_init_c, MPI_Count)

#ifdef OPEN_MPI
ALLREDUCE_INIT(INTERPOSE_EXTENSION, Allreduce_init, X_Allreduce_init, int)
REDUCE_INIT(INTERPOSE_EXTENSION, Reduce_init, X_Reduce_init, int)
BCAST_INIT(INTERPOSE_EXTENSION, Bcast_init, X_Bcast_init, int)
BARRIER_INIT(INTERPOSE_EXTENSION, Barrier_init, X_Barrier_init)
#endif
