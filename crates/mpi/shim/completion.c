/*
 * Wait, Test and Request_get_status.
 *
 * While none of our operations is outstanding, each calls the underlying MPI's function and nothing
 * else. Otherwise a Test first completes those of our requests that are done, and a Wait repeats the
 * matching Test: a thread that blocked in the underlying MPI could not complete our requests. The
 * underlying MPI's Test progresses its own messages, so requests of both kinds complete.
 */
#include "pending.h"
#include "shim.h"

/* One request: the underlying MPI's error, else ours. */
static int conclude_one(int error) {
    int ours = pending_conclude();
    return error != MPI_SUCCESS ? error : ours;
}

/* Several requests: errors are in the statuses. The underlying MPI has not put ours there. */
static int conclude_many(int error, int count, MPI_Status statuses[]) {
    int ours = pending_conclude();
    if (ours == MPI_SUCCESS) {
        return error;
    }
    for (int at = 0; statuses != MPI_STATUSES_IGNORE && at < count; at++) {
        if (statuses[at].MPI_TAG == PENDING_FAILED_TAG) {
            statuses[at].MPI_ERROR = ours;
        } else if (error == MPI_SUCCESS) {
            statuses[at].MPI_ERROR = MPI_SUCCESS;
        }
    }
    return MPI_ERR_IN_STATUS;
}

/*
 * Repeats `test`, which sets `error`, until it fails or `done` holds. Rests after the first test
 * already: if each rank has a core, a rest returns at once for a long time; if not, another rank
 * needs this core to get on.
 */
#define UNTIL(test, done)                                                                          \
    for (bool is_first = true;; is_first = false) {                                                \
        pending_progress();                                                                        \
        error = (test);                                                                            \
        if (error != MPI_SUCCESS || (done)) {                                                      \
            break;                                                                                 \
        }                                                                                          \
        pending_rest(is_first);                                                                    \
    }

INTERPOSE(Wait, (MPI_Request *request, MPI_Status *status), (request, status)) {
    if (!pending_any()) {
        return underlying.Wait(request, status);
    }
    int error = MPI_SUCCESS;
    int done = 0;
    UNTIL(underlying.Test(request, &done, status), done)
    return conclude_one(error);
}

INTERPOSE(Waitall, (int count, MPI_Request requests[], MPI_Status statuses[]),
          (count, requests, statuses)) {
    if (!pending_any()) {
        return underlying.Waitall(count, requests, statuses);
    }
    int error = MPI_SUCCESS;
    int done = 0;
    UNTIL(underlying.Testall(count, requests, &done, statuses), done)
    return conclude_many(error, count, statuses);
}

INTERPOSE(Waitany, (int count, MPI_Request requests[], int *index, MPI_Status *status),
          (count, requests, index, status)) {
    if (!pending_any()) {
        return underlying.Waitany(count, requests, index, status);
    }
    int error = MPI_SUCCESS;
    int done = 0;
    UNTIL(underlying.Testany(count, requests, index, &done, status), done)
    return conclude_one(error);
}

INTERPOSE(Waitsome,
          (int count, MPI_Request requests[], int *completed, int indices[],
           MPI_Status statuses[]),
          (count, requests, completed, indices, statuses)) {
    if (!pending_any()) {
        return underlying.Waitsome(count, requests, completed, indices, statuses);
    }
    int error = MPI_SUCCESS;
    /* MPI_UNDEFINED, when no request is active, is not 0 and ends the wait as well. */
    UNTIL(underlying.Testsome(count, requests, completed, indices, statuses), *completed != 0)
    return conclude_many(error, *completed, statuses);
}

/* `conclude` makes the program's error of `error`, the underlying MPI's. */
#define PROGRESS_AND_CALL(name, parameters, arguments, conclude)                                   \
    INTERPOSE(name, parameters, arguments) {                                                       \
        if (!pending_any()) {                                                                      \
            return underlying.name arguments;                                                      \
        }                                                                                          \
        pending_progress();                                                                        \
        int error = underlying.name arguments;                                                     \
        return conclude;                                                                           \
    }

PROGRESS_AND_CALL(Test, (MPI_Request *request, int *flag, MPI_Status *status),
                  (request, flag, status), conclude_one(error))

PROGRESS_AND_CALL(Testall, (int count, MPI_Request requests[], int *flag, MPI_Status statuses[]),
                  (count, requests, flag, statuses),
                  conclude_many(error, *flag ? count : 0, statuses))

PROGRESS_AND_CALL(Testany,
                  (int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status),
                  (count, requests, index, flag, status), conclude_one(error))

PROGRESS_AND_CALL(Testsome,
                  (int count, MPI_Request requests[], int *completed, int indices[],
                   MPI_Status statuses[]),
                  (count, requests, completed, indices, statuses),
                  conclude_many(error, *completed, statuses))

PROGRESS_AND_CALL(Request_get_status, (MPI_Request request, int *flag, MPI_Status *status),
                  (request, flag, status), conclude_one(error))

PROGRESS_AND_CALL(Request_get_status_all,
                  (int count, const MPI_Request requests[], int *flag, MPI_Status statuses[]),
                  (count, requests, flag, statuses),
                  conclude_many(error, *flag ? count : 0, statuses))

PROGRESS_AND_CALL(Request_get_status_any,
                  (int count, const MPI_Request requests[], int *index, int *flag,
                   MPI_Status *status),
                  (count, requests, index, flag, status), conclude_one(error))

PROGRESS_AND_CALL(Request_get_status_some,
                  (int count, const MPI_Request requests[], int *completed, int indices[],
                   MPI_Status statuses[]),
                  (count, requests, completed, indices, statuses),
                  conclude_many(error, *completed, statuses))

/* No operation may be outstanding when MPI disconnects the communicator. */
INTERPOSE(Comm_disconnect, (MPI_Comm *comm), (comm)) {
    if (pending_any()) {
        pending_drain();
    }
    return underlying.Comm_disconnect(comm);
}
