/*
 * Random MPI programs, each drawn from a seed, the same at all ranks.
 *
 * A right program makes communicators, and calls collectives on them: blocking, nonblocking and persistent, in place or not,
 * of any type and operator, some of its own, completed in an order that differs from rank to rank. Between them are calls that the library
 * leaves to the MPI, collectives of an intercommunicator, and communicators that are made and freed while operations of
 * others are outstanding. Every result is compared with an oracle.
 *
 * A threaded program is as many right ones as it has threads, each on communicators of its own, at the same time. Under Open MPI its
 * threads make communicators one after the other.
 *
 * A wrong program does the same on one communicator, until one rank calls something else than the others. Every rank must
 * then get an error that says so: none may wait for ever, and none may go on.
 *
 * MPI_FUZZ_RIGHT, MPI_FUZZ_THREADS and MPI_FUZZ_WRONG say how many programs of each kind are run, MPI_FUZZ_FIRST with which number they
 * begin; a program is drawn from --seed and its number. MPI_FUZZ_LEAVES=2 deals hosts to two leaf switches.
 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "init.h"
#include "values.h"

enum { COMMS = 5, PENDING_MAX = 6, STEPS_MAX = 40, WATCHDOG_STEPS = 8, THREADS = 3 };

/* Whether several threads may make communicators at once. Open MPI 5 may hang then, without the library too. */
#ifdef OPEN_MPI
enum { MAKE_AT_ONCE = 0 };
#else
enum { MAKE_AT_ONCE = 1 };
#endif

typedef enum {
    ALLREDUCE,
    REDUCE,
    BCAST,
    BARRIER,
    SCAN,
    EXSCAN,
    REDUCE_SCATTER_BLOCK,
    ALLGATHER,
    OFFLOADED, /* the library may carry out those before it; those from it on go to the MPI */
    ALLTOALL = OFFLOADED,
    GATHER,
    COLLECTIVES,
} collective;

static const char *const names[] = {"allreduce", "reduce", "bcast", "barrier", "scan",
                                    "exscan", "reduce_scatter_block", "allgather",
                                    "alltoall", "gather"};

typedef enum { BLOCKING, NONBLOCKING, PERSISTENT, FORMS } form;

/* One call, as all ranks of its communicator make it. */
typedef struct {
    collective what;
    form how;
    int comm;
    int root;
    size_t count; /* elements of one rank's contribution, or of its block */
    bool in_place;
    bool strided; /* a broadcast of a type with gaps */
    const value_type *type;
    const value_operator *op;
    uint64_t salt;
} call;

typedef struct {
    MPI_Comm handle;
    int rank;
    int size;
} group;

/* A call that was started. */
typedef struct {
    call made;
    group members;
    MPI_Request request;
    MPI_Datatype strided;
    unsigned char *send;
    unsigned char *receive;
} pending;

/* ---- Random numbers, in each thread: one stream that all ranks share, and one of each rank. ---- */

static _Thread_local uint64_t shared_state;
static _Thread_local uint64_t own_state;

/* The threads of a program, of which this is one. */
static int threads_count = 1;
static _Thread_local int thread_number;
/* How many of them have made the communicators that they begin with. */
static int threads_begun;
static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_begun = PTHREAD_COND_INITIALIZER;

static uint64_t next(uint64_t *state) {
    *state = check_hash(*state, 0x5eed, 1);
    return *state;
}

static size_t below(uint64_t *state, size_t limit) {
    return (size_t)(next(state) % limit);
}

/* ---- Operators of the program: on words of 64 bits, one or several to an element ---- */

enum { OWN_TYPES = 2, OWN_OPERATORS = 2, WORD_BYTES = 8, OWN_WORDS = 3 };

static value_type own_types[OWN_TYPES];
static value_operator own_operators[OWN_OPERATORS];

typedef uint64_t combine_words(uint64_t lower, uint64_t higher);

/* Commutes: (1 + x)(1 + y) - 1. */
static uint64_t multiply_successors(uint64_t lower, uint64_t higher) {
    return lower + higher + lower * higher;
}

