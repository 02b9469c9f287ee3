/*
 * Generalized requests that progress in every wait of the MPI, whichever way the program comes to it. A part of a
 * program may reach the MPI past this library: by dlsym(), RTLD_DEEPBIND, or from a language that loads the MPI
 * itself.
 *
 * Open MPI has a list of functions that it calls whenever it progresses. MPICH and its kin have generalized
 * requests with a function that their waits and tests call. With an MPI that has neither, operations whose
 * requests are waited for past this library do not end.
 */
#ifndef TRIBUTARY_PROGRESS_H
#define TRIBUTARY_PROGRESS_H

#include "underlying.h"

/* Called while the shim turns on, and off. */
void progress_open(void);
void progress_close(void);

/* MPI_Grequest_start, and MPI will call pending_progress() in its waits. Returns an MPI error code. */
int progress_start_request(MPI_Grequest_query_function *query, MPI_Grequest_free_function *release,
                           MPI_Grequest_cancel_function *cancel, void *extra, MPI_Request *request);

/*
 * How often this thread is in a place from where MPI must not call pending_progress(): in a call of MPI that the core
 * has asked for, because the core may be in use by the operation that waits, or in a loop that calls it anyway.
 */
extern __thread int progress_barred __attribute__((visibility("hidden")));

#endif
