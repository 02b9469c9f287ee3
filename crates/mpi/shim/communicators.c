/* Makes records of communicators, sets communicators up, and frees both. */
#include "communicators.h"
#include "comm_table.h"
#include "devices.h"
#include "failure.h"
#include "fault_tolerance.h"
#include "presence.h"
#include "progress.h"
#include "shim.h"
#include "timing.h"

#include <fenv.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

_Atomic(handle_table *) comm_table = &handle_table_none;
static int keyval = MPI_KEYVAL_INVALID;
static atomic_bool worlds_were_merged;
static pthread_mutex_t adopting = PTHREAD_MUTEX_INITIALIZER;

/* A copy of a communicator is another communicator: it gets a record of its own. */
static int never_copied(MPI_Comm from, int key, void *extra, void *value, void *copy, int *flag) {
    (void)from, (void)key, (void)extra, (void)value, (void)copy;
    *flag = 0;
    return MPI_SUCCESS;
}

void communicators_hold(comm_record *record) {
    /* Relaxed: the caller uses the communicator, whose own hold is still there. */
    atomic_fetch_add_explicit(&record->holds, 1, memory_order_relaxed);
}

void communicators_let_go(comm_record *record) {
    /* Acquire-release: the last one to let go sees what the others did with the record. */
    if (atomic_fetch_sub_explicit(&record->holds, 1, memory_order_acq_rel) == 1) {
        tributary_communicator_free(record->core);
        free(record);
    }
}

/* MPI is freeing the communicator; nonblocking operations on it may still be outstanding. */
static int give_up(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)extra;
    comm_record *record = value;
    handle_table_remove(&comm_table, (uintptr_t)record->comm, record);
    atomic_store_explicit(&record->is_freed, true, memory_order_relaxed);
    communicators_let_go(record);
    return MPI_SUCCESS;
}

int communicators_open(void) {
    return underlying.Comm_create_keyval(never_copied, give_up, &keyval, NULL);
}

static int allgather_bytes(void *context, const void *mine, void *all, size_t len_bytes) {
    if (len_bytes > INT_MAX) {
        return 1;
    }
    int count = (int)len_bytes;
    MPI_Comm comm = *(MPI_Comm *)context;
    progress_barred++;
    int error = underlying.Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, comm);
    progress_barred--;
    return error != MPI_SUCCESS;
}

tributary_bootstrap communicators_bootstrap(MPI_Comm *comm, int rank, int size) {
    return (tributary_bootstrap){
        .rank = (uint32_t)rank,
        .size = (uint32_t)size,
        .allgather = allgather_bytes,
        .context = comm,
    };
}

/*
 * Both groups of an intercommunicator call the same operation, which counts once: at rank 0 of the
 * group whose rank 0 comes first in the world. Ranks of two worlds each count in their own report.
 */
static bool remote_group_counts(MPI_Comm comm) {
    MPI_Group world;
    MPI_Group local;
    MPI_Group remote;
    int zero = 0;
    int local_leader = 0;
    int remote_leader = 0;
    underlying.Comm_group(shim_world, &world);
    underlying.Comm_group(comm, &local);
    underlying.Comm_remote_group(comm, &remote);
    underlying.Group_translate_ranks(local, 1, &zero, world, &local_leader);
    underlying.Group_translate_ranks(remote, 1, &zero, world, &remote_leader);
    underlying.Group_free(&world);
    underlying.Group_free(&local);
    underlying.Group_free(&remote);
    return remote_leader != MPI_UNDEFINED && remote_leader < local_leader;
}

static comm_record *new_record(MPI_Comm comm, const char *label, sums_word sums) {
    int is_inter = 0;
    if (underlying.Comm_test_inter(comm, &is_inter) != MPI_SUCCESS) {
        return NULL; /* not a communicator; MPI has said so */
    }
    comm_record *record = calloc(1, sizeof *record);
    if (record == NULL) {
        return NULL;
    }
    record->comm = comm;
    record->sums = sums;
    atomic_init(&record->holds, 1);
    underlying.Comm_rank(comm, &record->rank);
    underlying.Comm_size(comm, &record->size);
    atomic_init(&record->pass_reason,
                is_inter ? TRIBUTARY_PASS_INTERCOMMUNICATOR : TRIBUTARY_PASS_NOT_SET_UP);
    atomic_init(&record->state, is_inter ? COMM_PASSES : COMM_LATE);
    atomic_init(&record->uses_to_join, 1);
    bool counted = record->rank == 0 && !(is_inter && remote_group_counts(comm));
    record->core = tributary_communicator_new(is_inter ? "intercommunicator" : label,
                                              (uint32_t)record->size, counted, sums.text);
    if (!handle_table_insert(&comm_table, (uintptr_t)comm, record)) {
        communicators_let_go(record);
        return NULL;
    }
    if (underlying.Comm_set_attr(comm, keyval, record) != MPI_SUCCESS) {
        give_up(comm, keyval, record, NULL);
        return NULL;
    }
    return record;
}