/* Does not: a word is a function of x, ax + b, with a in its upper half; the lower rank's is applied first. */
static uint64_t compose(uint64_t lower, uint64_t higher) {
    uint32_t factor = (uint32_t)(higher >> 32);
    uint32_t scaled = factor * (uint32_t)(lower >> 32);
    uint32_t moved = factor * (uint32_t)lower + (uint32_t)higher;
    return (uint64_t)scaled << 32 | moved;
}

static combine_words *const own_combine[OWN_OPERATORS] = {multiply_successors, compose};

static void combine_vectors(combine_words *combine, const void *lower, void *higher, int count,
                            MPI_Datatype type) {
    int bytes = 0;
    PMPI_Type_size(type, &bytes);
    const uint64_t *in = lower;
    uint64_t *in_out = higher;
    for (size_t at = 0; at < (size_t)count * (size_t)bytes / WORD_BYTES; at++) {
        in_out[at] = combine(in[at], in_out[at]);
    }
}

static void apply_commutative(void *in, void *in_out, int *count, MPI_Datatype *type) {
    combine_vectors(multiply_successors, in, in_out, *count, *type);
}

static void apply_ordered(void *in, void *in_out, int *count, MPI_Datatype *type) {
    combine_vectors(compose, in, in_out, *count, *type);
}

static void make_own(void) {
    own_types[0] = (value_type){.name = "word", .handle = MPI_UINT64_T, .extent = WORD_BYTES};
    own_types[1] = (value_type){.name = "words", .extent = (size_t)OWN_WORDS * WORD_BYTES};
    MPI_Type_contiguous(OWN_WORDS, MPI_UINT64_T, &own_types[1].handle);
    MPI_Type_commit(&own_types[1].handle);
    own_operators[0].name = "own commutative";
    own_operators[1].name = "own ordered";
    MPI_Op_create(apply_commutative, 1, &own_operators[0].handle);
    MPI_Op_create(apply_ordered, 0, &own_operators[1].handle);
}

static void free_own(void) {
    for (int at = 0; at < OWN_OPERATORS; at++) {
        MPI_Op_free(&own_operators[at].handle);
    }
    MPI_Type_free(&own_types[1].handle);
}

static bool is_own(const value_operator *op) {
    return op >= own_operators && op < own_operators + OWN_OPERATORS;
}

static void fill_own(uint64_t salt, int rank, void *buffer, size_t bytes) {
    uint64_t *words = buffer;
    for (size_t at = 0; at < bytes / WORD_BYTES; at++) {
        words[at] = check_hash(salt, (uint64_t)rank, at);
    }
}

/* Compares words, the first of which is number `first` of the vector, with the combination of ranks up to `ranks`. */
static void check_own(const value_operator *op, uint64_t salt, int ranks, const void *buffer,
                      size_t first, size_t words) {
    combine_words *combine = own_combine[op - own_operators];
    const uint64_t *got = buffer;
    size_t wrong = 0;
    for (size_t at = 0; at < words; at++) {
        uint64_t expected = check_hash(salt, 0, first + at);
        for (int rank = 1; rank < ranks; rank++) {
            expected = combine(expected, check_hash(salt, (uint64_t)rank, first + at));
        }
        wrong += got[at] != expected;
    }
    check_equal(0, (long long)wrong, "words that an own operator combined wrongly");
}

/* ---- Calls ---- */

static bool is_reduction(collective what) {
    return what != BCAST && what != BARRIER && what < ALLGATHER;
}

/* Whether this rank's contribution lies in its receive buffer. */
static bool is_in_place(const call *made, const group *members) {
    bool rooted = made->what == REDUCE || made->what == GATHER;
    return made->in_place && (!rooted || made->root == members->rank);
}

/* Elements that a rank sends, and receives. */
static size_t sent_elements(const call *made, const group *members) {
    bool has_blocks = made->what == REDUCE_SCATTER_BLOCK || made->what == ALLTOALL;
    return has_blocks ? made->count * (size_t)members->size : made->count;
}

static size_t received_elements(const call *made, const group *members) {
    bool gathers = made->what == ALLGATHER || made->what == GATHER;
    return gathers ? made->count * (size_t)members->size : sent_elements(made, members);
}

