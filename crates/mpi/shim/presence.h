/*
 * Whether all members of a communicator have this library.
 *
 * A rank may lack it: its host lacks the file, its launcher does not hand LD_PRELOAD on, its program is linked statically
 * or runs with other rights, or it was spawned without. Such a rank takes part in no collective of the library's own, so
 * none may begin before all members are known to have it.
 */
#ifndef TRIBUTARY_PRESENCE_H
#define TRIBUTARY_PRESENCE_H

#include "underlying.h"

/*
 * Collective over those members of `comm` that have the library, and the same at all of them. Each other rank sends rank 0
 * one message of a byte, and gets one back. If a rank is missing, it waits for PRESENCE_TIMEOUT_S, and says on standard
 * error which.
 */
bool presence_is_complete(MPI_Comm comm);

/* Whether `comm` has members that `world` does not have, of which presence_is_complete(world) says nothing. */
bool presence_has_foreigners(MPI_Comm comm, MPI_Comm world);

#endif
