/* Calls the CollNet entry points of NCCL's SHARP plugin as NCCL does, versions 8 to 11, with host memory:
 * `collnet RANKS`. docs/evidence/sharp-clients.md, "The plugin of NCCL", has how to compile it with the plugin's own sources.
 *
 * The plugin's way from rank to rank needs InfiniBand; here it is a ring of sockets, under the names that the
 * plugin expects. What is tested is the plugin's `sharp_plugin.c` and libsharp_coll below it.
 */
#define _GNU_SOURCE
#include "config.h"
#include "core.h"
#include "p2p_plugin.h"

#include <sched.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define OK(call) CHECK((call) == ncclSuccess)

enum { RANKS_MAX = 64, COUNT = 5000 };

/* ---- The ring ---- */

static int ring[RANKS_MAX][2]; /* from each rank to the next: where it writes, where the next one reads */
static int own_rank;
static int dummy;

static ncclResult_t init(void **context, uint64_t id, ncclNetCommConfig_v11_t *config, ncclDebugLogger_t log,
                         ncclProfilerCallback_t profile) {
    (void)context, (void)id, (void)config, (void)profile;
    pluginLogFunction = log;
    return ncclSuccess;
}
static ncclResult_t devices(int *count) {
    *count = 1;
    return ncclSuccess;
}
static ncclResult_t properties_v11(int dev, ncclNetProperties_v11_t *properties) {
    (void)dev;
    memset(properties, 0, sizeof *properties);
    properties->name = "mlx5_0";
    properties->ptrSupport = NCCL_PTR_HOST;
    return ncclSuccess;
}
static ncclResult_t properties_v10(int dev, ncclNetProperties_v10_t *properties) {
    (void)dev;
    memset(properties, 0, sizeof *properties);
    properties->name = "mlx5_0";
    properties->ptrSupport = NCCL_PTR_HOST;
    return ncclSuccess;
}
static ncclResult_t properties_v9(int dev, ncclNetProperties_v9_t *properties) {
    (void)dev;
    memset(properties, 0, sizeof *properties);
    return ncclSuccess;
}
static ncclResult_t properties_v8(int dev, ncclNetProperties_v8_t *properties) {
    (void)dev;
    memset(properties, 0, sizeof *properties);
    return ncclSuccess;
}
static ncclResult_t listen_v10(int dev, void *handle, void **listener) {
    (void)dev;
    *(int *)handle = own_rank;
    *listener = &dummy;
    return ncclSuccess;
}
static ncclResult_t connect_v6(int dev, void *handle, void **comm) {
    (void)dev, (void)handle;
    *comm = &ring[own_rank][0];
    return ncclSuccess;
}
static int ranks;
static ncclResult_t accept_v6(void *listener, void **comm) {
    (void)listener;
    *comm = &ring[(own_rank + ranks - 1) % ranks][1];
    return ncclSuccess;
}
static ncclResult_t reg(void *comm, void *data, size_t size, int type, void **handle) {
    (void)comm, (void)data, (void)size, (void)type;
    *handle = &dummy;
    return ncclSuccess;
}
static ncclResult_t reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                               void **handle) {
    (void)offset, (void)fd;
    return reg(comm, data, size, type, handle);
}
static ncclResult_t dereg(void *comm, void *handle) {
    (void)comm, (void)handle;
    return ncclSuccess;
}

struct transfer {
    int fd, is_send;
    char *data;
    size_t left;
};

static ncclResult_t isend(void *comm, void *data, int size, int tag, void *handle, void **request) {
    (void)tag, (void)handle;
    struct transfer transfer = {*(int *)comm, 1, data, size};
    *request = memcpy(malloc(sizeof transfer), &transfer, sizeof transfer);
    return ncclSuccess;
}
static ncclResult_t irecv(void *comm, int n, void **data, int *sizes, int *tags, void **handles,
                          void **request) {
    (void)n, (void)tags, (void)handles;
    struct transfer transfer = {*(int *)comm, 0, data[0], sizes[0]};
    *request = memcpy(malloc(sizeof transfer), &transfer, sizeof transfer);
    return ncclSuccess;
}
static ncclResult_t test(void *request, int *done, int *sizes) {
    struct transfer *transfer = request;
    (void)sizes;
    ssize_t moved = transfer->is_send ? send(transfer->fd, transfer->data, transfer->left, MSG_DONTWAIT)
                                      : recv(transfer->fd, transfer->data, transfer->left, MSG_DONTWAIT);
    CHECK(moved != 0);
    if (moved > 0) {
        transfer->data += moved;
        transfer->left -= moved;
    } else {
        sched_yield();
    }
    *done = transfer->left == 0;
    if (*done)
        free(transfer);
    return ncclSuccess;
}
static ncclResult_t close_any(void *comm) {
    (void)comm;
    return ncclSuccess;
}

