/*
 * The least time of an operation through one aggregation node, for floor.py: a server and its clients
 * exchange frames of the length that Tributary's have, and do nothing else.
 *
 *   floor server MODE YIELDS CLIENTS ROUNDS OWN_IP
 *   floor client MODE YIELDS ROUNDS SERVER_IP OWN_IP
 *
 * In each round every client sends one frame. When the server has all frames it answers all clients: over
 * TCP, by UDP, or by UDP with one answer to a multicast address. A process that waits yields YIELDS times
 * and then sleeps. The server prints microseconds a round.
 *
 * MODE is tcp, udp or multicast. To the latter two, words with a dash before each add:
 *
 *   busy     SO_BUSY_POLL on what is received from; each process prints the socket's NAPI id as well
 *   prefer   SO_PREFER_BUSY_POLL besides
 *   napi     an XDP program that passes everything, with which a veth has a NAPI instance
 *   uring    receives by io_uring, into buffers of a ring; completions are work of the process, which it
 *            does whenever it returns from a system call, sched_yield too
 *   defer    receives so, but that work waits until the process enters the ring
 *   sends    receives so and sends through the ring too, in one call with the wait if YIELDS is 0
 *   clients  only clients do any of this
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "floor_ring.h"

enum { PORT = 9900, WARM_ROUNDS = 200, TRIES = 200, BUSY_US = 50 };

static const char *const group_address = "239.255.78.1";
static bool over_tcp, by_multicast;
static bool is_busy, is_preferred, has_napi, by_ring, sends_by_ring;

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static struct sockaddr_in address(const char *ip, int port) {
    struct sockaddr_in it = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    need(inet_aton(ip, &it.sin_addr) == 1, ip);
    return it;
}

static void set_no_delay(int socket) {
    int on = 1;
    need(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
}

/* Has the socket's calls poll the device for BUSY_US before they find nothing. */
static void set_busy(int socket) {
    int us = BUSY_US, on = 1;
    if (is_busy) {
        need(setsockopt(socket, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof us) == 0, "SO_BUSY_POLL");
    }
    if (is_preferred) {
        need(setsockopt(socket, SOL_SOCKET, SO_PREFER_BUSY_POLL, &on, sizeof on) == 0,
             "SO_PREFER_BUSY_POLL");
    }
}

/* Without the id of a NAPI instance, which received packets bring, there is nothing to poll. */
static void print_napi(int socket) {
    unsigned id = 0;
    socklen_t size = sizeof id;
    if (is_busy) {
        need(getsockopt(socket, SOL_SOCKET, SO_INCOMING_NAPI_ID, &id, &size) == 0,
             "SO_INCOMING_NAPI_ID");
        printf("NAPI %u\n", id);
    }
}

/* Gives the device a NAPI instance until the process ends: a veth has one only with an XDP program (or
 * for segments to put together). This program lets everything pass. */
static void give_napi(void) {
    struct bpf_insn pass[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS},
                              {.code = BPF_JMP | BPF_EXIT}};
    union bpf_attr program = {.prog_type = BPF_PROG_TYPE_XDP,
                              .expected_attach_type = BPF_XDP,
                              .insns = (__u64)(uintptr_t)pass,
                              .insn_cnt = sizeof pass / sizeof *pass,
                              .license = (__u64)(uintptr_t)"MIT"};
    union bpf_attr link = {.link_create = {.attach_type = BPF_XDP, .flags = XDP_FLAGS_DRV_MODE}};
    link.link_create.target_ifindex = if_nametoindex("eth0");
    link.link_create.prog_fd = (__u32)syscall(SYS_bpf, BPF_PROG_LOAD, &program, sizeof program);
    need((int)link.link_create.prog_fd >= 0, "BPF_PROG_LOAD");
    need(syscall(SYS_bpf, BPF_LINK_CREATE, &link, sizeof link) >= 0, "BPF_LINK_CREATE");
}

/* The server's sockets: one for UDP, or one for each client, watched with edge triggers. */
static int datagrams, watcher, links[CLIENTS_MAX];
static struct sockaddr_in senders[CLIENTS_MAX];
static int known;

