/*
 * The measuring program of `tributary bench -- LAUNCHER`. The program `tributary` holds this source and compiles it
 * with the user's mpicc, so that the same program runs with the preload library and without it.
 *
 *     measure CASE...          CASE is COLLECTIVE:BYTES:BLOCKS:WARMUP:FORM
 *
 * FORM is a word of letters: b or n, a blocking or a nonblocking call, and i, in place. BYTES are those of a rank's
 * vector: what it contributes, and for reduce_scatter what it contributes to all ranks, rounded up to whole elements
 * for each.
 *
 * A case is timed in blocks of calls, one call a block unless a call takes less than BLOCK_US. Ranks meet in a barrier
 * before each block; its time is not counted. A block's time is the slowest rank's over the calls of the block. In a
 * reduction to one rank, a broadcast and a scan some ranks may run ahead of others, so calls in a row would measure a
 * rate: they have one call a block, and so has every call in place, because its result is the next call's
 * contribution. After each block every rank compares the whole result of the last call with what it has to be.
 *
 * What is between measured calls must not go through the preload library, so that it is the same with it and without:
 * the barrier is of messages between two ranks, and results come together by MPI_Gather and MPI_Scatter, which are not
 * offloaded.
 *
 * Rank 0 writes lines that begin with MARK and go on with JSON; launchers may put words before them. Names of hosts are
 * in them so that `tributary` can take them out of texts; it writes no name to a file.
 *
 * For the project's test of wrong results: if MEASURE_PLANT_WRONG names a collective, rank 0 takes one element of its
 * first result for a wrong one.
 */
#include <mpi.h>

#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define MARK "@tributary-bench "
#define BLOCK_US 20.0

enum { CALLS_MAX = 100, TRIAL_CALLS = 5, BATCH = 256, SAMPLES_A_LINE = 32, ADAPTERS_MAX = 16, TAG = 7 };

enum kind { ALLREDUCE, REDUCE, BCAST, BARRIER, ALLGATHER, REDUCE_SCATTER, SCAN, KINDS };

static const char *const NAMES[KINDS] = {"allreduce", "reduce",         "bcast", "barrier",
                                         "allgather", "reduce_scatter", "scan"};

struct measured_case {
    enum kind kind;
    bool starts;   /* a nonblocking call and a wait */
    bool in_place;
    int elements;  /* floats of a rank's vector */
    int part;      /* of it, what a rank gets of a reduce_scatter */
    int results;   /* floats of the result's buffer */
    long blocks;
    long warmup;
    int calls;     /* a block */
    int calls_min;
};

/* An adapter as the kernel describes it. */
struct adapter {
    char name[IF_NAMESIZE];
    char driver[32];
    long long speed_mbps; /* 0: unknown */
    long long mtu_bytes;
    unsigned long long sent_bytes, received_bytes;
};

struct host_facts {
    char name[MPI_MAX_PROCESSOR_NAME];
    char kernel[16]; /* digits and dots alone: what follows them may be a person's */
    char boot[40];   /* tells one running kernel from another; empty where it is not known */
    int cores;
    int rdma_ports;
    int adapters;
    struct adapter adapter[ADAPTERS_MAX];
};