ncclNet_v11_t ncclNetPlugin_v11 = {.init = init, .devices = devices, .getProperties = properties_v11};
ncclNet_v10_t ncclNetPlugin_v10 = {.getProperties = properties_v10,
                                   .listen = listen_v10,
                                   .regMr = reg,
                                   .regMrDmaBuf = reg_dmabuf,
                                   .deregMr = dereg,
                                   .closeSend = close_any,
                                   .closeRecv = close_any,
                                   .closeListen = close_any};
ncclNet_v9_t ncclNetPlugin_v9 = {.getProperties = properties_v9};
ncclNet_v8_t ncclNetPlugin_v8 = {.getProperties = properties_v8,
                                 .regMr = reg,
                                 .deregMr = dereg,
                                 .isend = isend,
                                 .irecv = irecv,
                                 .test = test};
ncclNet_v7_t ncclNetPlugin_v7;
ncclNet_v6_t ncclNetPlugin_v6 = {.connect = connect_v6, .accept = accept_v6};
struct ncclIbDev ncclIbDevs[MAX_IB_DEVS];
ncclDebugLogger_t pluginLogFunction;
nccl_p2p_plugin_t nccl_p2p_get_plugin_type(void) { return NCCL_P2P_IB; }

/* ---- The calls ---- */

extern ncclCollNet_v11_t ncclCollNetPlugin_v11;
extern ncclCollNet_v10_t ncclCollNetPlugin_v10;
extern ncclCollNet_v9_t ncclCollNetPlugin_v9;
extern ncclCollNet_v8_t ncclCollNetPlugin_v8;

