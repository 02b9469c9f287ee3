/*
 * What the library finds out about memory of a real device: run on a machine with a GPU of NVIDIA's, by
 *
 *     gcc -std=gnu11 -I crates/mpi/shim tests/mpi/real_devices.c crates/mpi/shim/devices.c -ldl -o /tmp/real_devices
 *     /tmp/real_devices
 *
 * fake_driver.c plays the driver everywhere else, and this says whether it plays it right. Exit code 2 where there is no
 * driver or no device: then nothing was tested.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "devices.h"

enum { BYTES = 1 << 20, ATTACH_GLOBAL = 1 };

typedef int (*call)();

static void *driver;

static call find(const char *name) {
    call found = (call)(uintptr_t)dlsym(driver, name);
    if (found == NULL) {
        fprintf(stderr, "real_devices: the driver has no %s\n", name);
        exit(2);
    }
    return found;
}

static void must(int code, const char *what) {
    if (code != 0) {
        fprintf(stderr, "real_devices: %s: error %d of the driver\n", what, code);
        exit(2);
    }
}

static int failed;

static void expect(const char *what, const void *address, bool is_devices) {
    bool found = devices_have(address, NULL) && devices_have(NULL, address);
    const char *names[] = {"host", "device"};
    printf("%-32s %s, %s expected\n", what, names[found], names[is_devices]);
    failed += found != is_devices;
}

int main(void) {
    unsigned long long memory = 0, managed = 0;
    void *pinned = NULL, *context = NULL;
    int device = 0;
    if (devices_find()) {
        fprintf(stderr, "real_devices: a driver is there before it is loaded\n");
        return 1;
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "real_devices: %s\n", dlerror());
        return 2;
    }
    must(find("cuInit")(0), "cuInit");
    must(find("cuDeviceGet")(&device, 0), "cuDeviceGet");
    must(find("cuDevicePrimaryCtxRetain")(&context, device), "cuDevicePrimaryCtxRetain");
    must(find("cuCtxSetCurrent")(context), "cuCtxSetCurrent");
    must(find("cuMemAlloc_v2")(&memory, (size_t)BYTES), "cuMemAlloc");
    must(find("cuMemAllocManaged")(&managed, (size_t)BYTES, ATTACH_GLOBAL), "cuMemAllocManaged");
    must(find("cuMemHostAlloc")(&pinned, (size_t)BYTES, 0), "cuMemHostAlloc");
    void *registered = aligned_alloc(4096, BYTES);
    must(find("cuMemHostRegister_v2")(registered, (size_t)BYTES, 0), "cuMemHostRegister");
    char local = 0;
    if (!devices_find()) {
        fprintf(stderr, "real_devices: the driver is loaded, and not found\n");
        return 1;
    }
    expect("memory of the device", (void *)(uintptr_t)memory, true);
    expect("its last byte", (void *)(uintptr_t)(memory + BYTES - 1), true);
    expect("managed memory", (void *)(uintptr_t)managed, true);
    expect("pinned memory of the host", pinned, false);
    expect("registered memory of the host", registered, false);
    expect("memory that the driver knows not", &local, false);
    expect("no memory", NULL, false);
    /* From a thread or process that has no context: what MPI programs do before they choose a device. */
    must(find("cuCtxSetCurrent")(NULL), "cuCtxSetCurrent");
    expect("memory of the device, no context", (void *)(uintptr_t)memory, true);
    expect("the stack, no context", &local, false);
    return failed > 0;
}
