/*
 * The fault tolerance of the underlying MPI (User Level Failure Mitigation, Open MPI's MPIX functions),
 * as far as offloaded collectives must follow it.
 *
 * MPI decides what is revoked and who has failed; it is asked, and never second-guessed. Where the
 * MPI underlying has none of it, everything here says so.
 */
#ifndef TRIBUTARY_FAULT_TOLERANCE_H
#define TRIBUTARY_FAULT_TOLERANCE_H

#include "communicators.h"

/* Once, after MPI is initialised. */
void fault_tolerance_open(void);

/* Whether other ranks' revocations and failures reach this process (mpirun --with-ft ulfm). */
bool fault_tolerance_is_on(void);

/* Whether this process knows that `comm` is revoked. */
bool fault_tolerance_is_revoked(MPI_Comm comm);

/*
 * Another rank gave the communicator up, which nothing but MPIX_Comm_revoke does. Revokes it here as
 * well, in case MPI's own word is still on its way. Returns the error to raise.
 */
int fault_tolerance_revoke(comm_record *record);

/*
 * An offloaded collective failed: what MPI says of the communicator's members, given a little time to
 * notice by itself. Returns the error to raise, or MPI_SUCCESS when MPI knows of nothing.
 */
int fault_tolerance_explain(comm_record *record);

/*
 * The ranks of `comm` that are left, as a communicator to be freed by the caller; MPI_COMM_NULL where
 * failures aren't followed. Collective over those ranks.
 */
MPI_Comm fault_tolerance_survivors(MPI_Comm comm);

#endif
