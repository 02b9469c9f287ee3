/* Turns the shim on and off. MPI_Init, MPI_Init_thread and MPI_Finalize. */
#include "combining.h"
#include "communicators.h"
#include "failure.h"
#include "fault_tolerance.h"
#include "maps.h"
#include "pending.h"
#include "persistent.h"
#include "presence.h"
#include "progress.h"
#include "report.h"
#include "sessions.h"
#include "shim.h"
#include "staging.h"
#include "stand_ins.h"
#include "timing.h"
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>

atomic_bool shim_is_on;
bool shim_has_predefined;
MPI_Comm shim_self;
MPI_Comm shim_world;
static bool report_wanted;
/* The source to probe for on shim_world. */
static int silent_source = MPI_ANY_SOURCE;

void shim_drive_mpi(void) {
    int found = 0;
    /*
     * A probe progresses messages and takes none. It must not be on a communicator of one rank, where
     * MPICH only checks its queue, nor on one that carries messages: a probe that finds a message at
     * once progresses nothing.
     */
    underlying.Iprobe(silent_source, MPI_ANY_TAG, shim_world, &found, MPI_STATUS_IGNORE);
}

/* Whether no two threads are ever in MPI at a time. Of sessions, a later one may let them. */
static bool threads_take_turns(void) {
    int level = MPI_THREAD_MULTIPLE;
    if (shim_has_predefined) {
        underlying.Query_thread(&level);
    }
    return level != MPI_THREAD_MULTIPLE;
}

static void open_core(void) {
    int rank = 0;
    int size = 0;
    underlying.Comm_rank(shim_world, &rank);
    underlying.Comm_size(shim_world, &size);
    tributary_bootstrap members = communicators_bootstrap(&shim_world, rank, size);
    if (threads_take_turns()) {
        tributary_take_turns();
    }
    int outcome = tributary_open(&members);
    if (outcome == TRIBUTARY_UNMET) {
        failure_end_job(shim_world);
    }
    if (outcome != TRIBUTARY_JOINED && rank == 0) {
        char message[FAILURE_MESSAGE_BYTES];
        tributary_message(message, sizeof message);
        fprintf(stderr, "tributary: %s; collectives go to the underlying MPI\n", message);
    }
}

void shim_open(MPI_Comm everybody, shim_maker *make_communicators) {
    static bool is_given_up; /* the same at all processes that have the library */
    if (is_given_up || atomic_load_explicit(&shim_is_on, memory_order_relaxed)) {
        return;
    }
    char why_not[FAILURE_MESSAGE_BYTES];
    if (!underlying_is_expected_library(why_not, sizeof why_not)) {
        dispatch_warn(why_not);
        return;
    }
    if (!presence_is_complete(everybody)) {
        is_given_up = true;
        return;
    }
    maps_fill();
    failure_open();
    if (communicators_open() != MPI_SUCCESS || !make_communicators() ||
        underlying.Comm_set_errhandler(shim_self, MPI_ERRORS_RETURN) != MPI_SUCCESS ||
        underlying.Comm_set_errhandler(shim_world, MPI_ERRORS_RETURN) != MPI_SUCCESS) {
        return; /* MPI has raised the error */
    }
    fault_tolerance_open();
    if (fault_tolerance_is_on()) {
        /* Once a rank has failed, MPI refuses a probe for any source. */
        underlying.Comm_rank(shim_world, &silent_source);
    }
    staging_open();
    combining_open();
    progress_open();
    report_wanted = report_is_wanted();
    open_core();
    atomic_store_explicit(&shim_is_on, true, memory_order_release);
    dispatch_turn_on();
}

/*
 * MPI_Finalize first deletes the attributes of MPI_COMM_SELF, the last one set first (MPI 4.1 section 11.2.4),
 * and the program's callbacks may use all of MPI. So the shim closes in the callback of an attribute that was
 * set before any of the program's: it is the last to be called, and MPI is still whole.
 */
static bool closes_in_callback;

static int close_last(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    if (atomic_load_explicit(&shim_is_on, memory_order_relaxed)) {
        shim_close();
    }
    sessions_end_own();
    return MPI_SUCCESS;
}

