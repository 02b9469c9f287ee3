/*
 * Wrong arguments: the same error class as from the MPI beneath, and the communicator still works.
 * The expected class comes from PMPI_, so it is whatever this MPI says.
 */
#include "check.h"

enum { COUNT = 4 };

static int mine[COUNT];
static int all[COUNT];

/* Error codes may be made anew for each error; classes are comparable. */
static int class_of(int code) {
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

static void compare(const char *name, int beneath, int ours) {
    check_case("%s", name);
    check_that(beneath != MPI_SUCCESS, "the MPI beneath accepts it");
    check_equal(class_of(beneath), class_of(ours), "error class");
}

static void still_works(MPI_Comm comm) {
    int one = 1;
    int sum = 0;
    check_case("after an error");
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    check_equal(world.ranks, sum, "sum");
}

#define COMPARE(name, call) compare(name, P##call, call)

int main(int argc, char **argv) {
    check_start(argc, argv, "errors", MPI_THREAD_SINGLE);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    still_works(comm);
    COMPARE("negative count", MPI_Allreduce(mine, all, -1, MPI_INT, MPI_SUM, comm));
    COMPARE("null datatype", MPI_Allreduce(mine, all, COUNT, MPI_DATATYPE_NULL, MPI_SUM, comm));
    COMPARE("null operator", MPI_Allreduce(mine, all, COUNT, MPI_INT, MPI_OP_NULL, comm));
    COMPARE("bitwise on floats", MPI_Allreduce(mine, all, 1, MPI_FLOAT, MPI_BAND, comm));
    COMPARE("root too large", MPI_Bcast(all, COUNT, MPI_INT, world.ranks, comm));
    COMPARE("negative root", MPI_Bcast(all, COUNT, MPI_INT, -5, comm));
    COMPARE("root of a reduction", MPI_Reduce(mine, all, COUNT, MPI_INT, MPI_SUM, 99, comm));
    COMPARE("negative count in a broadcast", MPI_Bcast(all, -1, MPI_INT, 0, comm));
    COMPARE("null communicator", MPI_Barrier(MPI_COMM_NULL));
    still_works(comm);
    MPI_Comm_free(&comm);
    return check_finish();
}