static call draw(uint64_t *state, const group *groups, int comm, collective limit) {
    static const size_t counts[] = {1, 2, 3, 7, 16, 100, 513, 4000, 20000};
    call made = {.comm = comm, .salt = next(state)};
    made.what = (collective)below(state, limit);
    made.how = (form)below(state, FORMS);
    made.count = counts[below(state, sizeof counts / sizeof counts[0])];
    made.in_place = below(state, 3) == 0;
    made.strided = below(state, 4) == 0;
    made.root = (int)below(state, 1024) % (groups[comm].size > 0 ? groups[comm].size : 1);
    bool fits;
    do {
        made.type = &value_types[below(state, value_types_count)];
        made.op = &value_operators[below(state, value_operators_count)];
        /* Of a pair, the bytes between its parts are not moved; nor are those behind a long double of ten. */
        fits = is_reduction(made.what) || (made.type->location.bytes == 0 &&
                                           strstr(made.type->name, "LONG_DOUBLE") == NULL);
    } while (!fits || !value_type_exists(made.type) || (made.type->operators & made.op->set) == 0);
    /* Not drawn from the stream: the programs of earlier seeds stay what they were, but for their operators. */
    uint64_t own = check_hash(made.salt, OWN_OPERATORS, 0);
    if (is_reduction(made.what) && own % 4 == 0) {
        made.op = &own_operators[own / 4 % OWN_OPERATORS];
        made.type = &own_types[own / 8 % OWN_TYPES];
    }
    return made;
}

static unsigned char broadcast_byte(uint64_t salt, size_t at) {
    return (unsigned char)check_hash(salt, at / 8, at % 8);
}

/* What one rank sends another in an all-to-all. */
static uint64_t pair_salt(uint64_t salt, int from, int to) {
    return check_hash(salt, (uint64_t)from, (uint64_t)to);
}

/* Room for what a call sends and receives, filled with what this rank contributes. */
static void fill(pending *it) {
    const call *made = &it->made;
    size_t extent = made->type->extent;
    size_t sent = sent_elements(made, &it->members);
    size_t received = received_elements(made, &it->members);
    size_t stride = made->strided && made->what == BCAST ? 2 : 1;
    memset(it->send, CHECK_FILL, sent * extent * stride);
    memset(it->receive, CHECK_FILL, received * extent * stride);
    if (is_reduction(made->what)) {
        if (is_own(made->op)) {
            fill_own(made->salt, it->members.rank, it->send, sent * extent);
        } else {
            values_fill(made->type, made->op, made->salt, it->members.rank, it->send, sent);
        }
        if (made->in_place) {
            memcpy(it->receive, it->send, sent * extent);
        }
    } else if (made->what == BCAST && made->root == it->members.rank) {
        for (size_t at = 0; at < sent * extent; at++) {
            size_t block = at / extent;
            it->receive[block * stride * extent + at % extent] = broadcast_byte(made->salt, at);
        }
    } else if (made->what == ALLTOALL) {
        unsigned char *mine = made->in_place ? it->receive : it->send;
        size_t block = made->count * extent;
        for (size_t at = 0; at < sent * extent; at++) {
            uint64_t salt = pair_salt(made->salt, it->members.rank, (int)(at / block));
            mine[at] = broadcast_byte(salt, at % block);
        }
    } else if (made->what == ALLGATHER || made->what == GATHER) {
        unsigned char *mine =
            is_in_place(made, &it->members) ? it->receive + (size_t)it->members.rank * sent * extent : it->send;
        for (size_t at = 0; at < sent * extent; at++) {
            mine[at] = broadcast_byte(made->salt ^ (uint64_t)it->members.rank, at);
        }
    }
}

static pending prepare(call made, group members) {
    pending it = {.made = made, .members = members, .request = MPI_REQUEST_NULL};
    size_t elements = received_elements(&made, &members) + sent_elements(&made, &members);
    it.send = check_memory(2 * elements * made.type->extent + 8);
    it.receive = check_memory(2 * elements * made.type->extent + 8);
    it.strided = MPI_DATATYPE_NULL;
    if (made.strided && made.what == BCAST) {
        MPI_Type_vector((int)made.count, 1, 2, made.type->handle, &it.strided);
        MPI_Type_commit(&it.strided);
    }
    fill(&it);
    return it;
}

