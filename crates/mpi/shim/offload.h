/*
 * The decision: does this call go to the core, or to the MPI beneath?
 *
 * All members must decide alike, so it depends only on what MPI guarantees to be equal on all of
 * them: the communicator; for reductions the datatype, operator and count; for broadcasts the total
 * number of bytes, as each rank may describe them by another datatype. Arguments that look wrong go
 * to MPI, which raises its own error as if this library weren't there.
 */
#ifndef TRIBUTARY_OFFLOAD_H
#define TRIBUTARY_OFFLOAD_H

#include "communicators.h"
#include "staging.h"

/* How the caller will run it. Only a blocking call may set a communicator up. */
typedef enum offload_mode { OFFLOAD_BLOCKING, OFFLOAD_NONBLOCKING } offload_mode;

/*
 * Each fills `operation` and returns the record to run it on, or counts the call as passed through
 * and returns null. Call between shim_enter() and the MPI beneath.
 */
comm_record *offload_allreduce(const void *sendbuf, void *recvbuf, MPI_Count count,
                               MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, offload_mode mode,
                               tributary_operation *operation);

comm_record *offload_reduce(const void *sendbuf, void *recvbuf, MPI_Count count,
                            MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm,
                            offload_mode mode, tributary_operation *operation);

comm_record *offload_barrier(MPI_Comm comm, offload_mode mode, tributary_operation *operation);

/* A broadcast of a type with gaps also needs `staging`, which it says. */
comm_record *offload_broadcast(void *buffer, MPI_Count count, MPI_Datatype datatype, int root,
                               MPI_Comm comm, offload_mode mode, tributary_operation *operation,
                               staging *through);

#endif