/* Nobody copies MPI_COMM_SELF's attribute; MPI's own such function is an object that a library can't link to. */
static int never_copied(MPI_Comm from, int key, void *extra, void *value, void *copy, int *flag) {
    (void)from, (void)key, (void)extra, (void)value, (void)copy;
    *flag = 0;
    return MPI_SUCCESS;
}

/* If MPI refuses, the shim closes before MPI_Finalize begins. */
static void ask_for_callback(void) {
    int key = MPI_KEYVAL_INVALID;
    if (underlying.Comm_create_keyval(never_copied, close_last, &key, NULL) == MPI_SUCCESS) {
        closes_in_callback = underlying.Comm_set_attr(MPI_COMM_SELF, key, NULL) == MPI_SUCCESS;
        underlying.Comm_free_keyval(&key);
    }
}

static bool copy_predefined(void) {
    return underlying.Comm_dup(MPI_COMM_SELF, &shim_self) == MPI_SUCCESS &&
           underlying.Comm_dup(MPI_COMM_WORLD, &shim_world) == MPI_SUCCESS;
}

/* MPI is initialised by MPI_Init. The shim may be on already, for sessions. */
static void start(void) {
    if (shim_has_predefined) {
        return; /* an MPI whose MPI_Init calls PMPI_Init_thread */
    }
    shim_has_predefined = true;
    shim_open(MPI_COMM_WORLD, copy_predefined);
    if (atomic_load_explicit(&shim_is_on, memory_order_relaxed)) {
        ask_for_callback();
        communicators_add(MPI_COMM_WORLD, "world", SUMS_AS_SET);
        communicators_add(MPI_COMM_SELF, "self", SUMS_AS_SET);
    }
}

INTERPOSE_ALWAYS(Init, (int *argc, char ***argv)) {
    int error = underlying.Init(argc, argv);
    if (error == MPI_SUCCESS) {
        start();
    }
    return error;
}

INTERPOSE_ALWAYS(Init_thread, (int *argc, char ***argv, int required, int *provided)) {
    int error = underlying.Init_thread(argc, argv, required, provided);
    if (error == MPI_SUCCESS) {
        start();
    }
    return error;
}

void shim_close(void) {
    pending_drain();
    progress_close();
    dispatch_turn_off();
    atomic_store_explicit(&shim_is_on, false, memory_order_release);
    if (report_wanted || trace_is_on) {
        MPI_Comm survivors = fault_tolerance_survivors(shim_world);
        MPI_Comm left = survivors != MPI_COMM_NULL ? survivors : shim_world;
        if (report_wanted) {
            report_collect(left);
        }
        if (trace_is_on) {
            trace_collect(left);
        }
        if (survivors != MPI_COMM_NULL) {
            underlying.Comm_free(&survivors);
        }
    }
    timing_end();
    persistent_close();
    communicators_close();
    stand_ins_close();
    tributary_close();
    underlying.Comm_free(&shim_world);
    underlying.Comm_free(&shim_self);
}

INTERPOSE_ALWAYS(Finalize, (void)) {
    /* While a session is open, MPICH's MPI_Finalize calls no callback. */
    if (!closes_in_callback || sessions_any_open()) {
        close_last(MPI_COMM_NULL, MPI_KEYVAL_INVALID, NULL, NULL);
    }
    int error = underlying.Finalize();
    shim_has_predefined = false;
    return error;
}

#define LISTED(list, end) SHIM_NAME(__##end##_##list##_, SHIM_INTERFACE)
extern const dispatch_entry LISTED(functions, start)[], LISTED(functions, stop)[];
extern const dispatch_entry LISTED(stand_ins, start)[], LISTED(stand_ins, stop)[];

const dispatch_interface shim_interface = {
    .open = underlying_open,
    .missing = underlying_missing,
    .first = LISTED(functions, start),
    .end = LISTED(functions, stop),
    .first_stand_in = LISTED(stand_ins, start),
    .end_of_stand_ins = LISTED(stand_ins, stop),
};
