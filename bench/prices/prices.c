// One case of prices.py: sends messages at a fixed rate to a process that sleeps until they come, and prints what
// processor time both took.
//
//   prices CASE BYTES BATCH TICKS_PER_SECOND SECONDS
//
// CASE is what is done at each tick: `pace` nothing, `event` an eventfd, `memory` a copy into shared memory and a futex,
// `stream` a TCP socket, `datagram` BATCH datagrams by one sendmmsg, taken by recvmmsg of up to BATCH. Sockets are those
// of the loopback interface, where the receiver's half of the network stack runs in the sender's call.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/futex.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BATCH_MAX = 32, BYTES_MAX = 65536 };

struct shared {
    _Atomic uint32_t rung;      // how many messages are in memory; the futex
    _Atomic uint64_t received;  // messages that the receiver has taken
    char message[BYTES_MAX];
};

static struct shared *shared;
static char own[BATCH_MAX][BYTES_MAX];
static size_t bytes;
static int batch;

static void must(int is_right, const char *what)
{
    if (!is_right) {
        fprintf(stderr, "prices: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    must(clock_gettime(clock, &time) == 0, "clock_gettime");
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// A connected pair of sockets on the loopback interface.
static void connect_pair(int type, int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int receiver = socket(AF_INET, type, 0);
    must(receiver >= 0 && bind(receiver, (void *)&address, sizeof address) == 0, "bind");
    must(getsockname(receiver, (void *)&address, &length) == 0, "getsockname");
    must(type == SOCK_DGRAM || listen(receiver, 1) == 0, "listen");
    ends[0] = socket(AF_INET, type, 0);
    must(ends[0] >= 0 && connect(ends[0], (void *)&address, sizeof address) == 0, "connect");
    ends[1] = type == SOCK_STREAM ? accept(receiver, NULL, NULL) : receiver;
    must(ends[1] >= 0, "accept");
    int one = 1, room = 4 << 20;
    if (type == SOCK_STREAM) {
        must(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
    } else {
        must(setsockopt(ends[1], SOL_SOCKET, SO_RCVBUF, &room, sizeof room) == 0, "SO_RCVBUF");
    }
}

static void set_messages(struct mmsghdr *messages, struct iovec *pieces)
{
    for (int i = 0; i < batch; i++) {
        pieces[i] = (struct iovec){.iov_base = own[i], .iov_len = bytes};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &pieces[i], .msg_iovlen = 1}};
    }
}

static void receive(const char *name, int end)
{
    static struct mmsghdr messages[BATCH_MAX];
    static struct iovec pieces[BATCH_MAX];
    set_messages(messages, pieces);
    for (;;) {
        int taken = 1;
        if (strcmp(name, "event") == 0) {
            uint64_t count;
            must(read(end, &count, sizeof count) == sizeof count, "read");
            taken = (int)count;
        } else if (strcmp(name, "memory") == 0) {
            uint32_t seen = (uint32_t)shared->received;
            while (shared->rung == seen) {
                syscall(SYS_futex, &shared->rung, FUTEX_WAIT, seen, NULL, NULL, 0);
            }
            memcpy(own[0], shared->message, bytes);
            taken = (int)(shared->rung - seen);
        } else if (strcmp(name, "stream") == 0) {
            must(recv(end, own[0], bytes, MSG_WAITALL) == (ssize_t)bytes, "recv");
        } else {
            taken = recvmmsg(end, messages, (unsigned)batch, MSG_WAITFORONE, NULL);
            must(taken > 0, "recvmmsg");
        }
        shared->received += (uint64_t)taken;
    }
}

static void send_one(const char *name, int end)
{
    static struct mmsghdr messages[BATCH_MAX];
    static struct iovec pieces[BATCH_MAX];
    if (strcmp(name, "event") == 0) {
        uint64_t one = 1;
        must(write(end, &one, sizeof one) == sizeof one, "write");
    } else if (strcmp(name, "memory") == 0) {
        memcpy(shared->message, own[0], bytes);
        shared->rung++;
        syscall(SYS_futex, &shared->rung, FUTEX_WAKE, 1, NULL, NULL, 0);
    } else if (strcmp(name, "stream") == 0) {
        must(send(end, own[0], bytes, 0) == (ssize_t)bytes, "send");
    } else if (strcmp(name, "datagram") == 0) {
        set_messages(messages, pieces);
        must(sendmmsg(end, messages, (unsigned)batch, 0) == batch, "sendmmsg");
    }
}

int main(int count, char **arguments)
{
    must(count == 6, "CASE BYTES BATCH TICKS_PER_SECOND SECONDS");
    const char *name = arguments[1];
    bytes = strtoul(arguments[2], NULL, 10);
    batch = atoi(arguments[3]);
    int64_t gap_ns = (int64_t)(1e9 / atof(arguments[4]));
    int64_t ticks = (int64_t)(atof(arguments[4]) * atof(arguments[5]));
    must(bytes > 0 && bytes <= BYTES_MAX && batch > 0 && batch <= BATCH_MAX, "BYTES, BATCH");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "mmap");
    memset(own, 1, sizeof own);
    int ends[2] = {-1, -1};
    if (strcmp(name, "stream") == 0 || strcmp(name, "datagram") == 0) {
        connect_pair(strcmp(name, "stream") == 0 ? SOCK_STREAM : SOCK_DGRAM, ends);
    } else if (strcmp(name, "event") == 0) {
        ends[0] = ends[1] = eventfd(0, 0);
        must(ends[0] >= 0, "eventfd");
    } else {
        must(strcmp(name, "memory") == 0 || strcmp(name, "pace") == 0, "CASE");
    }
    pid_t receiver = fork();
    must(receiver >= 0, "fork");
    if (receiver == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (strcmp(name, "pace") == 0) {
            for (;;) pause();
        }
        receive(name, ends[1]);
    }
    clockid_t theirs;
    must(clock_getcpuclockid(receiver, &theirs) == 0, "clock_getcpuclockid");
    usleep(20000);  // until the receiver sleeps
    int64_t cpu_ns = -clock_ns(CLOCK_PROCESS_CPUTIME_ID) - clock_ns(theirs);
    int64_t began_ns = clock_ns(CLOCK_MONOTONIC), due_ns = began_ns;
    for (int64_t tick = 0; tick < ticks; tick++) {
        due_ns += gap_ns;
        struct timespec due = {.tv_sec = due_ns / 1000000000, .tv_nsec = due_ns % 1000000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR) {}
        send_one(name, ends[0]);
    }
    int64_t took_ns = clock_ns(CLOCK_MONOTONIC) - began_ns;
    usleep(20000);  // until what is under way has come
    cpu_ns += clock_ns(CLOCK_PROCESS_CPUTIME_ID) + clock_ns(theirs);
    uint64_t received = shared->received;
    kill(receiver, SIGKILL);
    waitpid(receiver, NULL, 0);
    printf("{\"ticks\": %lld, \"cpu_ns\": %lld, \"seconds\": %.6f, \"received\": %llu}\n", (long long)ticks,
           (long long)cpu_ns, (double)took_ns / 1e9, (unsigned long long)received);
    return 0;
}