/* The progress hook. Another rank, or another thread, may have revoked the communicator meanwhile. */
static int progress(void *context) {
    comm_record *record = context;
    progress_barred++;
    shim_drive_mpi();
    progress_barred--;
    return communicators_is_revoked(record);
}

static void pass_on(comm_record *record, uint32_t reason) {
    atomic_store_explicit(&record->pass_reason, reason, memory_order_relaxed);
    /* Pairs with the acquire in decide(): the reason is visible with the state. */
    atomic_store_explicit(&record->state, COMM_PASSES, memory_order_release);
}

/*
 * Whether all members have this library. Processes of other worlds come in by MPI_Intercomm_merge; as long as there was none,
 * all members of every communicator are this world's.
 */
static bool all_have_library(comm_record *record) {
    if (record->all_have_library || !atomic_load_explicit(&worlds_were_merged, memory_order_relaxed) ||
        !presence_has_foreigners(record->comm, shim_world)) {
        return true;
    }
    record->all_have_library = presence_is_complete(record->comm);
    if (!record->all_have_library) {
        pass_on(record, TRIBUTARY_PASS_MISSING);
    }
    return record->all_have_library;
}

void communicators_join_in_time(comm_record *record) {
    if (atomic_fetch_sub_explicit(&record->uses_to_join, 1, memory_order_relaxed) == 1) {
        communicators_join(record);
    }
}

uint8_t communicators_agree(const tributary_bootstrap *members, uint8_t here) {
    uint8_t *all = malloc(members->size);
    uint8_t any = 0;
    if (all == NULL || members->allgather(members->context, &here, all, 1) != 0) {
        any = UINT8_MAX;
    }
    for (uint32_t rank = 0; any != UINT8_MAX && rank < members->size; rank++) {
        any |= all[rank];
    }
    free(all);
    return any;
}

/* Whether this thread's processor makes zeros of subnormal numbers, as GCC's -ffast-math has it do. */
static bool flushes_subnormals(void) {
#if defined(__x86_64__)
    enum { FLUSH_RESULTS = 1 << 15, FLUSH_OPERANDS = 1 << 6 };
    return (__builtin_ia32_stmxcsr() & (FLUSH_RESULTS | FLUSH_OPERANDS)) != 0;
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return (control & (UINT64_C(1) << 24)) != 0;
#else
    return false;
#endif
}

/*
 * Learns what holds at any member while the communicator is set up. Aggregation nodes round to nearest, whatever
 * the program has set; inside a host its own mode holds. In a replicated group each host computes its result by
 * itself, so all must compute alike. Whether operations must look at it.
 */
static bool watch_members(comm_record *record, const tributary_bootstrap *members) {
    enum { HAS_DEVICE_DRIVER = 1, ROUNDS_OTHERWISE = 2, FLUSHES = 4, KEEPS = 8 };
    uint8_t here = (devices_find() ? HAS_DEVICE_DRIVER : 0) |
                   (fegetround() != FE_TONEAREST ? ROUNDS_OTHERWISE : 0) |
                   (flushes_subnormals() ? FLUSHES : KEEPS);
    uint8_t any = communicators_agree(members, here);
    bool is_mixed = (any & FLUSHES) != 0 && (any & KEEPS) != 0;
    record->asks_devices = (any & HAS_DEVICE_DRIVER) != 0;
    record->keeps_from_rounding =
        ((any & ROUNDS_OTHERWISE) != 0 || is_mixed) && !record->is_on_one_host;
    return record->asks_devices || record->keeps_from_rounding;
}

