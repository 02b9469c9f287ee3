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

/* How the caller will run it. Only a blocking call may set a communicator up. */
typedef enum offload_mode {
    OFFLOAD_BLOCKING,
    OFFLOAD_NONBLOCKING,
    OFFLOAD_PERSISTENT, /* the call itself may wait for other ranks; its starts may not */
} offload_mode;

#endif
