/*
 * Decides whether a call goes to the core or to the underlying MPI.
 *
 * All members must decide alike, so the decision depends only on what MPI guarantees to be equal on all
 * of them: the communicator; for reductions and scans the datatype, operator and counts; for broadcasts
 * and allgathers the number of bytes, because each rank may describe them by another datatype.
 * Arguments that MPI may refuse go to MPI, which raises its own error as without this library.
 */
#ifndef TRIBUTARY_OFFLOAD_H
#define TRIBUTARY_OFFLOAD_H

#include "communicators.h"
#include "staging.h"

/* How the caller will run it. Only a blocking call may set a communicator up. */
typedef enum offload_mode { OFFLOAD_BLOCKING, OFFLOAD_NONBLOCKING } offload_mode;

/*
 * Each offload_* fills `operation` and returns the record to run it on, or counts the call as passed
 * through and returns null. Call between shim_enter() and the underlying MPI. Those of the collectives
 * that go between hosts are in offload_between.h.
 */

/*
 * The following are offloaded if all ranks are on one host, up to the length from which on the underlying
 * MPI is faster.
 */

/* Numbers of elements for each rank, in an array of either kind; the other is null. */
typedef struct count_array {
    const int *small;
    const MPI_Count *large;
} count_array;

/* `through` says whether cuts or a dense copy are needed. */
comm_record *offload_reduce_scatter(const void *sendbuf, void *recvbuf, count_array counts,
                                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                                    offload_mode mode, tributary_operation *operation,
                                    staging *through);

comm_record *offload_reduce_scatter_block(const void *sendbuf, void *recvbuf, MPI_Count count,
                                          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                                          offload_mode mode, tributary_operation *operation);

/* `collective` is TRIBUTARY_SCAN or TRIBUTARY_EXSCAN. */
comm_record *offload_scan(uint32_t collective, const void *sendbuf, void *recvbuf, MPI_Count count,
                          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, offload_mode mode,
                          tributary_operation *operation);

/* The elements that one rank sends to, or receives from each rank in, an allgather. */
typedef struct gather_side {
    MPI_Count count;
    MPI_Datatype datatype;
} gather_side;

comm_record *offload_allgather(const void *sendbuf, gather_side send, void *recvbuf,
                               gather_side receive, MPI_Comm comm, offload_mode mode,
                               tributary_operation *operation, staging *through);

#endif