static void open_server(int clients, const char *own_ip) {
    struct sockaddr_in any = address("0.0.0.0", PORT);
    if (!over_tcp) {
        struct in_addr own = address(own_ip, 0).sin_addr;
        datagrams = socket(AF_INET, SOCK_DGRAM, 0);
        need(bind(datagrams, (struct sockaddr *)&any, sizeof any) == 0, "bind");
        need(setsockopt(datagrams, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof own) == 0,
             "IP_MULTICAST_IF");
        set_busy(datagrams);
        return;
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    need(bind(listener, (struct sockaddr *)&any, sizeof any) == 0, "bind");
    need(listen(listener, CLIENTS_MAX) == 0, "listen");
    watcher = epoll_create1(0);
    for (int client = 0; client < clients; client++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = (uint32_t)client};
        links[client] = accept(listener, NULL, NULL);
        need(links[client] >= 0, "accept");
        set_no_delay(links[client]);
        need(fcntl(links[client], F_SETFL, O_NONBLOCK) == 0, "fcntl");
        need(epoll_ctl(watcher, EPOLL_CTL_ADD, links[client], &event) == 0, "epoll_ctl");
    }
}

/* Waits for a frame, and returns how many have come. */
static int receive_links(void) {
    struct epoll_event events[CLIENTS_MAX];
    char frame[FRAME_BYTES];
    int count = 0, got = 0;
    for (int polls = 0; count <= 0; polls++) {
        count = epoll_wait(watcher, events, CLIENTS_MAX, polls < yields ? 0 : -1);
        if (count <= 0) {
            sched_yield();
        }
    }
    for (int at = 0; at < count; at++) {
        ssize_t bytes = recv(links[events[at].data.u32], frame, sizeof frame, 0);
        need(bytes != 0, "a client closed its connection");
        got += bytes == FRAME_BYTES;
    }
    return got;
}

static int receive_datagrams(int clients, bool is_first_round) {
    static char frames[CLIENTS_MAX][FRAME_BYTES];
    struct mmsghdr messages[CLIENTS_MAX];
    struct iovec pieces[CLIENTS_MAX];
    struct sockaddr_in sources[CLIENTS_MAX];
    memset(messages, 0, sizeof messages);
    for (int at = 0; at < clients; at++) {
        pieces[at] = (struct iovec){frames[at], FRAME_BYTES};
        messages[at].msg_hdr = (struct msghdr){.msg_name = &sources[at],
                                               .msg_namelen = sizeof *sources,
                                               .msg_iov = &pieces[at], .msg_iovlen = 1};
    }
    int count = 0;
    for (int polls = 0; count <= 0; polls++) {
        int flags = polls < yields ? MSG_DONTWAIT : MSG_WAITFORONE;
        count = recvmmsg(datagrams, messages, (unsigned)clients, flags, NULL);
        if (count <= 0) {
            sched_yield();
        }
    }
    for (int at = 0; at < count && is_first_round; at++) {
        senders[known++] = sources[at];
    }
    return count;
}

static void answer(int clients) {
    static char frame[FRAME_BYTES];
    struct iovec piece = {frame, FRAME_BYTES};
    static struct sockaddr_in group;
    group = address(group_address, PORT + 1);
    if (over_tcp) {
        for (int client = 0; client < clients; client++) {
            need(send(links[client], frame, FRAME_BYTES, 0) == FRAME_BYTES, "send");
        }
    } else if (sends_by_ring) {
        for (int at = 0; at < (by_multicast ? 1 : clients); at++) {
            push_send(datagrams, frame, by_multicast ? &group : &senders[at]);
        }
    } else if (by_multicast) {
        need(sendto(datagrams, frame, FRAME_BYTES, 0, (struct sockaddr *)&group, sizeof group) > 0,
             "sendto");
    } else {
        struct mmsghdr messages[CLIENTS_MAX];
        memset(messages, 0, sizeof messages);
        for (int at = 0; at < clients; at++) {
            messages[at].msg_hdr = (struct msghdr){.msg_name = &senders[at],
                                                   .msg_namelen = sizeof *senders,
                                                   .msg_iov = &piece, .msg_iovlen = 1};
        }
        need(sendmmsg(datagrams, messages, (unsigned)clients, 0) == clients, "sendmmsg");
    }
}

