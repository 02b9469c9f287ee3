/*
 * Long broadcasts in pieces. A dense copy of a long vector with gaps would take as much memory again as its elements,
 * so a rank packs a piece at a time. How long pieces are depends on the number of bytes alone, because other
 * ranks may describe the same bytes by a dense type; so all ranks broadcast long vectors in the same pieces.
 */
#ifndef TRIBUTARY_PIECES_H
#define TRIBUTARY_PIECES_H

#include "communicators.h"
#include "staging.h"

/* Broadcasts what `through` describes. Returns an MPI error code, for which the error handler was called. */
int pieces_broadcast(comm_record *record, const tributary_operation *operation, const staging *through);

#endif
