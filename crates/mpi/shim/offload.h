/*
 * The decision: does this call go to the core, or to the underlying MPI?
 *
 * All members must decide alike, so it depends only on what MPI guarantees to be equal on all of
 * them: the communicator; for reductions and scans the datatype, operator and count, or counts; for
 * broadcasts and allgathers the number of bytes, as each rank may describe them by another datatype.
 * Arguments that look wrong go to MPI, which raises its own error as if this library weren't there.
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
 * The following are ours where all ranks are on one host, up to a length from which on the MPI is
 * faster; what is longer passes.
 */

/* Numbers of elements for each rank, in an array of either kind; the other is null. */
typedef struct count_array {
    const int *small;
    const MPI_Count *large;
} count_array;

/* Where the blocks differ in length, or `staging` is needed for another reason, it says so. */
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

/* What one rank gives to, or takes from, an allgather. */
typedef struct gather_side {
    MPI_Count count;
    MPI_Datatype datatype;
} gather_side;

comm_record *offload_allgather(const void *sendbuf, gather_side send, void *recvbuf,
                               gather_side receive, MPI_Comm comm, offload_mode mode,
                               tributary_operation *operation, staging *through);

#endif