/* Begins, or makes, a call in its form. What MPI says. */
#define IN_FORM(Name, IName, ...)                                                                  \
    (made->how == BLOCKING      ? MPI_##Name(__VA_ARGS__)                                          \
     : made->how == NONBLOCKING ? MPI_##IName(__VA_ARGS__, request)                                \
                                : INIT(Name)(__VA_ARGS__, MPI_INFO_NULL, request))

static int make(pending *it) {
    const call *made = &it->made;
    MPI_Comm comm = it->members.handle;
    MPI_Datatype type = made->type->handle;
    MPI_Op op = made->op->handle;
    MPI_Request *request = &it->request;
    int count = (int)made->count;
    const void *send = is_in_place(made, &it->members) ? MPI_IN_PLACE : it->send;
    switch (made->what) {
    case ALLREDUCE:
        return IN_FORM(Allreduce, Iallreduce, send, it->receive, count, type, op, comm);
    case REDUCE:
        return IN_FORM(Reduce, Ireduce, send, it->receive, count, type, op, made->root, comm);
    case BCAST:
        if (made->strided) {
            return IN_FORM(Bcast, Ibcast, it->receive, 1, it->strided, made->root, comm);
        }
        return IN_FORM(Bcast, Ibcast, it->receive, count, type, made->root, comm);
    case BARRIER:
        return IN_FORM(Barrier, Ibarrier, comm);
    case SCAN:
        return IN_FORM(Scan, Iscan, send, it->receive, count, type, op, comm);
    case EXSCAN:
        return IN_FORM(Exscan, Iexscan, send, it->receive, count, type, op, comm);
    case REDUCE_SCATTER_BLOCK:
        return IN_FORM(Reduce_scatter_block, Ireduce_scatter_block, send, it->receive, count, type,
                       op, comm);
    case ALLTOALL:
        return IN_FORM(Alltoall, Ialltoall, send, count, type, it->receive, count, type, comm);
    case GATHER:
        return IN_FORM(Gather, Igather, send, count, type, it->receive, count, type, made->root,
                       comm);
    default:
        return IN_FORM(Allgather, Iallgather, send, count, type, it->receive, count, type, comm);
    }
}

/* Checks the elements from `first` on of the reduction over ranks 0 up to `ranks`. */
static void check_reduced(const pending *it, int ranks, size_t first) {
    const call *made = &it->made;
    if (is_own(made->op)) {
        size_t words = made->type->extent / WORD_BYTES;
        check_own(made->op, made->salt, ranks, it->receive, first * words, made->count * words);
    } else {
        values_check_block(made->type, made->op, made->salt, ranks, it->receive, first,
                           made->count);
    }
}

static void compare(const pending *it) {
    const call *made = &it->made;
    size_t extent = made->type->extent;
    int rank = it->members.rank;
    int size = it->members.size;
    switch (made->what) {
    case ALLREDUCE:
        check_reduced(it, size, 0);
        return;
    case REDUCE:
        if (made->root == rank) {
            check_reduced(it, size, 0);
        }
        return;
    case SCAN:
        check_reduced(it, rank + 1, 0);
        return;
    case EXSCAN:
        if (rank > 0) {
            check_reduced(it, rank, 0);
        }
        return;
    case REDUCE_SCATTER_BLOCK:
        check_reduced(it, size, made->count * (size_t)rank);
        return;
    case BCAST: {
        size_t stride = made->strided ? 2 : 1;
        size_t wrong = 0;
        for (size_t at = 0; at < made->count * extent; at++) {
            wrong += it->receive[at / extent * stride * extent + at % extent] !=
                     broadcast_byte(made->salt, at);
        }
        check_equal(0, (long long)wrong, "bytes of a broadcast that are wrong");
        return;
    }
    case ALLTOALL: {
        size_t wrong = 0;
        for (int from = 0; from < size; from++) {
            uint64_t salt = pair_salt(made->salt, from, rank);
            for (size_t at = 0; at < made->count * extent; at++) {
                wrong += it->receive[(size_t)from * made->count * extent + at] !=
                         broadcast_byte(salt, at);
            }
        }
        check_equal(0, (long long)wrong, "bytes of an all-to-all that are wrong");
        return;
    }
    case GATHER:
    case ALLGATHER: {
        size_t wrong = 0;
        for (int from = 0; from < size && (made->what == ALLGATHER || made->root == rank); from++) {
            for (size_t at = 0; at < made->count * extent; at++) {
                wrong += it->receive[(size_t)from * made->count * extent + at] !=
                         broadcast_byte(made->salt ^ (uint64_t)from, at);
            }
        }
        check_equal(0, (long long)wrong, "bytes of a gather that are wrong");
        return;
    }
    default:
        return;
    }
}

