#include "completion.h"

#include <stdlib.h>

#include "check.h"

const char *const completion_names[FAMILY] = {"MPI_Wait",     "MPI_Waitall", "MPI_Waitany",
                                              "MPI_Waitsome", "MPI_Test",    "MPI_Testall",
                                              "MPI_Testany",  "MPI_Testsome", "MPI_Request_get_status"};

static void complete_some(const completion_set *set, bool wait) {
    int *indices = check_memory(sizeof *indices * (size_t)set->count);
    int number = 0;
    if (wait) {
        MPI_Waitsome(set->count, set->requests, &number, indices, set->statuses);
        check_that(number > 0, "MPI_Waitsome: outcount %d with requests left", number);
    } else {
        MPI_Testsome(set->count, set->requests, &number, indices, set->statuses);
    }
    for (int at = 0; at < number; at++) {
        set->on_done(set->owner, indices[at], &set->statuses[at]);
    }
    free(indices);
}

static void complete_any(const completion_set *set, bool wait) {
    MPI_Status status;
    int index = MPI_UNDEFINED;
    int flag = 1;
    if (wait) {
        MPI_Waitany(set->count, set->requests, &index, &status);
    } else {
        MPI_Testany(set->count, set->requests, &index, &flag, &status);
    }
    if (flag) {
        set->on_done(set->owner, index, &status);
    } else {
        check_equal(MPI_UNDEFINED, index, "MPI_Testany's index without a completion");
    }
}

static void complete_all(const completion_set *set, bool wait) {
    int flag = 1;
    if (wait) {
        MPI_Waitall(set->count, set->requests, set->statuses);
    } else {
        MPI_Testall(set->count, set->requests, &flag, set->statuses);
    }
    if (flag) {
        set->on_all(set->owner);
    }
}

static void complete_one(const completion_set *set, completion how) {
    MPI_Request *request = &set->requests[set->one];
    MPI_Status status;
    int flag = 1;
    if (how == WAIT) {
        MPI_Wait(request, &status);
    } else if (how == TEST) {
        MPI_Test(request, &flag, &status);
    } else {
        MPI_Request_get_status(*request, &flag, &status);
        if (flag) {
            check_that(*request != MPI_REQUEST_NULL, "get_status freed request %d", set->one);
            MPI_Request_get_status(*request, &flag, &status);
            check_equal(1, flag, "MPI_Request_get_status a second time");
            MPI_Wait(request, &status);
        }
    }
    if (flag) {
        set->on_done(set->owner, set->one, &status);
    } else {
        check_that(*request != MPI_REQUEST_NULL, "request %d is null but not done", set->one);
    }
}

void completion_call(const completion_set *set, completion how) {
    switch (how) {
    case WAITALL:
    case TESTALL: complete_all(set, how == WAITALL); break;
    case WAITANY:
    case TESTANY: complete_any(set, how == WAITANY); break;
    case WAITSOME:
    case TESTSOME: complete_some(set, how == WAITSOME); break;
    default: complete_one(set, how);
    }
}
