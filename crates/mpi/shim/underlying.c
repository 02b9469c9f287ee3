/* Finds the underlying MPI, and checks that this library was compiled for it. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

underlying_functions underlying;
#ifdef OPEN_MPI
underlying_handle_table underlying_handles;
#endif
atomic_bool underlying_is_resolved;

/* Every MPI defines it, and this library never does. */
#define PROBE "PMPI_Init"

static int open_if_mpi(struct dl_phdr_info *info, size_t size, void *found) {
    (void)size;
    if (info->dlpi_name == NULL || info->dlpi_name[0] == '\0') {
        return 0;
    }
    void *object = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    if (object == NULL) {
        return 0;
    }
    if (dlsym(object, PROBE) == NULL) {
        dlclose(object);
        return 0;
    }
    /* Keep the reference: the library must not be unloaded while its addresses are in use. */
    *(void **)found = object;
    return 1;
}

/* The object to search: the usual order, or an MPI that a module has loaded privately. */
static void *mpi_library(void) {
    if (dlsym(RTLD_NEXT, PROBE) != NULL) {
        return RTLD_NEXT;
    }
    void *found = NULL;
    dl_iterate_phdr(open_if_mpi, &found);
    if (found == NULL) {
        fprintf(stderr, "tributary: this program calls MPI, but has loaded no MPI library\n");
        _Exit(127);
    }
    return found;
}

/* Only a program that looks functions up at run time gets here: the linker would have refused it. */
int underlying_missing(void) {
    static atomic_flag is_said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&is_said)) {
        fprintf(stderr, "tributary: the MPI library lacks a function that this program calls\n");
    }
    /* While the shim is off, this may be another MPI, whose handles differ. */
    if (atomic_load_explicit(&shim_is_on, memory_order_acquire)) {
        underlying.Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_UNSUPPORTED_OPERATION);
    }
    return MPI_ERR_UNSUPPORTED_OPERATION;
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

static pthread_mutex_t resolving = PTHREAD_MUTEX_INITIALIZER;

void underlying_resolve(void) {
    pthread_mutex_lock(&resolving);
    if (!atomic_load_explicit(&underlying_is_resolved, memory_order_relaxed)) {
        void *library = mpi_library();
#define UNDERLYING_FIND(name)                                                                      \
    underlying.name = (__typeof__(underlying.name))find_function(library, "PMPI_" #name);
        UNDERLYING_FUNCTIONS(UNDERLYING_FIND)
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
        /* Pairs with the acquire in underlying_ensure(). */
        atomic_store_explicit(&underlying_is_resolved, true, memory_order_release);
    }
    pthread_mutex_unlock(&resolving);
}

#ifdef OPEN_MPI
/* These have one binary interface, libmpi.so.40. */
static bool names_expected_library(const char *version) {
    return strstr(version, "Open MPI v4.") != NULL || strstr(version, "Open MPI v5.") != NULL;
}
#define EXPECTED "Open MPI 4 or 5"
#else
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
#define EXPECTED "MPICH or another MPI with its ABI"

/* MPICH also ships a library with the ABI of MPI 5, whose handles are pointers. */
static bool has_standard_abi(void) {
    int (*abi_version)(int *, int *) = NULL;
    Dl_info where;
    if (dladdr((void *)underlying.Get_library_version, &where) != 0 && where.dli_fname != NULL) {
        void *object = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (object != NULL) {
            *(void **)&abi_version = dlsym(object, "PMPI_Abi_get_version");
            dlclose(object);
        }
    }
    int major = -1;
    int minor = -1;
    return abi_version != NULL && abi_version(&major, &minor) == MPI_SUCCESS && major > 0;
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
        snprintf(why_not, why_not_bytes, "this preload library is for " EXPECTED ", not for %.80s",
                 version[0] != '\0' ? version : "this one");
        return false;
    }
    const char *name = lacking();
    if (name != NULL) {
        snprintf(why_not, why_not_bytes, "this MPI has no %s", name);
        return false;
    }
#ifndef OPEN_MPI
    if (has_standard_abi()) {
        snprintf(why_not, why_not_bytes,
                 "this preload library is for " EXPECTED ", not for the MPI 5 standard ABI");
        return false;
    }
#endif
    return true;
}
