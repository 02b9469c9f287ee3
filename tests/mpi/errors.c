/*
 * Wrong arguments give the error of the underlying MPI, once, through the error handler of the right
 * communicator, which works on afterwards. The expected error is that of the PMPI_ form of the same call
 * in the same place, so that every MPI may have its own.
 *
 * All ranks make the same mistake, so no rank waits in a call that the others refused.
 */
#include "check.h"

typedef struct {
    const char *name;
    int (*allreduce)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
    int (*reduce)(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm);
    int (*bcast)(void *, int, MPI_Datatype, int, MPI_Comm);
    int (*barrier)(MPI_Comm);
    int (*iallreduce)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
    int (*ireduce)(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request *);
    int (*ibcast)(void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *);
    int (*ibarrier)(MPI_Comm, MPI_Request *);
    int (*scan)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
    int (*iexscan)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
    int (*wait)(MPI_Request *, MPI_Status *);
} calls;

static const calls interposed = {"MPI",          MPI_Allreduce, MPI_Reduce, MPI_Bcast, MPI_Barrier,
                                 MPI_Iallreduce, MPI_Ireduce,   MPI_Ibcast, MPI_Ibarrier, MPI_Scan,
                                 MPI_Iexscan,    MPI_Wait};
/* Filled in main(): the addresses are those of plain.h, found at run time. */
static calls uninterposed;

static void find_uninterposed(void) {
    uninterposed = (calls){"PMPI",          PMPI_Allreduce, PMPI_Reduce, PMPI_Bcast, PMPI_Barrier,
                           PMPI_Iallreduce, PMPI_Ireduce,   PMPI_Ibcast, PMPI_Ibarrier, PMPI_Scan,
                           PMPI_Iexscan,    PMPI_Wait};
}

/* The arguments of one wrong call; what a collective does not take is left out. */
typedef struct {
    const char *name;
    int count;
    MPI_Datatype type;
    MPI_Op op;
    int root;
    bool aliased;         /* send and receive buffers are the same */
    bool in_place_target; /* MPI_IN_PLACE where the result should go */
} mistake;

enum { ALLREDUCE, REDUCE, BCAST, IALLREDUCE, IREDUCE, IBCAST, SCAN, IEXSCAN, COLLECTIVES };
static const char *const names[] = {"Allreduce", "Reduce", "Bcast", "Iallreduce", "Ireduce",
                                    "Ibcast", "Scan", "Iexscan"};

static double source[16];
static double target[16];
static int handler_calls;

static void count_error(MPI_Comm *comm, int *code, ...) {
    (void)comm;
    (void)code;
    handler_calls++;
}

static int call_one(const calls *with, int collective, const mistake *wrong, MPI_Comm comm) {
    const void *from = wrong->aliased ? target : source;
    void *into = wrong->in_place_target ? MPI_IN_PLACE : target;
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
    switch (collective) {
    case ALLREDUCE:
        return with->allreduce(from, into, wrong->count, wrong->type, wrong->op, comm);
    case REDUCE:
        return with->reduce(from, into, wrong->count, wrong->type, wrong->op, wrong->root, comm);
    case BCAST:
        return with->bcast(target, wrong->count, wrong->type, wrong->root, comm);
    case IALLREDUCE:
        code = with->iallreduce(from, into, wrong->count, wrong->type, wrong->op, comm, &request);
        break;
    case IREDUCE:
        code = with->ireduce(from, into, wrong->count, wrong->type, wrong->op, wrong->root, comm,
                             &request);
        break;
    case SCAN:
        return with->scan(from, into, wrong->count, wrong->type, wrong->op, comm);
    case IEXSCAN:
        code = with->iexscan(from, into, wrong->count, wrong->type, wrong->op, comm, &request);
        break;
    default:
        code = with->ibcast(target, wrong->count, wrong->type, wrong->root, comm, &request);
    }
    return code != MPI_SUCCESS ? code : with->wait(&request, MPI_STATUS_IGNORE);
}

typedef struct {
    int class;
    int handler_calls;
} consequence;

static consequence consequence_of(const calls *with, int collective, const mistake *wrong,
                                  MPI_Comm comm) {
    consequence seen = {0, 0};
    handler_calls = 0;
    int code = call_one(with, collective, wrong, comm);
    PMPI_Error_class(code, &seen.class);
    seen.handler_calls = handler_calls;
    return seen;
}

static void check_still_works(MPI_Comm comm) {
    int one = 1;
    int sum = 0;
    int ranks = 0;
    PMPI_Comm_size(comm, &ranks);
    check_equal(MPI_SUCCESS, MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm),
                "a right call afterwards");
    check_equal(ranks, sum, "its sum");
}

/* MPICH 5.0 checks neither of these in a reduction, and crashes without the preload library. */
static bool crashes_beneath(const mistake *wrong) {
#ifdef MPICH_VERSION
    return wrong->count < 0 || wrong->type == MPI_DATATYPE_NULL;
#else
    return wrong == NULL;
#endif
}

static bool applies(const mistake *wrong, int collective) {
    bool is_bcast = collective == BCAST || collective == IBCAST;
    if (!is_bcast && crashes_beneath(wrong)) {
        return false;
    }
    bool is_scan = collective == SCAN || collective == IEXSCAN;
    bool is_rooted = collective != ALLREDUCE && collective != IALLREDUCE && !is_scan;
    if (wrong->root != 0 && !is_rooted) {
        return false;
    }
    if (wrong->aliased && is_rooted) { /* only the root could notice, so ranks would differ */
        return false;
    }
    if (wrong->aliased && collective == IEXSCAN) { /* rank 0 has no result that could be aliased */
        return false;
    }
    return !is_bcast || wrong->op == MPI_SUM;
}

