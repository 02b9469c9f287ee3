/*
 * Wait, Test and Request_get_status.
 *
 * While none of our operations is outstanding and none is persistent, each calls the underlying MPI's
 * function and nothing else. A persistent one that is waited for or tested alone never calls MPI, see
 * persistent.h. Otherwise a Test first completes those of our requests that are done, and a Wait repeats the
 * matching Test: a thread that blocked in the underlying MPI could not complete our requests. The
 * underlying MPI's Test progresses its own messages, so requests of both kinds complete.
 */
#include "pending.h"
#include "persistent.h"
#include "progress.h"
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
        progress_barred++;                                                                         \
        error = (test);                                                                            \
        progress_barred--;                                                                         \
        if (error != MPI_SUCCESS || (done)) {                                                      \
            break;                                                                                 \
        }                                                                                          \
        pending_rest(is_first);                                                                    \
    }

/* Waits for one request, as the MPI sees it. */
static int wait_for_one(MPI_Request *shown, MPI_Status *status) {
    bool is_passed = persistent_any_passed() && persistent_is_passed(*shown);
    if (!pending_any_outstanding() || is_passed) {
        return underlying.Wait(shown, status);
    }
    int error = MPI_SUCCESS;
    int done = 0;
    UNTIL(underlying.Test(shown, &done, status), done)
    return conclude_one(error);
}

static __attribute__((noinline)) int wait_for_any_kind(MPI_Request *request, MPI_Status *status) {
    persistent *of = persistent_find(request);
    if (of == NULL) {
        return wait_for_one(request, status);
    }
    return of->is_direct ? persistent_wait(of, status) : wait_for_one(&of->stand_in, status);
}

INTERPOSE(Wait, (MPI_Request *request, MPI_Status *status)) {
    long counted = pending_counted();
    if (__builtin_expect(counted == 0, 1)) {
        return underlying.Wait(request, status);
    }
    persistent *of = persistent_find_first(counted, request);
    bool is_direct = of != NULL && of->is_direct;
    return is_direct ? persistent_wait(of, status) : wait_for_any_kind(request, status);
}

INTERPOSE(Test, (MPI_Request *request, int *flag, MPI_Status *status)) {
    if (!pending_any()) {
        return underlying.Test(request, flag, status);
    }
    persistent *of = persistent_find(request);
    if (of != NULL && of->is_direct) {
        return persistent_test(of, flag, status);
    }
    pending_progress();
    int error = underlying.Test(of != NULL ? &of->stand_in : request, flag, status);
    return conclude_one(error);
}

INTERPOSE(Request_get_status, (MPI_Request request, int *flag, MPI_Status *status)) {
    if (!pending_any()) {
        return underlying.Request_get_status(request, flag, status);
    }
    int error = MPI_SUCCESS;
    const MPI_Request *shown = persistent_shown(&request, &error);
    if (shown == NULL) {
        return error;
    }
    pending_progress();
    error = underlying.Request_get_status(*shown, flag, status);
    return conclude_one(error);
}

/* All are direct: waits for one after the other. */
static int wait_for_direct(int count, MPI_Request requests[], MPI_Status statuses[]) {
    int errors = 0;
    for (int at = 0; at < count; at++) {
        MPI_Status *status = statuses != MPI_STATUSES_IGNORE ? &statuses[at] : MPI_STATUS_IGNORE;
        persistent *of = persistent_find(&requests[at]);
        int error = of != NULL ? persistent_wait(of, status)
                               : underlying.Wait(&requests[at], status);
        errors += error != MPI_SUCCESS;
        if (status != MPI_STATUS_IGNORE) {
            status->MPI_ERROR = error;
        }
    }
    return errors == 0 ? MPI_SUCCESS : MPI_ERR_IN_STATUS;
}

/*
 * Waits for one after the other. First for those that went to the MPI: ours go on by themselves.
 */
static int wait_in_turn(int count, MPI_Request shown[], MPI_Status statuses[]) {
    int errors = 0;
    for (int is_ours = 0; is_ours <= 1; is_ours++) {
        for (int at = 0; at < count; at++) {
            if (persistent_is_passed(shown[at]) == (is_ours == 1)) {
                continue;
            }
            MPI_Status *status =
                statuses != MPI_STATUSES_IGNORE ? &statuses[at] : MPI_STATUS_IGNORE;
            int error = wait_for_one(&shown[at], status);
            errors += error != MPI_SUCCESS;
            if (status != MPI_STATUS_IGNORE) {
                status->MPI_ERROR = error;
            }
        }
    }
    return errors == 0 ? MPI_SUCCESS : MPI_ERR_IN_STATUS;
}

/*
 * The body of a function of several requests. `plain` is the call of MPI's function with the requests that
 * MPI may see, `shown.requests`; while operations are outstanding `call` sets `error` instead. `conclude`
 * makes the program's error of it. `written` is how many requests the function may set.
 */
#define SHOWN(count, requests, written, plain, call, conclude)                                     \
    persistent_array shown;                                                                        \
    int error = persistent_open(&shown, count, requests);                                          \
    if (error != MPI_SUCCESS) {                                                                    \
        return error;                                                                              \
    }                                                                                              \
    if (pending_any_outstanding()) {                                                               \
        call                                                                                       \
    } else {                                                                                       \
        error = plain;                                                                             \
    }                                                                                              \
    persistent_shut(&shown, written, requests);                                                    \
    return conclude;