static void release(pending *it) {
    if (it->strided != MPI_DATATYPE_NULL) {
        MPI_Type_free(&it->strided);
    }
    free(it->send);
    free(it->receive);
}

static void describe(const char *kind, int program, int step, const call *made) {
    check_case("%s program %d step %d: %s form %d comm %d count %zu %s %s root %d%s", kind, program,
               step, names[made->what], (int)made->how, made->comm, made->count, made->type->name,
               made->op->name, made->root, made->in_place ? " in place" : "");
}

/* Waits in one of the ways that MPI has. */
static int await(MPI_Request *request) {
    int done = 0;
    int error = MPI_SUCCESS;
    int index = 0;
    switch (below(&own_state, 3)) {
    case 0:
        return MPI_Wait(request, MPI_STATUS_IGNORE);
    case 1:
        return MPI_Waitany(1, request, &index, MPI_STATUS_IGNORE);
    default:
        while (error == MPI_SUCCESS && !done) {
            error = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        }
        return error;
    }
}

/* ---- Right programs ---- */

static void finish(pending *it) {
    check_equal(MPI_SUCCESS, await(&it->request), "what waiting returns");
    compare(it);
    if (it->made.how == PERSISTENT) {
        MPI_Request_free(&it->request);
    }
    release(it);
}

/*
 * Starts a persistent call: up to twice to its end, and once more. Each start has a place in the order of its
 * communicator's calls, so all are here.
 */
static void start(pending *it) {
    for (uint64_t more = it->made.salt % 3; more > 0; more--) {
        MPI_Start(&it->request);
        check_equal(MPI_SUCCESS, await(&it->request), "what waiting for a persistent call returns");
        compare(it);
        fill(it);
    }
    MPI_Start(&it->request);
}

static int make_groups(MPI_Comm base, group *groups) {
    static const int colours[COMMS] = {1, 2, 1, 3, 1000};
    for (int at = 0; at < COMMS; at++) {
        int key = below(&shared_state, 2) == 0 ? world.rank : -world.rank;
        int colour = at == 3 ? (world.rank < world.ranks / 2) : world.rank % colours[at];
        if (at == 0) {
            MPI_Comm_dup(base, &groups[at].handle);
        } else {
            MPI_Comm_split(base, colour, key, &groups[at].handle);
        }
        MPI_Comm_rank(groups[at].handle, &groups[at].rank);
        MPI_Comm_size(groups[at].handle, &groups[at].size);
    }
    return COMMS;
}

/* Two groups of all ranks, and what is between them. */
typedef struct {
    MPI_Comm own;
    MPI_Comm between;
    int half;
} halves;

static halves make_halves(MPI_Comm base) {
    halves made = {.half = world.rank < world.ranks / 2 ? 0 : 1};
    int leader = made.half == 0 ? world.ranks / 2 : 0;
    MPI_Comm_split(base, made.half, world.rank, &made.own);
    MPI_Intercomm_create(made.own, 0, base, leader, 9, &made.between);
    return made;
}

static void free_halves(halves *made) {
    MPI_Comm_free(&made->between);
    MPI_Comm_free(&made->own);
}

