/* Has the MPI call pending_progress(). */
#include "progress.h"
#include "pending.h"

__thread int progress_barred;

static void progress_if_any(void) {
    if (pending_any_outstanding() && progress_barred == 0) {
        pending_progress();
    }
}

#ifdef OPEN_MPI

/* Of libopen-pal, in all versions that this shim knows; their headers are not installed. */
typedef int progress_function(void);
typedef int progress_registrar(progress_function *function);

static progress_registrar *unregister;

/* Returns how many requests of MPI have ended. */
static int progress_in_mpi(void) {
    progress_if_any();
    return 0;
}

void progress_open(void) {
    progress_registrar *enter = (progress_registrar *)underlying_find("opal_progress_register");
    unregister = (progress_registrar *)underlying_find("opal_progress_unregister");
    if (enter == NULL || unregister == NULL || enter(progress_in_mpi) != 0) {
        unregister = NULL;
    }
}

void progress_close(void) {
    if (unregister != NULL) {
        unregister(progress_in_mpi);
        unregister = NULL;
    }
}

int progress_start_request(MPI_Grequest_query_function *query, MPI_Grequest_free_function *release,
                           MPI_Grequest_cancel_function *cancel, void *extra, MPI_Request *request) {
    return underlying.Grequest_start(query, release, cancel, extra, request);
}

#else

/* As MPICH declares them; the header of the standard's interface does not. */
typedef int poll_function(void *extra, MPI_Status *status);
typedef int wait_function(int count, void *extras[], double timeout, MPI_Status *status);
typedef int extended_start(MPI_Grequest_query_function *, MPI_Grequest_free_function *,
                           MPI_Grequest_cancel_function *, poll_function *, wait_function *, void *,
                           MPI_Request *);

static extended_start *start_extended;

static int poll_in_mpi(void *extra, MPI_Status *status) {
    (void)extra, (void)status;
    progress_if_any();
    return MPI_SUCCESS;
}

/* MPICH demands it, and that the operations are over then. */
static int wait_in_mpi(int count, void *extras[], double timeout, MPI_Status *status) {
    (void)timeout, (void)status;
    pending_await(count, extras);
    return MPI_SUCCESS;
}

void progress_open(void) {
    start_extended = (extended_start *)underlying_find("PMPIX_Grequest_start");
    if (start_extended == NULL) {
        start_extended = (extended_start *)underlying_find("MPIX_Grequest_start");
    }
}

void progress_close(void) {}

int progress_start_request(MPI_Grequest_query_function *query, MPI_Grequest_free_function *release,
                           MPI_Grequest_cancel_function *cancel, void *extra, MPI_Request *request) {
    return start_extended != NULL
               ? start_extended(query, release, cancel, poll_in_mpi, wait_in_mpi, extra, request)
               : underlying.Grequest_start(query, release, cancel, extra, request);
}

#endif