void communicators_join(comm_record *record) {
    if (!all_have_library(record)) {
        return;
    }
    tributary_bootstrap members =
        communicators_bootstrap(&record->comm, record->rank, record->size);
    tributary_progress_hook hook = {.call = progress, .context = record};
    int outcome = tributary_communicator_join(record->core, &members, &hook);
    if (outcome == TRIBUTARY_UNMET) {
        failure_end_job(record->comm);
    }
    if (outcome != TRIBUTARY_JOINED) {
        pass_on(record, TRIBUTARY_PASS_UNAVAILABLE);
        return;
    }
    record->is_on_one_host = tributary_communicator_is_on_one_host(record->core);
    record->takes_fast_path = record->is_on_one_host && !timing_is_on;
    for (uint32_t collective = 0; collective < TRIBUTARY_COLLECTIVES; collective++) {
        record->longest_bytes[collective] =
            tributary_communicator_longest(record->core, collective);
    }
    bool is_watched = watch_members(record, &members) || fault_tolerance_is_on();
    comm_state state = is_watched ? COMM_WATCHED : COMM_READY;
    /* Pairs with the acquire in decide(): the links are visible with the state. */
    atomic_store_explicit(&record->state, state, memory_order_release);
}

bool communicators_is_revoked(comm_record *record) {
    /* Relaxed: a call on a communicator that another thread is freeing is the program's error. */
    return !atomic_load_explicit(&record->is_freed, memory_order_relaxed) &&
           fault_tolerance_is_revoked(record->comm);
}

MPI_Comm communicators_for_errors(comm_record *record) {
    bool is_freed = atomic_load_explicit(&record->is_freed, memory_order_relaxed);
    return is_freed ? shim_comm_for_errors() : record->comm;
}

void communicators_revoked(comm_record *record) {
    if (atomic_load_explicit(&record->state, memory_order_relaxed) != COMM_PASSES) {
        pass_on(record, TRIBUTARY_PASS_REVOKED);
    }
}

void communicators_add_merged(MPI_Comm comm, const char *label) {
    atomic_store_explicit(&worlds_were_merged, true, memory_order_relaxed);
    communicators_add(comm, label, SUMS_AS_SET);
}

sums_word communicators_sums_of(MPI_Comm comm) {
    comm_record *record = communicators_find(comm);
    return record == NULL ? SUMS_AS_SET : record->sums;
}

sums_word communicators_sums_in(MPI_Info info) {
    sums_word word = {""};
    int is_there = 0;
    if (info != MPI_INFO_NULL) {
        underlying.Info_get(info, "tributary_sums", (int)sizeof word.text - 1, word.text, &is_there);
    }
    return is_there ? word : SUMS_AS_SET;
}

void communicators_add(MPI_Comm comm, const char *label, sums_word sums) {
    if (comm == MPI_COMM_NULL) {
        return;
    }
    comm_record *record = new_record(comm, label, sums);
    if (record == NULL || atomic_load_explicit(&record->state, memory_order_relaxed) != COMM_LATE ||
        !all_have_library(record)) {
        return;
    }
    tributary_bootstrap members = communicators_bootstrap(&comm, record->rank, record->size);
    uint32_t after = tributary_communicator_joins_after(&members);
    if (after == 0) {
        communicators_join(record);
    } else if (after > 1) {
        atomic_store_explicit(&record->uses_to_join, after, memory_order_relaxed);
        atomic_store_explicit(&record->pass_reason, TRIBUTARY_PASS_SELDOM, memory_order_relaxed);
    }
}

comm_record *communicators_find(MPI_Comm comm) {
    comm_record *record = comm_table_find(comm);
    if (__builtin_expect(record != NULL, 1) || comm == MPI_COMM_NULL) {
        return record;
    }
    pthread_mutex_lock(&adopting);
    record = comm_table_find(comm);
    if (record == NULL) {
        record = new_record(comm, "late", SUMS_AS_SET);
    }
    pthread_mutex_unlock(&adopting);
    return record;
}

/* Calls give_up(). */
static void delete_attribute(void *value) {
    comm_record *record = value;
    underlying.Comm_delete_attr(record->comm, keyval);
}

void communicators_close(void) {
    handle_table_visit(&comm_table, delete_attribute);
    underlying.Comm_free_keyval(&keyval);
}