static int rank, ranks;
static float *mine, *result;
static double times_us[BATCH];
static double *all_us; /* rank 0's: the times of all ranks */
static long long wrong, checked;
static bool plants_wrong;

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void fail(const char *what, const char *detail) {
    fprintf(stderr, "tributary bench, rank %d: %s: %s\n", rank, what, detail);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* Every rank hears of every other, directly or through others, in as many steps as the number of ranks has digits. */
static void meet(void) {
    for (int distance = 1; distance < ranks; distance *= 2) {
        int to = (rank + distance) % ranks, from = (rank - distance + ranks) % ranks;
        MPI_Sendrecv(NULL, 0, MPI_BYTE, to, TAG, NULL, 0, MPI_BYTE, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* What rank 0 has, on all ranks. */
static int agreed(int value) {
    int *all = malloc((size_t)ranks * sizeof(int));
    if (all == NULL) {
        fail("memory for the ranks", "is missing");
    }
    for (int at = 0; at < ranks; at++) {
        all[at] = value;
    }
    MPI_Scatter(all, 1, MPI_INT, &value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(all);
    return value;
}

/* Elements are small whole numbers, so that a sum is exact in any order. A rank's have its weight. */
static float shape_of(int at) {
    return (float)(at % 7 + 1);
}

static long weight_of(int of_rank) {
    return of_rank % 127 + 1;
}

static long weight_below(int count) {
    long sum = 0;
    for (int at = 0; at < count; at++) {
        sum += weight_of(at);
    }
    return sum;
}

static struct measured_case parse(const char *text) {
    struct measured_case one = {.kind = KINDS, .calls = 1, .calls_min = 1};
    char name[24] = "", form[4] = "";
    long bytes = 0;
    if (sscanf(text, "%23[a-z_]:%ld:%ld:%ld:%3[bni]:%d", name, &bytes, &one.blocks, &one.warmup, form,
               &one.calls_min) < 5) {
        fail("not a case", text);
    }
    for (int at = 0; at < KINDS; at++) {
        if (strcmp(name, NAMES[at]) == 0) {
            one.kind = (enum kind)at;
        }
    }
    if (one.kind == KINDS || one.blocks < 1 || one.warmup < 0 || bytes < 0 || one.calls_min < 1 ||
        one.calls_min > CALLS_MAX) {
        fail("not a case", text);
    }
    one.starts = strchr(form, 'n') != NULL;
    one.in_place = strchr(form, 'i') != NULL;
    long elements = bytes / (long)sizeof(float);
    if (one.kind == REDUCE_SCATTER) {
        elements = (elements + ranks - 1) / ranks * ranks;
        one.part = (int)(elements / ranks);
    }
    long results = one.kind == ALLGATHER ? elements * ranks : elements;
    if (results > INT_MAX) {
        fail("the result has more elements than an int counts; use a smaller size", text);
    }
    one.elements = (int)elements;
    one.results = (int)results;
    return one;
}

/* Runs the call. What is in place has its contribution in the result's buffer. */
static void call(const struct measured_case *one) {
    const MPI_Comm world = MPI_COMM_WORLD;
    const int n = one->elements;
    MPI_Request request = MPI_REQUEST_NULL;
    const void *from = one->in_place ? MPI_IN_PLACE : mine;
    switch (one->kind) {
    case ALLREDUCE:
        if (one->starts) {
            MPI_Iallreduce(from, result, n, MPI_FLOAT, MPI_SUM, world, &request);
        } else {
            MPI_Allreduce(from, result, n, MPI_FLOAT, MPI_SUM, world);
        }
        break;
    case REDUCE:
        /* Only the root reduces in place. */
        from = rank == 0 ? from : mine;
        if (one->starts) {
            MPI_Ireduce(from, result, n, MPI_FLOAT, MPI_SUM, 0, world, &request);
        } else {
            MPI_Reduce(from, result, n, MPI_FLOAT, MPI_SUM, 0, world);
        }
        break;
    case BCAST:
        if (one->starts) {
            MPI_Ibcast(result, n, MPI_FLOAT, 0, world, &request);
        } else {
            MPI_Bcast(result, n, MPI_FLOAT, 0, world);
        }
        break;
    case BARRIER:
        if (one->starts) {
            MPI_Ibarrier(world, &request);
        } else {
            MPI_Barrier(world);
        }
        break;
    case ALLGATHER:
        if (one->starts) {
            MPI_Iallgather(from, n, MPI_FLOAT, result, n, MPI_FLOAT, world, &request);
        } else {
            MPI_Allgather(from, n, MPI_FLOAT, result, n, MPI_FLOAT, world);
        }
        break;
    case REDUCE_SCATTER:
        if (one->starts) {
            MPI_Ireduce_scatter_block(from, result, one->part, MPI_FLOAT, MPI_SUM, world, &request);
        } else {
            MPI_Reduce_scatter_block(from, result, one->part, MPI_FLOAT, MPI_SUM, world);
        }
        break;
    case SCAN:
        if (one->starts) {
            MPI_Iscan(from, result, n, MPI_FLOAT, MPI_SUM, world, &request);
        } else {
            MPI_Scan(from, result, n, MPI_FLOAT, MPI_SUM, world);
        }
        break;
    case KINDS:
        break;
    }
    if (one->starts) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* Nothing of an earlier result stays, and what is in place has its contribution. */
static void prepare(const struct measured_case *one) {
    for (int at = 0; at < one->results; at++) {
        result[at] = -1;
    }
    if (one->kind == BCAST ? rank == 0 : one->in_place) {
        int first = one->kind == ALLGATHER ? rank * one->elements : 0;
        memcpy(result + first, mine, (size_t)one->elements * sizeof(float));
    }
}

/* Counts the elements of the result that are not what they have to be. */
static void check(const struct measured_case *one) {
    static long all_weights, weights_so_far;
    if (all_weights == 0) {
        all_weights = weight_below(ranks);
        weights_so_far = weight_below(rank + 1);
    }
    int count = one->results, first = 0;
    float weight = (float)all_weights;
    switch (one->kind) {
    case REDUCE:
        count = rank == 0 ? count : 0;
        break;
    case BCAST:
        weight = (float)weight_of(0);
        break;
    case REDUCE_SCATTER:
        count = one->part;
        first = rank * one->part;
        break;
    case SCAN:
        weight = (float)weights_so_far;
        break;
    default:
        break;
    }
    if (one->kind == ALLGATHER) {
        for (int from = 0; from < ranks; from++) {
            const float *part = result + (size_t)from * (size_t)one->elements;
            for (int at = 0; at < one->elements; at++) {
                wrong += part[at] != (float)weight_of(from) * shape_of(at);
            }
        }
    } else {
        for (int at = 0; at < count; at++) {
            wrong += result[at] != weight * shape_of(first + at);
        }
    }
    checked += count;
    if (plants_wrong && count > 0) {
        wrong += 1;
        plants_wrong = false;
    }
}

/* The time of a block on this rank, for one call. */
static double timed_block(const struct measured_case *one) {
    prepare(one);
    meet();
    double start = now_us();
    for (int at = 0; at < one->calls; at++) {
        call(one);
    }
    double us = (now_us() - start) / one->calls;
    check(one);
    return us;
}

static bool may_run_ahead(enum kind kind) {
    return kind == REDUCE || kind == BCAST || kind == SCAN;
}

/* Warms up, and finds how many calls make a block that is long enough. */
static void settle(struct measured_case *one) {
    for (long at = 0; at < one->warmup || at < 1; at++) {
        timed_block(one);
    }
    if (one->in_place || may_run_ahead(one->kind)) {
        return;
    }
    one->calls = TRIAL_CALLS;
    double us = timed_block(one);
    double calls = us >= BLOCK_US ? 1 : us * CALLS_MAX <= BLOCK_US ? CALLS_MAX : BLOCK_US / us + 1;
    one->calls = agreed((int)calls < one->calls_min ? one->calls_min : (int)calls);
}

/* Rank 0 writes the slowest rank's time of each of some blocks. */
static void write_slowest(int number, int count) {
    MPI_Gather(times_us, count, MPI_DOUBLE, all_us, count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank != 0) {
        return;
    }
    for (int block = 0; block < count; block++) {
        double slowest = 0;
        for (int from = 0; from < ranks; from++) {
            double us = all_us[(size_t)from * (size_t)count + (size_t)block];
            slowest = us > slowest ? us : slowest;
        }
        if (block % SAMPLES_A_LINE == 0) {
            printf(MARK "{\"samples\":{\"case\":%d,\"us\":[%.3f", number, slowest);
        } else {
            printf(",%.3f", slowest);
        }
        if (block % SAMPLES_A_LINE == SAMPLES_A_LINE - 1 || block == count - 1) {
            printf("]}}\n");
            fflush(stdout);
        }
    }
}

/* The sum over the ranks, on rank 0. */
static long long total(long long value) {
    long long *all = rank == 0 ? malloc((size_t)ranks * sizeof(long long)) : NULL;
    if (rank == 0 && all == NULL) {
        fail("memory for the ranks", "is missing");
    }
    MPI_Gather(&value, 1, MPI_LONG_LONG, all, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    long long sum = 0;
    for (int from = 0; rank == 0 && from < ranks; from++) {
        sum += all[from];
    }
    free(all);
    return sum;
}

static void measure(const char *text, int number) {
    struct measured_case one = parse(text);
    const char *planted = getenv("MEASURE_PLANT_WRONG");
    plants_wrong = rank == 0 && planted != NULL && strcmp(planted, NAMES[one.kind]) == 0;
    wrong = checked = 0;
    mine = malloc((size_t)one.elements * sizeof(float) + 1);
    result = malloc((size_t)one.results * sizeof(float) + 1);
    if (mine == NULL || result == NULL) {
        fail("memory for the vectors is missing; use a smaller size", text);
    }
    for (int at = 0; at < one.elements; at++) {
        mine[at] = (float)weight_of(rank) * shape_of(at);
    }
    settle(&one);
    for (long done = 0; done < one.blocks; done += BATCH) {
        int count = one.blocks - done < BATCH ? (int)(one.blocks - done) : BATCH;
        for (int at = 0; at < count; at++) {
            times_us[at] = timed_block(&one);
        }
        write_slowest(number, count);
    }
    long long all_wrong = total(wrong), all_checked = total(checked);
    if (rank == 0) {
        printf(MARK "{\"done\":{\"case\":%d,\"bytes\":%lld,\"calls\":%d,\"wrong\":%lld,\"checked\":%lld}}\n", number,
               (long long)one.elements * (long long)sizeof(float), one.calls, all_wrong, all_checked);
        fflush(stdout);
    }
    free(mine);
    free(result);
}

/* Asks the kernel for an adapter's driver, speed and MTU. */
static void describe(struct adapter *one, int socket_fd) {
    struct ifreq request = {0};
    struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
    struct ethtool_cmd link = {.cmd = ETHTOOL_GSET};
    memcpy(request.ifr_name, one->name, IF_NAMESIZE);
    if (ioctl(socket_fd, SIOCGIFMTU, &request) == 0) {
        one->mtu_bytes = request.ifr_mtu;
    }
    request.ifr_data = (void *)&driver;
    if (ioctl(socket_fd, SIOCETHTOOL, &request) == 0) {
        snprintf(one->driver, sizeof one->driver, "%.31s", driver.driver);
    }
    request.ifr_data = (void *)&link;
    if (ioctl(socket_fd, SIOCETHTOOL, &request) == 0) {
        unsigned speed = ethtool_cmd_speed(&link);
        one->speed_mbps = speed == 0 || speed == (unsigned)SPEED_UNKNOWN ? 0 : speed;
    }
}

/* This network namespace's adapters but the loopback, with what they have carried. */
static void find_adapters(struct host_facts *facts) {
    FILE *file = fopen("/proc/net/dev", "r");
    int socket_fd = socket(AF_INET, SOCK_DGRAM, 0);
    char line[512];
    facts->adapters = 0;
    while (file != NULL && socket_fd >= 0 && facts->adapters < ADAPTERS_MAX && fgets(line, sizeof line, file) != NULL) {
        struct adapter one = {0};
        int found = sscanf(line, " %15[^: ]: %llu %*u %*u %*u %*u %*u %*u %*u %llu", one.name, &one.received_bytes,
                           &one.sent_bytes);
        if (found == 3 && strcmp(one.name, "lo") != 0) {
            describe(&one, socket_fd);
            facts->adapter[facts->adapters++] = one;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    if (socket_fd >= 0) {
        close(socket_fd);
    }
}

/* Ports of InfiniBand, RoCE and their kin that are active. */
static int count_rdma_ports(void) {
    FILE *list = popen("cat /sys/class/infiniband/*/ports/*/state 2>/dev/null", "r");
    char line[64];
    int active = 0;
    while (list != NULL && fgets(line, sizeof line, list) != NULL) {
        active += strstr(line, "ACTIVE") != NULL;
    }
    if (list != NULL) {
        pclose(list);
    }
    return active;
}

static struct host_facts own_facts(void) {
    struct host_facts facts;
    memset(&facts, 0, sizeof facts);
    int length = 0;
    MPI_Get_processor_name(facts.name, &length);
    struct utsname system;
    if (uname(&system) == 0) {
        size_t digits = strspn(system.release, "0123456789.");
        snprintf(facts.kernel, sizeof facts.kernel, "%.*s", digits < 15 ? (int)digits : 15, system.release);
    }
    FILE *boot = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (boot != NULL) {
        if (fscanf(boot, "%39s", facts.boot) != 1) {
            facts.boot[0] = '\0';
        }
        fclose(boot);
    }
    facts.cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    find_adapters(&facts);
    return facts;
}

/* A text between quotation marks: what JSON would have to escape is left out. */
static void write_text(const char *text) {
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text >= ' ' && *text < 127 && *text != '"' && *text != '\\') {
            putchar(*text);
        }
    }
    putchar('"');
}

/* One line for the host: its facts, and what each adapter has carried between two moments. */
static void write_host(const struct host_facts *before, const struct host_facts *after, int count) {
    printf(MARK "{\"host\":{\"name\":");
    write_text(after->name);
    printf(",\"ranks\":%d,\"cores\":%d,\"kernel\":\"%s\",\"boot\":", count, after->cores,
           after->kernel);
    write_text(after->boot);
    printf(",\"rdma_ports\":%d,\"adapters\":[", after->rdma_ports);
    for (int at = 0; at < after->adapters; at++) {
        const struct adapter *one = &after->adapter[at];
        unsigned long long sent = 0, received = 0;
        for (int earlier = 0; earlier < before->adapters; earlier++) {
            if (strcmp(before->adapter[earlier].name, one->name) == 0) {
                sent = one->sent_bytes - before->adapter[earlier].sent_bytes;
                received = one->received_bytes - before->adapter[earlier].received_bytes;
            }
        }
        printf("%s{\"driver\":", at == 0 ? "" : ",");
        write_text(one->driver);
        printf(",\"speed_mbps\":%lld,\"mtu_bytes\":%lld,\"sent_bytes\":%llu,\"received_bytes\":%llu}", one->speed_mbps,
               one->mtu_bytes, sent, received);
    }
    printf("]}}\n");
    fflush(stdout);
}

/* Rank 0 writes a line for every host: the first rank of a host speaks for it. */
static void write_hosts(const struct host_facts *before, const struct host_facts *after) {
    struct host_facts *all = rank == 0 ? malloc(2 * (size_t)ranks * sizeof(struct host_facts)) : NULL;
    if (rank == 0 && all == NULL) {
        fail("memory for the hosts", "is missing");
    }
    int bytes = (int)sizeof(struct host_facts);
    MPI_Gather(before, bytes, MPI_BYTE, all, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Gather(after, bytes, MPI_BYTE, rank == 0 ? all + ranks : NULL, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    for (int at = 0; rank == 0 && at < ranks; at++) {
        const struct host_facts *latest = all + ranks;
        bool is_first = true;
        int count = 0;
        for (int other = 0; other < ranks; other++) {
            bool is_same = strcmp(latest[at].name, latest[other].name) == 0;
            is_first = is_first && !(is_same && other < at);
            count += is_same;
        }
        if (is_first) {
            write_host(&all[at], &latest[at], count);
        }
    }
    free(all);
}

static void write_start(void) {
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0, version = 0, subversion = 0;
    MPI_Get_library_version(library, &length);
    MPI_Get_version(&version, &subversion);
    /* What follows may name the person and the host that built it. */
    library[strcspn(library, ",\n")] = '\0';
    printf(MARK "{\"start\":{\"ranks\":%d,\"mpi_standard\":\"%d.%d\",\"library\":", ranks, version, subversion);
    write_text(library);
    printf("}}\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    /* Before MPI_Init: with some MPIs a process must not start another one later. */
    int rdma_ports = count_rdma_ports();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > 32768) {
        fail("sums of more than 32768 ranks are not exact here", "use fewer ranks");
    }
    all_us = rank == 0 ? malloc((size_t)ranks * BATCH * sizeof(double)) : NULL;
    if (rank == 0) {
        if (all_us == NULL) {
            fail("memory for the times", "is missing");
        }
        write_start();
    }
    struct host_facts before = own_facts();
    for (int at = 1; at < argc; at++) {
        measure(argv[at], at - 1);
    }
    struct host_facts after = own_facts();
    after.rdma_ports = rdma_ports;
    write_hosts(&before, &after);
    free(all_us);
    MPI_Finalize();
    return 0;
}
