/* Asks the drivers of devices, which this library is not linked to, or the address space. */
#define _GNU_SOURCE
#include "devices.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* From the interface of CUDA's driver. */
enum { CUDA_SUCCESS = 0, CUDA_ATTRIBUTE_MEMORY_TYPE = 2, CUDA_MEMORY_HOST = 1 };
typedef int cuda_attribute(void *value, int attribute, unsigned long long address);

/* From the interface of HIP's run time. The struct begins with the type; it has grown, and is never this long. */
enum { HIP_SUCCESS = 0, HIP_VERSION_6 = 60000000, HIP_5_MEMORY_HOST = 0, HIP_6_MEMORY_HOST = 1 };
typedef union hip_attributes {
    int memory_type;
    unsigned char room[256];
} hip_attributes;
typedef int hip_attributes_of(hip_attributes *attributes, const void *address);
typedef int hip_version(int *version);

/* Drivers by the names of their libraries. For those without a function that we know, the address space tells. */
static const char *const libraries[] = {"libcuda.so", "libamdhip64.so", "libze_loader.so", "libSynapse.so"};

typedef struct device_drivers {
    cuda_attribute *cuda;
    hip_attributes_of *hip;
    int hip_memory_host;
    bool any;
} device_drivers;

static void ask_library(device_drivers *found, void *library) {
    found->any = true;
    cuda_attribute *cuda = (cuda_attribute *)dlsym(library, "cuPointerGetAttribute");
    hip_attributes_of *hip = (hip_attributes_of *)dlsym(library, "hipPointerGetAttributes");
    hip_version *version_of = (hip_version *)dlsym(library, "hipRuntimeGetVersion");
    found->cuda = cuda != NULL ? cuda : found->cuda;
    if (hip != NULL) {
        int version = 0;
        bool is_new = version_of != NULL && version_of(&version) == HIP_SUCCESS && version >= HIP_VERSION_6;
        found->hip = hip;
        found->hip_memory_host = is_new ? HIP_6_MEMORY_HOST : HIP_5_MEMORY_HOST;
    }
}

static int visit(struct dl_phdr_info *object, size_t bytes, void *value) {
    (void)bytes;
    const char *name = strrchr(object->dlpi_name, '/');
    name = name != NULL ? name + 1 : object->dlpi_name;
    for (size_t at = 0; at < sizeof libraries / sizeof *libraries; at++) {
        if (strncmp(name, libraries[at], strlen(libraries[at])) != 0) {
            continue;
        }
        /* Never closed: a driver stays as long as its process, and so do the addresses found here. */
        void *library = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
        if (library != NULL) {
            ask_library(value, library);
        }
    }
    return 0;
}

static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;
static device_drivers drivers; /* as the last communicator that was set up has found them */

/*
 * Whether the processor can read there: the kernel is asked, not the memory. Where it does not answer such questions,
 * the memory counts as readable.
 */
static bool is_readable(const void *address) {
    char byte;
    struct iovec here = {&byte, 1};
    struct iovec there = {(void *)address, 1};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

/* Memory that a driver has and calls the host's is as good as any; so is what it knows nothing of, if readable. */
static bool is_device_memory(const device_drivers *known, const void *address) {
    unsigned type = 0;
    hip_attributes attributes = {.room = {0}};
    if (address == NULL) {
        return false;
    }
    if (known->cuda != NULL && known->cuda(&type, CUDA_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)address) == CUDA_SUCCESS) {
        return type != CUDA_MEMORY_HOST;
    }
    if (known->hip != NULL && known->hip(&attributes, address) == HIP_SUCCESS) {
        return attributes.memory_type != known->hip_memory_host &&
               !(known->hip_memory_host == HIP_6_MEMORY_HOST && attributes.memory_type == 0);
    }
    return !is_readable(address);
}

bool devices_find(void) {
    device_drivers found = {.cuda = NULL};
    dl_iterate_phdr(visit, &found);
    pthread_mutex_lock(&finding);
    drivers = found;
    pthread_mutex_unlock(&finding);
    return found.any;
}

bool devices_have(const void *first, const void *second) {
    pthread_mutex_lock(&finding);
    device_drivers known = drivers;
    pthread_mutex_unlock(&finding);
    return is_device_memory(&known, first) || is_device_memory(&known, second);
}
