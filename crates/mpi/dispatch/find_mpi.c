/*
 * Finds the MPI that this process has loaded, and which binary interface it has.
 *
 * Every loaded object is asked, in the order in which they were loaded. So an MPI that a module has
 * loaded privately is found too, as Python's extensions do, and a tool that defines some PMPI_ functions
 * of its own is not mistaken for the MPI.
 */
#define _GNU_SOURCE
#include "dispatch.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>

/* Every MPI defines it. */
#define PROBE "PMPI_Init"

static bool is_within(const void *address, const struct dl_phdr_info *object) {
    for (int at = 0; at < object->dlpi_phnum; at++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[at];
        uintptr_t begin = object->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && (uintptr_t)address - begin < segment->p_memsz) {
            return true;
        }
    }
    return false;
}

/* MPICH exports the function in both its libraries; in the one with its older interface it says -1. */
static bool has_standard_interface(void *library) {
    int (*abi_version)(int *, int *) = NULL;
    *(void **)&abi_version = dlsym(library, "PMPI_Abi_get_version");
    int major = -1;
    int minor = -1;
    return abi_version != NULL && abi_version(&major, &minor) == 0 && major > 0;
}

static const dispatch_interface *interface_of(void *library) {
    if (dlsym(library, "ompi_mpi_comm_world") != NULL) {
        return &dispatch_interface_openmpi;
    }
    if (has_standard_interface(library)) {
        return &dispatch_interface_abi;
    }
    /* MPICH's interface has no symbol of its own: whose it is, the shim asks MPI_Get_library_version. */
    return &dispatch_interface_mpich;
}

/* Keeps a handle of the first object that defines the probe itself, not in a library that it needs. */
static int visit(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size;
    bool is_program = info->dlpi_name == NULL || info->dlpi_name[0] == '\0';
    if (is_program || is_within((const void *)dispatch_find_mpi, info)) {
        return 0;
    }
    void *object = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    if (object == NULL) {
        return 0;
    }
    void *probe = dlsym(object, PROBE);
    if (probe == NULL || !is_within(probe, info)) {
        dlclose(object);
        return 0;
    }
    /* Never closed: the library must not be unloaded while its addresses are in use. */
    *(void **)context = object;
    return 1;
}

loaded_mpi dispatch_find_mpi(void) {
    loaded_mpi found = {.library = NULL};
    dl_iterate_phdr(visit, &found.library);
    if (found.library != NULL) {
        found.interface = interface_of(found.library);
    }
    return found;
}