/* Wait functions repeat `test` until `done` holds. */
#define WAIT_SHOWN(count, requests, plain, test, done, conclude)                                   \
    SHOWN(count, requests, count, plain, UNTIL(test, done), conclude)

#define TEST_SHOWN(count, requests, written, test, conclude)                                       \
    SHOWN(                                                                                         \
        count, requests, written, test,                                                            \
        {                                                                                          \
            pending_progress();                                                                    \
            error = test;                                                                          \
        },                                                                                         \
        conclude)

INTERPOSE(Waitall, (int count, MPI_Request requests[], MPI_Status statuses[])) {
    if (!pending_any()) {
        return underlying.Waitall(count, requests, statuses);
    }
    if (persistent_all_direct(count, requests)) {
        return wait_for_direct(count, requests, statuses);
    }
    if (persistent_any_passed()) {
        SHOWN(count, requests, count, underlying.Waitall(count, shown.requests, statuses),
              error = wait_in_turn(count, shown.requests, statuses);, error)
    }
    int done = 0;
    WAIT_SHOWN(count, requests, underlying.Waitall(count, shown.requests, statuses),
               underlying.Testall(count, shown.requests, &done, statuses), done,
               conclude_many(error, count, statuses))
}

INTERPOSE(Waitany, (int count, MPI_Request requests[], int *index, MPI_Status *status)) {
    if (!pending_any()) {
        return underlying.Waitany(count, requests, index, status);
    }
    int done = 0;
    WAIT_SHOWN(count, requests, underlying.Waitany(count, shown.requests, index, status),
               underlying.Testany(count, shown.requests, index, &done, status), done,
               conclude_one(error))
}

INTERPOSE(Waitsome,
          (int count, MPI_Request requests[], int *completed, int indices[],
           MPI_Status statuses[])) {
    if (!pending_any()) {
        return underlying.Waitsome(count, requests, completed, indices, statuses);
    }
    /* MPI_UNDEFINED, when no request is active, is not 0 and ends the wait as well. */
    WAIT_SHOWN(count, requests,
               underlying.Waitsome(count, shown.requests, completed, indices, statuses),
               underlying.Testsome(count, shown.requests, completed, indices, statuses),
               *completed != 0, conclude_many(error, *completed, statuses))
}

INTERPOSE(Testall,
          (int count, MPI_Request requests[], int *flag, MPI_Status statuses[])) {
    if (!pending_any()) {
        return underlying.Testall(count, requests, flag, statuses);
    }
    TEST_SHOWN(count, requests, count,
               underlying.Testall(count, shown.requests, flag, statuses),
               conclude_many(error, *flag ? count : 0, statuses))
}

INTERPOSE(Testany,
          (int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status)) {
    if (!pending_any()) {
        return underlying.Testany(count, requests, index, flag, status);
    }
    TEST_SHOWN(count, requests, count,
               underlying.Testany(count, shown.requests, index, flag, status),
               conclude_one(error))
}

INTERPOSE(Testsome,
          (int count, MPI_Request requests[], int *completed, int indices[], MPI_Status statuses[])) {
    if (!pending_any()) {
        return underlying.Testsome(count, requests, completed, indices, statuses);
    }
    TEST_SHOWN(count, requests, count,
               underlying.Testsome(count, shown.requests, completed, indices, statuses),
               conclude_many(error, *completed, statuses))
}

/* These set no request, and the program's may be in memory that can't be written. */
INTERPOSE(Request_get_status_all,
          (int count, const MPI_Request requests[], int *flag, MPI_Status statuses[])) {
    if (!pending_any()) {
        return underlying.Request_get_status_all(count, requests, flag, statuses);
    }
    MPI_Request *given = (MPI_Request *)requests;
    TEST_SHOWN(count, given, 0,
               underlying.Request_get_status_all(count, shown.requests, flag, statuses),
               conclude_many(error, *flag ? count : 0, statuses))
}

INTERPOSE(Request_get_status_any,
          (int count, const MPI_Request requests[], int *index, int *flag, MPI_Status *status)) {
    if (!pending_any()) {
        return underlying.Request_get_status_any(count, requests, index, flag, status);
    }
    MPI_Request *given = (MPI_Request *)requests;
    TEST_SHOWN(count, given, 0,
               underlying.Request_get_status_any(count, shown.requests, index, flag, status),
               conclude_one(error))
}

INTERPOSE(Request_get_status_some,
          (int count, const MPI_Request requests[], int *completed, int indices[], MPI_Status statuses[])) {
    if (!pending_any()) {
        return underlying.Request_get_status_some(count, requests, completed, indices, statuses);
    }
    MPI_Request *given = (MPI_Request *)requests;
    TEST_SHOWN(count, given, 0,
               underlying.Request_get_status_some(count, shown.requests, completed, indices, statuses),
               conclude_many(error, *completed, statuses))
}

/* No operation may be outstanding when MPI disconnects the communicator. */
INTERPOSE(Comm_disconnect, (MPI_Comm *comm)) {
    if (pending_any()) {
        pending_drain();
    }
    return underlying.Comm_disconnect(comm);
}
