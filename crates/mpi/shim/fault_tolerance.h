/*
 * The fault tolerance of the underlying MPI (User Level Failure Mitigation, Open MPI's MPIX functions),
 * as far as offloaded collectives must follow it.
 *
 * MPI decides which communicators are revoked and which ranks have failed. If the underlying MPI has no
 * fault tolerance, these functions say that it is off and that nothing is revoked.
 */
#ifndef TRIBUTARY_FAULT_TOLERANCE_H
#define TRIBUTARY_FAULT_TOLERANCE_H

#include "communicators.h"

/* Called once, after MPI is initialised. */
void fault_tolerance_open(void);

/* Whether other ranks' revocations and failures reach this process (mpirun --with-ft ulfm). */
bool fault_tolerance_is_on(void);

/* Whether this process knows that `comm` is revoked. */
bool fault_tolerance_is_revoked(MPI_Comm comm);

/*
 * Another rank gave the communicator up, which only MPIX_Comm_revoke does. Revokes it here too, in case
 * MPI's own notice has not arrived yet. Returns the error to raise.
 */
int fault_tolerance_revoke(comm_record *record);

/*
 * An offloaded collective failed. Asks MPI about the communicator's members, for up to a second, because
 * MPI may notice the failure later. Returns the error to raise, or MPI_SUCCESS if MPI knows of none.
 */
int fault_tolerance_explain(comm_record *record);

/*
 * A communicator of the ranks of `comm` that are left, which the caller frees. MPI_COMM_NULL if fault
 * tolerance is off. Collective over those ranks.
 */
MPI_Comm fault_tolerance_survivors(MPI_Comm comm);

#endif
