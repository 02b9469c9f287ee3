/*
 * Calls a function that the underlying MPI lacks, but a preload library has: a program that looks
 * functions up at run time finds the preload library's. The call must fail as MPI calls fail.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "check.h"

typedef int create_from_group(MPI_Group group, const char *tag, MPI_Info info, MPI_Errhandler handler,
                              MPI_Comm *made);

int main(int argc, char **argv) {
    check_start(argc, argv, "missing", MPI_THREAD_SINGLE);
    create_from_group *create = NULL;
    *(void **)&create = dlsym(RTLD_DEFAULT, "MPI_Comm_create_from_group");
    check_case("MPI_Comm_create_from_group");
    if (check_that(create != NULL, "the preload library has it")) {
        MPI_Comm made = MPI_COMM_NULL;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        int error = create(MPI_GROUP_EMPTY, "tag", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made);
        check_that(error != MPI_SUCCESS, "it gave no error");
        check_that(made == MPI_COMM_NULL, "it made a communicator");
    }
    check_case("after it");
    int one = 1;
    int all = 0;
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_equal(world.ranks, all, "the sum");
    return check_finish();
}
