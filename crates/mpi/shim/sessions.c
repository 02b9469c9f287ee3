/*
 * The sessions model: MPI_Session_init, MPI_Session_finalize and MPI_Comm_create_from_group.
 *
 * MPI_Session_init is local, and turning the shim on is collective over all processes that were started
 * together. So a program that has not called MPI_Init gets the shim with its first communicator of all these
 * processes: then all of them are in the same call. The shim turns off, and reports, when the last session ends
 * (MPI 4.1 section 11.3.1 lets that wait for the processes of a communicator that was freed), or with
 * MPI_Finalize. The library's communicators come from a session of its own, which outlives the program's.
 */
#include "sessions.h"
#include "communicators.h"
#include "shim.h"

#include <pthread.h>

#define ALL_PROCESSES "mpi://WORLD"
#define THIS_PROCESS "mpi://SELF"

/* Guards the two below, and that the shim turns on and off once. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static int sessions;      /* of the program */
static MPI_Session own;   /* the library's, while `has_own` */
static bool has_own;

INTERPOSE_ALWAYS(Session_init, (MPI_Info info, MPI_Errhandler handler, MPI_Session *session)) {
    int error = underlying.Session_init(info, handler, session);
    if (error == MPI_SUCCESS) {
        pthread_mutex_lock(&opening);
        sessions++;
        pthread_mutex_unlock(&opening);
    }
    return error;
}

static bool make(const char *processes, const char *tag, MPI_Comm *made) {
    MPI_Group group;
    if (underlying.Group_from_session_pset(own, processes, &group) != MPI_SUCCESS) {
        return false;
    }
    int error = underlying.Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, made);
    underlying.Group_free(&group);
    return error == MPI_SUCCESS;
}

static bool make_from_own_session(void) {
    return make(THIS_PROCESS, "tributary self", &shim_self) &&
           make(ALL_PROCESSES, "tributary world", &shim_world);
}

bool sessions_any_open(void) {
    pthread_mutex_lock(&opening);
    bool any = has_own || sessions > 0;
    pthread_mutex_unlock(&opening);
    return any;
}

void sessions_end_own(void) {
    if (has_own) {
        has_own = false;
        underlying.Session_finalize(&own);
    }
}

/* The number of processes that were started together; 0 if MPI does not tell. */
static int count_all_processes(void) {
    MPI_Group group;
    int count = 0;
    if (underlying.Group_from_session_pset(own, ALL_PROCESSES, &group) == MPI_SUCCESS) {
        underlying.Group_size(group, &count);
        underlying.Group_free(&group);
    }
    return count;
}

/* Turns the shim on, if `comm` is of all processes. Groups of two sessions may not be compared. */
static void open_on(MPI_Comm comm) {
    has_own = has_own ||
              underlying.Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &own) == MPI_SUCCESS;
    int size = 0;
    underlying.Comm_size(comm, &size);
    if (has_own && size == count_all_processes()) {
        shim_open(comm, make_from_own_session);
    }
    if (!atomic_load_explicit(&shim_is_on, memory_order_relaxed)) {
        sessions_end_own();
    }
}

INTERPOSE_ALWAYS(Comm_create_from_group, (MPI_Group group, const char *tag, MPI_Info info,
                                          MPI_Errhandler handler, MPI_Comm *made)) {
    int error = underlying.Comm_create_from_group(group, tag, info, handler, made);
    if (error != MPI_SUCCESS || *made == MPI_COMM_NULL) {
        return error;
    }
    pthread_mutex_lock(&opening);
    if (!atomic_load_explicit(&shim_is_on, memory_order_relaxed) && !shim_has_predefined) {
        open_on(*made);
    }
    pthread_mutex_unlock(&opening);
    if (atomic_load_explicit(&shim_is_on, memory_order_acquire)) {
        communicators_add(*made, "create_from_group", communicators_sums_in(info));
    }
    return error;
}

INTERPOSE_ALWAYS(Session_finalize, (MPI_Session * session)) {
    pthread_mutex_lock(&opening);
    if (session != NULL && *session != MPI_SESSION_NULL && --sessions == 0 && !shim_has_predefined) {
        if (atomic_load_explicit(&shim_is_on, memory_order_relaxed)) {
            shim_close();
        }
        sessions_end_own();
    }
    pthread_mutex_unlock(&opening);
    return underlying.Session_finalize(session);
}
