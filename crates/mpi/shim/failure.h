/* Errors of offloaded operations, as MPI errors. */
#ifndef TRIBUTARY_FAILURE_H
#define TRIBUTARY_FAILURE_H

#include "communicators.h"

/* Room for the core's one-line messages; MPI_MAX_ERROR_STRING is at least 256 in both MPIs. */
#define FAILURE_MESSAGE_BYTES 240

/* Adds the error class. Called once, after MPI is initialised. */
void failure_open(void);

/*
 * The MPI error of an operation that has just ended in this thread with TRIBUTARY_FAILED or
 * TRIBUTARY_GIVEN_UP: MPI's own error if MPI knows what has happened, else one whose string is the
 * core's message. Thread-safe.
 */
int failure_code(comm_record *record, int outcome);

/* Calls the communicator's error handler with that error, and returns it if the handler returns. */
int failure_raise(comm_record *record, int outcome);

/*
 * Ends the job for what the core's message says, because it must have what it can't have (TRIBUTARY_REQUIRE). Collective over
 * `comm`. Does not return.
 */
void failure_end_job(MPI_Comm comm) __attribute__((noreturn));

#endif