/* Returns how many of the calls the underlying MPI refused. */
static int run_mistake(const mistake *wrong, MPI_Comm comm, const char *where) {
    int refused = 0;
    for (int collective = 0; collective < COLLECTIVES; collective++) {
        if (!applies(wrong, collective)) {
            continue;
        }
        check_case("%s in MPI_%s on %s", wrong->name, names[collective], where);
        consequence expected = consequence_of(&uninterposed, collective, wrong, comm);
        consequence got = consequence_of(&interposed, collective, wrong, comm);
        check_equal(expected.class, got.class, "error class");
        check_equal(expected.handler_calls, got.handler_calls, "calls of the error handler");
        check_still_works(comm);
        refused += expected.class != MPI_SUCCESS || expected.handler_calls > 0;
    }
    return refused;
}

static void run_mistakes(MPI_Comm comm, const char *where) {
    int ranks;
    int refused = 0;
    MPI_Datatype uncommitted;
    PMPI_Comm_size(comm, &ranks);
    MPI_Type_contiguous(2, MPI_INT, &uncommitted);
    const mistake mistakes[] = {
        {"negative count", -1, MPI_INT, MPI_SUM, 0, false, false},
        {"most negative count", -2147483647 - 1, MPI_DOUBLE, MPI_SUM, 0, false, false},
        {"null datatype", 1, MPI_DATATYPE_NULL, MPI_SUM, 0, false, false},
        {"null operator", 1, MPI_INT, MPI_OP_NULL, 0, false, false},
        {"bit and of doubles", 1, MPI_DOUBLE, MPI_BAND, 0, false, false},
        {"minloc of ints", 1, MPI_INT, MPI_MINLOC, 0, false, false},
        {"maximum of pairs", 1, MPI_DOUBLE_INT, MPI_MAX, 0, false, false},
        {"root beyond the last rank", 1, MPI_INT, MPI_SUM, ranks, false, false},
        {"root far away", 1, MPI_INT, MPI_SUM, ranks + 100000, false, false},
        {"negative root", 1, MPI_INT, MPI_SUM, -77, false, false},
        {"uncommitted datatype", 1, uncommitted, MPI_SUM, 0, false, false},
        {"equal buffers", 1, MPI_INT, MPI_SUM, 0, true, false},
        {"MPI_IN_PLACE as receive buffer", 1, MPI_INT, MPI_SUM, 0, false, true},
    };
    for (size_t at = 0; at < sizeof mistakes / sizeof mistakes[0]; at++) {
        /* If the underlying MPI does not notice, it writes to that address. */
        bool skip = mistakes[at].in_place_target && world.ranks > 1;
        refused += skip ? 0 : run_mistake(&mistakes[at], comm, where);
    }
    check_case("mistakes on %s", where);
    check_that(refused > 0, "the underlying MPI refused no call, so nothing was tested");
    MPI_Type_free(&uncommitted);
}

/* The error of an operation on a null communicator goes to MPI_COMM_SELF's or WORLD's handler. */
static void run_null_communicator(void) {
    const mistake wrong = {"null communicator", 1, MPI_INT, MPI_SUM, 0, false, false};
    for (int collective = 0; collective < COLLECTIVES; collective++) {
        check_case("null communicator in MPI_%s", names[collective]);
        consequence expected = consequence_of(&uninterposed, collective, &wrong, MPI_COMM_NULL);
        consequence got = consequence_of(&interposed, collective, &wrong, MPI_COMM_NULL);
        check_equal(expected.class, got.class, "error class");
    }
    check_case("null communicator in MPI_Barrier");
    int expected;
    int got;
    MPI_Request request = MPI_REQUEST_NULL;
    PMPI_Error_class(PMPI_Barrier(MPI_COMM_NULL), &expected);
    PMPI_Error_class(MPI_Barrier(MPI_COMM_NULL), &got);
    check_equal(expected, got, "error class");
    check_case("null communicator in MPI_Ibarrier");
    PMPI_Error_class(PMPI_Ibarrier(MPI_COMM_NULL, &request), &expected);
    PMPI_Error_class(MPI_Ibarrier(MPI_COMM_NULL, &request), &got);
    check_equal(expected, got, "error class");
}

/*
 * An error that belongs to no communicator. Only MPI_COMM_WORLD's handler was set so far: both MPIs then
 * return the error, unless MPI_COMM_SELF's handler was set too.
 */
static void run_unattached(void) {
    MPI_Op op = MPI_SUM;
    int class = MPI_SUCCESS;
    check_case("MPI_Op_free of MPI_SUM");
    MPI_Error_class(MPI_Op_free(&op), &class);
    check_equal(MPI_ERR_OP, class, "error class");
}

static void return_errors(MPI_Comm comm) { MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN); }

int main(int argc, char **argv) {
    MPI_Comm second;
    MPI_Comm third;
    MPI_Errhandler counting;
    check_start(argc, argv, "errors", MPI_THREAD_SINGLE);
    find_uninterposed();
    return_errors(MPI_COMM_WORLD);
    run_unattached();
    return_errors(MPI_COMM_SELF);
    MPI_Comm_dup(MPI_COMM_WORLD, &second); /* inherits the handler */
    MPI_Comm_dup(MPI_COMM_WORLD, &third);
    MPI_Comm_create_errhandler(count_error, &counting);
    MPI_Comm_set_errhandler(third, counting);
    run_mistakes(MPI_COMM_WORLD, "world");
    run_mistakes(second, "dup");
    run_mistakes(third, "dup with a handler of its own");
    run_mistakes(MPI_COMM_SELF, "self");
    run_null_communicator();
    MPI_Errhandler_free(&counting);
    MPI_Comm_free(&third);
    MPI_Comm_free(&second);
    return check_finish();
}