static void print_warning(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
                          const char *format, ...) {
    (void)flags, (void)file, (void)line;
    va_list arguments;
    if (level > NCCL_LOG_WARN)
        return;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

/* 1, 2 and 3 of each type, and their length: rank r gives 1 + r % 2. */
static const struct {
    ncclDataType_t type;
    size_t bytes;
    uint64_t one, two, sum_of_two;
} TYPES[] = {
    {ncclInt8, 1, 1, 2, 3},
    {ncclUint8, 1, 1, 2, 3},
    {ncclInt32, 4, 1, 2, 3},
    {ncclUint32, 4, 1, 2, 3},
    {ncclInt64, 8, 1, 2, 3},
    {ncclUint64, 8, 1, 2, 3},
    {ncclFloat16, 2, 0x3c00, 0x4000, 0x4200},
    {ncclFloat32, 4, 0x3f800000, 0x40000000, 0x40400000},
    {ncclFloat64, 8, 0x3ff0000000000000, 0x4000000000000000, 0x4008000000000000},
    {ncclBfloat16, 2, 0x3f80, 0x4000, 0x4040},
};

static void fill(char *bytes, size_t count, size_t size, uint64_t value) {
    for (size_t at = 0; at < count; at++)
        memcpy(bytes + at * size, &value, size);
}

static void expect(const char *bytes, size_t count, size_t size, uint64_t value) {
    for (size_t at = 0; at < count; at++)
        CHECK(memcmp(bytes + at * size, &value, size) == 0);
}

static int32_t number(int rank, size_t at) { return rank * 100003 + (int32_t)at; }

static int32_t sum(size_t at) {
    int32_t total = 0;
    for (int rank = 0; rank < ranks; rank++)
        total += number(rank, at);
    return total;
}

static size_t min_of(size_t one, size_t other) { return one < other ? one : other; }

/* All entry points of one version. `LISTEN`: its listen with the arguments that it takes. */
#define DEFINE_VERSION(VERSION, SGE, INIT, LISTEN)                                                           \
    static void finish_##VERSION(void *request, int bytes) {                                                 \
        int done = 0, size = -1;                                                                             \
        while (!done) {                                                                                      \
            OK(ncclCollNetPlugin_##VERSION.test(request, &done, &size));                                     \
            sched_yield();                                                                                   \
        }                                                                                                    \
        CHECK(done == 1 && size == bytes);                                                                   \
    }                                                                                                        \
                                                                                                             \
    static int allreduces_##VERSION(void *comm) {                                                            \
        static const ncclRedOp_t ops[] = {ncclSum, ncclMax, ncclMin};                                        \
        static char source[COUNT * 8], target[3][COUNT * 8];                                                 \
        void *source_mr, *target_mr, *requests[3];                                                           \
        int calls = 0, supported;                                                                            \
        OK(ncclCollNetPlugin_##VERSION.regMr(comm, source, sizeof source, NCCL_PTR_HOST, &source_mr));       \
        OK(ncclCollNetPlugin_##VERSION.regMrDmaBuf(comm, target, sizeof target, NCCL_PTR_HOST, 0, -1,        \
                                                   &target_mr));                                             \
        for (size_t which = 0; which < sizeof TYPES / sizeof *TYPES; which++) {                              \
            size_t size = TYPES[which].bytes;                                                                \
            fill(source, COUNT, size, own_rank % 2 ? TYPES[which].two : TYPES[which].one);                   \
            /* Three at a time, as NCCL's proxies have them. */                                              \
            for (int op = 0; op < 3; op++) {                                                                 \
                OK(ncclCollNetPlugin_##VERSION.reduceSupport(TYPES[which].type, ops[op], &supported));       \
                CHECK(supported);                                                                            \
                OK(ncclCollNetPlugin_##VERSION.iallreduce(comm, source, target[op], COUNT,                   \
                                                          TYPES[which].type, ops[op], source_mr, target_mr,  \
                                                          &requests[op]));                                   \
            }                                                                                                \
            for (int op = 0; op < 3; op++, calls++)                                                          \
                finish_##VERSION(requests[op], COUNT * size);                                                \
            if (ranks == 2)                                                                                  \
                expect(target[0], COUNT, size, TYPES[which].sum_of_two);                                     \
            expect(target[1], COUNT, size, ranks > 1 ? TYPES[which].two : TYPES[which].one);                 \
            expect(target[2], COUNT, size, TYPES[which].one);                                                \
        }                                                                                                    \
        OK(ncclCollNetPlugin_##VERSION.reduceSupport(ncclFloat32, ncclProd, &supported));                    \
        CHECK(!supported);                                                                                   \
        OK(ncclCollNetPlugin_##VERSION.deregMr(comm, source_mr));                                            \
        OK(ncclCollNetPlugin_##VERSION.deregMr(comm, target_mr));                                            \
        return calls;                                                                                        \
    }                                                                                                        \
                                                                                                             \
    /* The whole in windows of `window` bytes, and each in a call of its own. */                             \
    static int windows_##VERSION(void *comm, size_t window) {                                                \
        size_t block = COUNT * sizeof(int32_t), whole = block * ranks;                                       \
        int32_t *mine = malloc(block), *all = malloc(whole), *given = malloc(whole);                         \
        void *mine_mr, *all_mr, *given_mr, *request;                                                         \
        int calls = 0;                                                                                       \
        OK(ncclCollNetPlugin_##VERSION.regMr(comm, mine, block, NCCL_PTR_HOST, &mine_mr));                   \
        OK(ncclCollNetPlugin_##VERSION.regMr(comm, all, whole, NCCL_PTR_HOST, &all_mr));                     \
        OK(ncclCollNetPlugin_##VERSION.regMr(comm, given, whole, NCCL_PTR_HOST, &given_mr));                 \
        for (size_t at = 0; at < COUNT; at++)                                                                \
            mine[at] = number(own_rank, own_rank * COUNT + at);                                              \
        for (size_t at = 0; at < COUNT * (size_t)ranks; at++)                                                \
            given[at] = number(own_rank, at);                                                                \
        for (size_t offset = 0; offset < whole; offset += window, calls += 2) {                              \
            size_t bytes = min_of(window, whole - offset);                                                   \
            SGE received = {.mhandle = all_mr, .address = (char *)all + offset, .size = bytes};              \
            OK(ncclCollNetPlugin_##VERSION.iallgather(comm, mine, 1, &received, block, offset, bytes,        \
                                                      mine_mr, &request));                                   \
            finish_##VERSION(request, bytes);                                                                \
        }                                                                                                    \
        for (size_t at = 0; at < COUNT * (size_t)ranks; at++)                                                \
            CHECK(all[at] == number(at / COUNT, at));                                                        \
        for (size_t offset = 0; offset < whole; offset += window) {                                          \
            size_t bytes = min_of(window, whole - offset);                                                   \
            SGE sent = {.mhandle = given_mr, .address = (char *)given + offset, .size = bytes};              \
            OK(ncclCollNetPlugin_##VERSION.ireducescatter(comm, 1, &sent, mine, block, offset, bytes,        \
                                                          ncclInt32, ncclSum, mine_mr, &request));           \
            finish_##VERSION(request, block);                                                                \
        }                                                                                                    \
        for (size_t at = 0; at < COUNT; at++)                                                                \
            CHECK(mine[at] == sum(own_rank * COUNT + at));                                                   \
        OK(ncclCollNetPlugin_##VERSION.deregMr(comm, mine_mr));                                              \
        OK(ncclCollNetPlugin_##VERSION.deregMr(comm, all_mr));                                               \
        OK(ncclCollNetPlugin_##VERSION.deregMr(comm, given_mr));                                             \
        free(mine), free(all), free(given);                                                                  \
        return calls;                                                                                        \
    }                                                                                                        \
                                                                                                             \
    static int call_##VERSION(void) {                                                                        \
        void *context = NULL, *listener, *comms[2], *handles[RANKS_MAX];                                     \
        char addresses[RANKS_MAX][NCCL_NET_HANDLE_MAXSIZE];                                                  \
        int count, calls = 0;                                                                                \
        (void)context;                                                                                       \
        OK(INIT);                                                                                            \
        OK(ncclCollNetPlugin_##VERSION.devices(&count));                                                     \
        CHECK(count == 1);                                                                                   \
        for (int rank = 0; rank < ranks; rank++)                                                             \
            handles[rank] = addresses[rank];                                                                 \
        OK(LISTEN);                                                                                          \
        /* Several communicators of one process at a time, each with a context of its own. */               \
        for (int at = 0; at < 2; at++)                                                                       \
            OK(ncclCollNetPlugin_##VERSION.connect(handles, ranks, own_rank, listener, &comms[at]));         \
        for (int at = 0; at < 2; at++) {                                                                     \
            calls += allreduces_##VERSION(comms[at]);                                                        \
            calls += windows_##VERSION(comms[at], (size_t)1 << 40);                                          \
            calls += windows_##VERSION(comms[at], 1 << 13);                                                  \
            calls += windows_##VERSION(comms[at], COUNT * 6);                                                \
        }                                                                                                    \
        for (int at = 0; at < 2; at++)                                                                       \
            OK(ncclCollNetPlugin_##VERSION.closeColl(comms[at]));                                            \
        OK(ncclCollNetPlugin_##VERSION.closeListen(listener));                                               \
        return calls;                                                                                        \
    }

DEFINE_VERSION(v8, ncclNetSGE_v8_t, ncclCollNetPlugin_v8.init(print_warning),
               ncclCollNetPlugin_v8.listen(0, addresses[own_rank], &listener))
DEFINE_VERSION(v9, ncclNetSGE_v9_t, ncclCollNetPlugin_v9.init(print_warning),
               ncclCollNetPlugin_v9.listen(0, addresses[own_rank], &listener))
DEFINE_VERSION(v10, ncclNetSGE_v10_t, ncclCollNetPlugin_v10.init(print_warning),
               ncclCollNetPlugin_v10.listen(0, addresses[own_rank], &listener))
DEFINE_VERSION(v11, ncclNetSGE_v11_t, ncclCollNetPlugin_v11.init(&context, 7, print_warning),
               ncclCollNetPlugin_v11.listen(context, 0, addresses[own_rank], &listener))

static void run_rank(void) {
    int calls[] = {call_v8(), call_v9(), call_v10(), call_v11()};
    OK(ncclCollNetPlugin_v11.finalize(NULL));
    if (own_rank == 0)
        printf("collnet: %d ranks, calls that gave the right result: v8 %d, v9 %d, v10 %d, v11 %d\n", ranks,
               calls[0], calls[1], calls[2], calls[3]);
}

int main(int count, char **arguments) {
    int failures = 0;
    CHECK(count == 2);
    ranks = atoi(arguments[1]);
    CHECK(ranks > 1 && ranks <= RANKS_MAX);
    for (int rank = 0; rank < ranks; rank++)
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ring[rank]) == 0);
    for (own_rank = 0; own_rank < ranks; own_rank++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(300);
            run_rank();
            exit(0);
        }
    }
    for (int status; wait(&status) > 0;)
        failures += status != 0;
    if (failures)
        fprintf(stderr, "collnet: %d ranks failed\n", failures);
    return failures != 0;
}
