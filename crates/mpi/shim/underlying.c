/* Looks up the symbols of the underlying MPI, and checks that it is one that this shim knows. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

underlying_functions underlying;
#ifdef OPEN_MPI
underlying_handle_table underlying_handles;
#endif

/* Only a program that looks functions up at run time gets here: the linker would have refused it. */
int underlying_missing(void) {
    static atomic_flag is_said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&is_said)) {
        fprintf(stderr, "tributary: the MPI library lacks a function that this program calls\n");
    }
    return shim_raise(MPI_ERR_UNSUPPORTED_OPERATION);
}

static void *find_function(void *library, const char *name) {
    void *address = dlsym(library, name);
    return address != NULL ? address : (void *)underlying_missing;
}

#ifdef OPEN_MPI
/*
 * A program that is not position-independent has copies of the objects, which everyone uses; so search
 * the program first. An object that this version lacks stays null, and equals no handle.
 */
static void *find_object(void *library, const char *name) {
    void *address = dlsym(RTLD_DEFAULT, name);
    return address != NULL ? address : dlsym(library, name);
}
#endif

static void *mpi_library;

void *underlying_find(const char *name) {
    return dlsym(mpi_library, name);
}

void underlying_open(void *library) {
    mpi_library = library;
#define UNDERLYING_FIND(name)                                                                      \
    underlying.name = (__typeof__(underlying.name))find_function(library, "PMPI_" #name);
    UNDERLYING_FUNCTIONS(UNDERLYING_FIND)
#undef UNDERLYING_FIND
#define UNDERLYING_FIND(name)                                                                      \
    underlying.name = (__typeof__(underlying.name))dispatch_own(DISPATCH_MPI_##name);
    UNDERLYING_FUNCTIONS_NEWER(UNDERLYING_FIND)
    UNDERLYING_FUNCTIONS_PERSISTENT(UNDERLYING_FIND)
#undef UNDERLYING_FIND
#define UNDERLYING_FIND(name)                                                                      \
    underlying.X_##name = (__typeof__(underlying.X_##name))find_function(library, "PMPIX_" #name);
    UNDERLYING_EXTENSIONS(UNDERLYING_FIND)
#undef UNDERLYING_FIND
#ifdef OPEN_MPI
#define UNDERLYING_FIND(object) underlying_handles.object = find_object(library, #object);
    UNDERLYING_HANDLES(UNDERLYING_FIND)
#undef UNDERLYING_FIND
#endif
}

#ifdef OPEN_MPI
/* These have one binary interface, libmpi.so.40. */
static bool names_expected_library(const char *version) {
    return strstr(version, "Open MPI v4.") != NULL || strstr(version, "Open MPI v5.") != NULL;
}
#endif

#ifdef SHIM_IS_STANDARD
/* Any vendor's library will do: the interface is the standard's. */
static bool names_expected_library(const char *version) {
    return version[0] != '\0';
}
#endif

#ifdef SHIM_IS_MPICH
static int mpich_major;
static int mpich_minor;

bool underlying_is_mpich_since(int major, int minor) {
    return mpich_major > major || (mpich_major == major && mpich_minor >= minor);
}

static bool names_expected_library(const char *version) {
    if (sscanf(version, "MPICH Version: %d.%d", &mpich_major, &mpich_minor) != 2) {
        mpich_major = 0;
    }
    return strstr(version, "MPICH") != NULL || strstr(version, "MVAPICH") != NULL ||
           strstr(version, "Intel(R) MPI") != NULL;
}

#endif

/* A function or an object that this library can't do without and the MPI lacks, or null. */
static const char *lacking(void) {
    const char *name = NULL;
#define UNDERLYING_CHECK(function)                                                                 \
    if (!UNDERLYING_HAS(function)) {                                                               \
        name = "PMPI_" #function;                                                                  \
    }
    UNDERLYING_FUNCTIONS_BASE(UNDERLYING_CHECK)
#undef UNDERLYING_CHECK
#ifdef OPEN_MPI
#define UNDERLYING_CHECK(object)                                                                   \
    if (underlying_handles.object == NULL) {                                                       \
        name = #object;                                                                            \
    }
    UNDERLYING_HANDLES_BASE(UNDERLYING_CHECK)
#undef UNDERLYING_CHECK
#endif
    return name;
}

bool underlying_is_expected_library(char *why_not, size_t why_not_bytes) {
    /* Larger than any implementation's MPI_MAX_LIBRARY_VERSION_STRING (MPICH's is 8192). */
    static char version[65536];
    int length = 0;
    if (!UNDERLYING_HAS(Get_library_version) ||
        underlying.Get_library_version(version, &length) != MPI_SUCCESS) {
        version[0] = '\0';
    }
    if (!names_expected_library(version)) {
        version[strcspn(version, "\n,")] = '\0';
        snprintf(why_not, why_not_bytes, "this library is for Open MPI 4 and 5, MPICH, Intel MPI and MVAPICH, not for %.80s",
                 version[0] != '\0' ? version : "this one");
        return false;
    }
    const char *name = lacking();
    if (name != NULL) {
        snprintf(why_not, why_not_bytes, "this MPI has no %s", name);
        return false;
    }
    return true;
}