/* Every rank gets the sum of the other group's. */
static void call_between(const halves *made, uint64_t salt) {
    enum { NUMBERS = 3 };
    long sent[NUMBERS];
    long sums[NUMBERS];
    int first = made->half == 0 ? world.ranks / 2 : 0;
    int end = made->half == 0 ? world.ranks : world.ranks / 2;
    for (int at = 0; at < NUMBERS; at++) {
        sent[at] = (long)(check_hash(salt, (uint64_t)world.rank, (uint64_t)at) % 1000);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    int error = salt % 2 == 0
                    ? MPI_Allreduce(sent, sums, NUMBERS, MPI_LONG, MPI_SUM, made->between)
                    : MPI_Iallreduce(sent, sums, NUMBERS, MPI_LONG, MPI_SUM, made->between, &request);
    check_equal(MPI_SUCCESS, error, "what a call between groups returns");
    check_equal(MPI_SUCCESS, await(&request), "what waiting for a call between groups returns");
    for (int at = 0; at < NUMBERS; at++) {
        long expected = 0;
        for (int rank = first; rank < end; rank++) {
            expected += (long)(check_hash(salt, (uint64_t)rank, (uint64_t)at) % 1000);
        }
        check_equal(expected, sums[at], "a sum between groups");
    }
}

/* Waits, where threads make communicators one after the other, until so many have made those that they begin with. */
static void await_begun(int threads) {
    pthread_mutex_lock(&beginning);
    while (!MAKE_AT_ONCE && threads_begun < threads) {
        pthread_cond_wait(&has_begun, &beginning);
    }
    pthread_mutex_unlock(&beginning);
}

static void note_begun(void) {
    pthread_mutex_lock(&beginning);
    threads_begun++;
    pthread_cond_broadcast(&has_begun);
    pthread_mutex_unlock(&beginning);
}

/* A communicator that is made, used once and freed, whatever is outstanding on others and on its parent. */
static void use_short_lived(const group *parent, uint64_t salt) {
    MPI_Comm made;
    long sent = parent->rank + (long)(salt % 1000);
    long sum = -1;
    MPI_Comm_dup(parent->handle, &made);
    check_equal(MPI_SUCCESS, MPI_Allreduce(&sent, &sum, 1, MPI_LONG, MPI_SUM, made),
                "what a short-lived communicator's call returns");
    long size = parent->size;
    check_equal(size * (size - 1) / 2 + size * (long)(salt % 1000), sum,
                "a sum of a short-lived communicator");
    MPI_Comm_free(&made);
}

/* Makes its communicators of `base`, which has all ranks in the order of the world's. */
static void run_right(int program, MPI_Comm base) {
    group groups[COMMS];
    pending started[PENDING_MAX];
    int count = 0;
    check_case("right program %d: communicators", program);
    await_begun(thread_number);
    int comms = make_groups(base, groups);
    halves between = {.half = 0};
    if (world.ranks > 1) {
        between = make_halves(base);
    }
    note_begun();
    await_begun(threads_count);
    int steps = 5 + (int)below(&shared_state, STEPS_MAX);
    for (int step = 0; step < steps; step++) {
        int comm = (int)below(&shared_state, (size_t)comms);
        /* Drawn from numbers that all ranks share: the sizes of a split's groups may differ. */
        uint64_t state = next(&shared_state);
        switch (below(&state, 12)) {
        case 0:
            check_case("right program %d step %d: short-lived, of comm %d", program, step, comm);
            uint64_t salt = next(&state);
            if (MAKE_AT_ONCE || thread_number == 0) {
                use_short_lived(&groups[comm], salt);
            }
            break;
        case 1:
            check_case("right program %d step %d: between groups", program, step);
            if (world.ranks > 1) {
                call_between(&between, next(&state));
            }
            break;
        default:
            break;
        }
        call made = draw(&state, groups, comm, COLLECTIVES);
        describe("right", program, step, &made);
        pending it = prepare(made, groups[comm]);
        check_equal(MPI_SUCCESS, make(&it), "what the call returns");
        if (made.how == PERSISTENT) {
            start(&it);
        }
        if (made.how == BLOCKING) {
            compare(&it);
            release(&it);
        } else {
            started[count++] = it;
        }
        while (count > 0 && (count == PENDING_MAX || below(&own_state, 3) == 0)) {
            size_t at = below(&own_state, (size_t)count);
            finish(&started[at]);
            started[at] = started[--count];
        }
    }
    for (int at = 0; at < count; at++) {
        finish(&started[at]);
    }
    if (world.ranks > 1) {
        free_halves(&between);
    }
    for (int at = comms - 1; at >= 0; at--) {
        MPI_Comm_free(&groups[at].handle);
    }
}

/* ---- Threaded programs ---- */

/* One thread's part of a program. */
typedef struct {
    int program;
    int number;
    MPI_Comm base;
} thread_part;

static void *run_part(void *argument) {
    const thread_part *part = argument;
    uint64_t number = (uint64_t)part->number;
    thread_number = part->number;
    shared_state = check_hash(world.seed, (uint64_t)part->program, (1u << 22) + number);
    own_state = check_hash(shared_state, (uint64_t)world.rank, 1);
    run_right(part->program, part->base);
    return NULL;
}

static void run_threads(int program) {
    pthread_t threads[THREADS];
    thread_part parts[THREADS];
    check_case("threaded program %d: communicators", program);
    threads_begun = 0;
    threads_count = THREADS;
    for (int at = 0; at < THREADS; at++) {
        parts[at] = (thread_part){.program = program, .number = at};
        MPI_Comm_dup(MPI_COMM_WORLD, &parts[at].base);
    }
    for (int at = 1; at < THREADS; at++) {
        if (!check_equal(0, pthread_create(&threads[at], NULL, run_part, &parts[at]),
                         "pthread_create")) {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    run_part(&parts[0]);
    check_case("threaded program %d: waiting for the other threads", program);
    for (int at = 1; at < THREADS; at++) {
        pthread_join(threads[at], NULL);
    }
    threads_count = 1;
    for (int at = 0; at < THREADS; at++) {
        MPI_Comm_free(&parts[at].base);
    }
}

/* ---- Wrong programs ---- */

/* Makes a call one of a type and an operator that every aggregator knows. */
static void make_common(call *made) {
    const MPI_Op common[] = {MPI_SUM, MPI_MAX, MPI_MIN};
    MPI_Datatype type = made->salt % 2 == 0 ? MPI_INT : MPI_DOUBLE;
    for (size_t at = 0; at < value_types_count; at++) {
        if (value_types[at].handle == type) {
            made->type = &value_types[at];
        }
    }
    for (size_t at = 0; at < value_operators_count; at++) {
        if (value_operators[at].handle == common[made->salt / 2 % 3]) {
            made->op = &value_operators[at];
        }
    }
}

/* A call that differs from `made` in one way that all others can tell. */
static call differing(call made, int size) {
    for (;;) {
        call other = made;
        switch (below(&shared_state, 5)) {
        case 0:
            other.count = made.count % 97 + 1;
            /* A shorter contribution at one rank; a broadcast that is shorter at its root is carried out. */
            if (other.count != made.count && made.what != BCAST && made.what != BARRIER) {
                return other;
            }
            break;
        case 1:
            other.root = (made.root + 1) % size;
            if (made.what == REDUCE || made.what == BCAST) {
                return other;
            }
            break;
        case 2:
            /* Another type, operator, or both. */
            other.salt = next(&shared_state);
            make_common(&other);
            if (is_reduction(made.what) && (other.op != made.op || other.type != made.type)) {
                return other;
            }
            break;
        case 3:
            other.what = made.what == BARRIER ? ALLREDUCE : BARRIER;
            return other;
        default:
            other.what = made.what == SCAN ? ALLREDUCE : SCAN;
            if (is_reduction(made.what)) {
                return other;
            }
        }
    }
}

/* Checks that an error says that some disagree. Whether it names two ranks: those of other hosts may hear of a host alone. */
static bool names_two_ranks(int error) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, text, &length);
    check_that(strstr(text, "disagree") != NULL, "the error says: %s", text);
    return strstr(text, "ranks disagree") != NULL;
}

static int make_and_wait(pending *it) {
    int error = make(it);
    if (error != MPI_SUCCESS || it->made.how == BLOCKING) {
        return error;
    }
    if (it->made.how == PERSISTENT) {
        error = MPI_Start(&it->request);
    }
    return error != MPI_SUCCESS ? error : await(&it->request);
}

static void run_wrong(int program) {
    group members;
    check_case("wrong program %d: communicator", program);
    MPI_Comm_dup(MPI_COMM_WORLD, &members.handle);
    MPI_Comm_set_errhandler(members.handle, MPI_ERRORS_RETURN);
    MPI_Comm_rank(members.handle, &members.rank);
    MPI_Comm_size(members.handle, &members.size);
    int wrong_at = (int)below(&shared_state, 6);
    int victim = (int)below(&shared_state, (size_t)world.ranks);
    int error = MPI_SUCCESS;
    for (int step = 0; error == MPI_SUCCESS && step < wrong_at + WATCHDOG_STEPS; step++) {
        uint64_t state = next(&shared_state);
        call made = draw(&state, &members, 0, OFFLOADED);
        /* What the library leaves to the MPI depends on lengths and types, and MPI's own calls know nothing of ours. */
        make_common(&made);
        made.count = made.count % 500 + 1;
        made.strided = false;
        made.how = made.how == PERSISTENT ? BLOCKING : made.how;
        if (step > wrong_at) {
            /* They meet: a rank that only sends has not heard of it. */
            made.what = BARRIER;
        }
        call other = step == wrong_at ? differing(made, members.size) : made;
        describe("wrong", program, step, victim == members.rank ? &other : &made);
        pending it = prepare(victim == members.rank ? other : made, members);
        error = make_and_wait(&it);
        if (error == MPI_SUCCESS && step < wrong_at) {
            compare(&it);
        }
        /* A failed call's buffers may still be in use: the communicator goes first. */
        if (error == MPI_SUCCESS) {
            release(&it);
        }
    }
    int names = check_that(error != MPI_SUCCESS, "no error in %d steps", WATCHDOG_STEPS) &&
                names_two_ranks(error);
    MPI_Comm_free(&members.handle);
    /* All draw the next program from one place, whatever step each heard of it in. */
    check_case("wrong program %d: over", program);
    PMPI_Allreduce(MPI_IN_PLACE, &names, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    check_that(names, "no rank's error names two ranks");
}

static int number_of(const char *name) {
    const char *text = getenv(name);
    return text == NULL ? 0 : atoi(text);
}

/* Names this host's leaf: hosts of one rank each are dealt to so many leaves. */
static void name_leaf(int leaves) {
    const char *of_open_mpi = getenv("OMPI_COMM_WORLD_RANK");
    const char *rank = of_open_mpi ? of_open_mpi : getenv("PMI_RANK");
    char leaf[16];
    snprintf(leaf, sizeof leaf, "%d", rank ? atoi(rank) % leaves : 0);
    setenv("TRIBUTARY_LEAF", leaf, 1);
}

int main(int argc, char **argv) {
    int leaves = number_of("MPI_FUZZ_LEAVES");
    int right = number_of("MPI_FUZZ_RIGHT");
    int threaded = number_of("MPI_FUZZ_THREADS");
    int wrong = number_of("MPI_FUZZ_WRONG");
    int first = number_of("MPI_FUZZ_FIRST");
    if (leaves > 0) {
        name_leaf(leaves);
    }
    check_start(argc, argv, "fuzz", threaded > 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    make_own();
    for (int program = first; program < first + right; program++) {
        shared_state = check_hash(world.seed, (uint64_t)program, 0);
        own_state = check_hash(world.seed, (uint64_t)program, (uint64_t)world.rank + 1);
        run_right(program, MPI_COMM_WORLD);
    }
    for (int program = first; program < first + threaded; program++) {
        run_threads(program);
    }
    for (int program = first; world.ranks > 1 && program < first + wrong; program++) {
        shared_state = check_hash(world.seed, (uint64_t)program, 1u << 20);
        own_state = check_hash(world.seed, (uint64_t)program, (1u << 21) + (uint64_t)world.rank);
        run_wrong(program);
    }
    free_own();
    return check_finish();
}