static int receive(int clients, int round) {
    /* A ring's frames come without their senders, so the first round takes calls. */
    if (by_ring && round > 0) {
        return receive_by_ring();
    }
    return over_tcp ? receive_links() : receive_datagrams(clients, round == 0);
}

static void serve(int clients, int rounds, const char *own_ip) {
    double started = 0;
    need(clients <= CLIENTS_MAX, "too many clients");
    open_server(clients, own_ip);
    for (int round = 0; round < rounds; round++) {
        for (int got = 0; got < clients;) {
            got += receive(clients, round);
        }
        if (by_ring && round == 0) {
            open_ring(datagrams);
        }
        if (round == WARM_ROUNDS) {
            started = now_us();
        }
        answer(clients);
    }
    close_ring();
    printf("%.2f\n", (now_us() - started) / (rounds - WARM_ROUNDS));
    print_napi(datagrams);
}

static int open_multicast_receiver(const char *own_ip) {
    struct sockaddr_in group = address(group_address, PORT + 1);
    struct ip_mreq membership = {group.sin_addr, address(own_ip, 0).sin_addr};
    int receiver = socket(AF_INET, SOCK_DGRAM, 0);
    need(bind(receiver, (struct sockaddr *)&group, sizeof group) == 0, "bind");
    need(setsockopt(receiver, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) == 0,
         "IP_ADD_MEMBERSHIP");
    return receiver;
}

static void await_answer(int from) {
    char frame[FRAME_BYTES];
    for (int polls = 0;; polls++) {
        ssize_t got = recv(from, frame, sizeof frame, polls < yields ? MSG_DONTWAIT : 0);
        if (got == FRAME_BYTES) {
            return;
        }
        need(got < 0 && (errno == EAGAIN || errno == EINTR), "recv");
        sched_yield();
    }
}

static void send_frame(int link, const char *frame) {
    /* The first datagrams are refused until the server is there. */
    for (int tries = 0; send(link, frame, FRAME_BYTES, 0) != FRAME_BYTES; tries++) {
        need(errno == ECONNREFUSED && tries < TRIES, "send");
        usleep(20000);
    }
}

static void ask(int rounds, const char *server_ip, const char *own_ip) {
    struct sockaddr_in server = address(server_ip, PORT);
    char frame[FRAME_BYTES] = {0};
    int link = socket(AF_INET, over_tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
    int receiver = by_multicast ? open_multicast_receiver(own_ip) : link;
    for (int tries = 0; connect(link, (struct sockaddr *)&server, sizeof server) != 0; tries++) {
        need(tries < TRIES, "connect");
        usleep(20000);
    }
    if (over_tcp) {
        set_no_delay(link);
    }
    set_busy(receiver);
    for (int round = 0; round < rounds; round++) {
        if (sends_by_ring && round > 0) {
            push_send(link, frame, NULL);
        } else {
            send_frame(link, frame);
        }
        if (by_ring && round > 0) {
            receive_by_ring();
        } else {
            await_answer(receiver);
        }
        if (by_ring && round == 0) {
            open_ring(receiver);
        }
    }
    close_ring();
    print_napi(receiver);
}

static void read_mode(const char *mode, bool is_server) {
    over_tcp = strcmp(mode, "tcp") == 0;
    by_multicast = strncmp(mode, "multicast", strlen("multicast")) == 0;
    if (is_server && strstr(mode, "-clients")) {
        return;
    }
    is_preferred = strstr(mode, "-prefer");
    is_busy = is_preferred || strstr(mode, "-busy");
    has_napi = strstr(mode, "-napi");
    is_deferred = strstr(mode, "-defer");
    sends_by_ring = strstr(mode, "-sends");
    by_ring = is_deferred || sends_by_ring || strstr(mode, "-uring");
}

int main(int argc, char **argv) {
    need(argc == 7, "usage: see the top of the file");
    bool is_server = strcmp(argv[1], "server") == 0;
    read_mode(argv[2], is_server);
    yields = atoi(argv[3]);
    if (has_napi) {
        give_napi();
    }
    if (is_server) {
        serve(atoi(argv[4]), atoi(argv[5]), argv[6]);
    } else {
        ask(atoi(argv[4]), argv[5], argv[6]);
    }
    return 0;
}
