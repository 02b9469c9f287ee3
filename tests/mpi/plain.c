/* Finds the MPI's own functions. */
#define _GNU_SOURCE
#include "plain.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

plain_functions plain;

/* The MPI's library: where a function is that nobody interposes. */
static void *mpi_library(void) {
    Dl_info where;
    void *address = dlsym(RTLD_DEFAULT, "MPI_Get_processor_name");
    void *library = NULL;
    if (address != NULL && dladdr(address, &where) != 0) {
        library = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
    if (library == NULL) {
        fprintf(stderr, "plain: the MPI's library is not found\n");
        abort();
    }
    return library;
}

__attribute__((constructor)) static void find_all(void) {
    void *library = mpi_library();
#define PLAIN_FIND(name) *(void **)&plain.name = dlsym(library, "PMPI_" #name);
    PLAIN_FUNCTIONS(PLAIN_FIND)
#undef PLAIN_FIND
}
