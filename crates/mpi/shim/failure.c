/*
 * One error class, and one code for each message. MPI can't remove a code, so their number is bounded;
 * after that, new messages share the last code.
 */
#include "failure.h"
#include "fault_tolerance.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CODES_MAX 32

static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static int error_class = MPI_ERR_OTHER;
static int codes_known;
static struct {
    int code;
    char message[FAILURE_MESSAGE_BYTES];
} known[CODES_MAX];

void failure_open(void) {
    codes_known = 0; /* an MPI that was finalised has forgotten them */
    error_class = MPI_ERR_OTHER;
    if (underlying.Add_error_class(&error_class) != MPI_SUCCESS) {
        error_class = MPI_ERR_OTHER;
        return;
    }
    underlying.Add_error_string(error_class, "tributary: an offloaded collective failed");
}

static int add_code(const char *message) {
    int code = error_class;
    if (error_class == MPI_ERR_OTHER || underlying.Add_error_code(error_class, &code) != MPI_SUCCESS) {
        return error_class;
    }
    snprintf(known[codes_known].message, sizeof known[codes_known].message, "%s", message);
    char text[FAILURE_MESSAGE_BYTES + 16];
    snprintf(text, sizeof text, "tributary: %s", message);
    text[MPI_MAX_ERROR_STRING - 1 < (int)sizeof text ? MPI_MAX_ERROR_STRING - 1
                                                     : (int)sizeof text - 1] = '\0';
    underlying.Add_error_string(code, text);
    known[codes_known].code = code;
    codes_known++;
    return code;
}

static int code_of(const char *message) {
    pthread_mutex_lock(&adding);
    int code = 0;
    for (int at = 0; at < codes_known && code == 0; at++) {
        if (strncmp(known[at].message, message, sizeof known[at].message - 1) == 0) {
            code = known[at].code;
        }
    }
    if (code == 0) {
        code = codes_known < CODES_MAX ? add_code(message) : known[CODES_MAX - 1].code;
    }
    pthread_mutex_unlock(&adding);
    return code;
}

int failure_code(comm_record *record, int outcome) {
    if (outcome == TRIBUTARY_GIVEN_UP) {
        return fault_tolerance_revoke(record);
    }
    char message[FAILURE_MESSAGE_BYTES];
    /* First: what follows may call our functions, which replace the message. */
    tributary_message(message, sizeof message);
    int code = fault_tolerance_explain(record);
    return code != MPI_SUCCESS ? code : code_of(message);
}

void failure_end_job(MPI_Comm comm) {
    enum { ENDED_BY_REQUIREMENT = 94 };
    char message[FAILURE_MESSAGE_BYTES];
    tributary_message(message, sizeof message);
    int rank = 0;
    underlying.Comm_rank(comm, &rank);
    if (rank == 0) {
        fprintf(stderr, "tributary: %s; the job ends\n", message);
        /* Launchers drop what has not come to them yet when a job is aborted. */
        nanosleep(&(struct timespec){.tv_nsec = 300 * 1000 * 1000}, NULL);
        underlying.Abort(comm, ENDED_BY_REQUIREMENT);
    }
    /* Rank 0 says why before any other rank's end is noticed. */
    underlying.Barrier(comm);
    underlying.Abort(comm, ENDED_BY_REQUIREMENT);
    abort(); /* MPI_Abort does not return */
}

__attribute__((cold, noinline)) int failure_raise(comm_record *record, int outcome) {
    int code = failure_code(record, outcome);
    underlying.Comm_call_errhandler(record->comm, code);
    return code;
}
