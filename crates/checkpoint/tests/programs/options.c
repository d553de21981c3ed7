// Sockets of all kinds with options that are not the usual ones, as many as there are: each is to be what it was.
#include "check.h"
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/socket.h>

// Kinds: IPv4 and IPv6, TCP and UDP, Unix.
static const int families[] = {AF_INET, AF_INET6, AF_INET, AF_INET6, AF_UNIX, AF_UNIX};
static const int types[] = {SOCK_STREAM, SOCK_STREAM, SOCK_DGRAM, SOCK_DGRAM, SOCK_STREAM, SOCK_DGRAM};
static const int levels[] = {SOL_SOCKET, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPPROTO_UDP};
enum { KINDS = 6, LEVELS = 5, NAMES = 111, BYTES = 64 };

// What is no setting, but tells of something, or begins something else.
static int is_left_out(int level, int name) {
    if (level == SOL_SOCKET)
        return name == SO_ERROR || name == SO_PEERCRED || name == SO_INCOMING_CPU || name == SO_MEMINFO || name == SO_COOKIE
            || name == SO_INCOMING_NAPI_ID || name == 77 || name == 71 || name == SO_ATTACH_FILTER;
    if (level == IPPROTO_TCP)
        return name == TCP_INFO || name == TCP_QUICKACK || name == TCP_REPAIR || name == TCP_TIMESTAMP || name == TCP_CC_INFO
            || name == TCP_FASTOPEN_KEY || name == TCP_ULP || name == 38 || name == 14 || name == 32;
    if (level == IPPROTO_UDP) return name == UDP_ENCAP;
    // Packets' options that are said in other words, and the interface's that need an address.
    if (level == IPPROTO_IPV6) return name == IPV6_ADDRFORM || name == IPV6_2292PKTOPTIONS || name == IPV6_JOIN_ANYCAST;
    return level == IPPROTO_IP && (name == IP_MSFILTER || name == IP_PKTOPTIONS);
}
struct value { socklen_t bytes; unsigned char all[BYTES]; };
static struct value get(int made, int level, int name) {
    struct value value = {.bytes = BYTES};
    if (getsockopt(made, level, name, value.all, &value.bytes)) value.bytes = ~0U;
    return value;
}
static int same(struct value one, struct value other) {
    return one.bytes == other.bytes && (one.bytes == ~0U || memcmp(one.all, other.all, one.bytes) == 0);
}
// Another value, if there is one that can be set.
static int change(int made, int level, int name) {
    struct value before = get(made, level, name);
    if (before.bytes == ~0U || is_left_out(level, name)) return 0;
    static const int tries[] = {1, 2, 0, 64, 5000, 100000};
    for (unsigned at = 0; at < sizeof tries / sizeof *tries; at++) {
        unsigned char long_one[16] = {(unsigned char)tries[at]};
        if (setsockopt(made, level, name, &tries[at], 4) && setsockopt(made, level, name, long_one, before.bytes)) continue;
        if (!same(before, get(made, level, name))) return 1;
    }
    return 0;
}

static int sockets[LEVELS][KINDS];
static struct value values[LEVELS][KINDS][NAMES];
static int filtered, by_index;
static char wrong[2000];
static struct value filter_of(int made) {
    struct value value = {.bytes = BYTES / 8};
    if (getsockopt(made, SOL_SOCKET, SO_ATTACH_FILTER, value.all, &value.bytes)) value.bytes = 0;
    value.bytes *= 8;
    return value;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    int changed = 0;
    // Of each kind one socket for the options of each level: those of two would be too many for what an option may need.
    for (int level = 0; level < LEVELS; level++) for (int kind = 0; kind < KINDS; kind++) {
        int made = sockets[level][kind] = socket(families[kind], types[kind], 0);
        check(made >= 0, "socket");
        for (int name = 1; name < NAMES; name++) {
            // These two forbid, or hinder, all that comes after them.
            if (levels[level] == SOL_SOCKET && name == SO_LOCK_FILTER) continue;
            changed += change(made, levels[level], name);
        }
        if (level == 0) changed += change(made, SOL_SOCKET, SO_LOCK_FILTER);
        for (int name = 1; name < NAMES; name++)
            if (!is_left_out(levels[level], name)) values[level][kind][name] = get(made, levels[level], name);
    }
    check(changed > 150, "options are changed");
    struct sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 12, 0, 1),
                                    BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, 65535)};
    struct sock_fprog filter = {4, program};
    int one = 1, by = (int)if_nametoindex("lo"), big = (int)htonl((unsigned)by);
    filtered = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(5300), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    check(bind(filtered, (void *)&at, sizeof at) == 0, "bind");
    check(setsockopt(filtered, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0, "filter");
    check(setsockopt(filtered, SOL_SOCKET, SO_LOCK_FILTER, &one, sizeof one) == 0, "lock");
    by_index = socket(AF_INET6, SOCK_DGRAM, 0);
    check(setsockopt(by_index, IPPROTO_IPV6, IPV6_MULTICAST_IF, &by, sizeof by) == 0, "interface");
    check(setsockopt(by_index, IPPROTO_IPV6, IPV6_UNICAST_IF, &big, sizeof big) == 0, "interface");
    check(setsockopt(by_index, IPPROTO_IP, IP_UNICAST_IF, &big, sizeof big) == 0, "interface");
    struct value has = filter_of(filtered);
    check(has.bytes == 32, "the filter");
    say("ready\n");
    for (;;) {
        wait_to_be_told();
        for (int level = 0; level < LEVELS; level++) for (int kind = 0; kind < KINDS; kind++) for (int name = 1; name < NAMES; name++) {
            if (is_left_out(levels[level], name)) continue;
            if (same(values[level][kind][name], get(sockets[level][kind], levels[level], name))) continue;
            size_t length = strlen(wrong);
            snprintf(wrong + length, sizeof wrong - length, "option %d of level %d of kind %d; ", name, levels[level], kind);
        }
        check(!wrong[0], wrong);
        check(same(has, filter_of(filtered)), "the filter is the same");
        check(setsockopt(filtered, SOL_SOCKET, SO_DETACH_FILTER, &one, sizeof one) == -1 && errno == EPERM, "it is locked");
        int sender = socket(AF_INET, SOCK_DGRAM, 0);
        char text[32];
        check(sendto(sender, "too long", 8, 0, (void *)&at, sizeof at) == 8, "send");
        check(sendto(sender, "abc", 3, 0, (void *)&at, sizeof at) == 3, "send");
        check(recv(filtered, text, sizeof text, 0) == 3 && recv(filtered, text, 1, MSG_DONTWAIT) == -1, "what is filtered");
        close(sender);
        check(*(int *)get(by_index, IPPROTO_IPV6, IPV6_MULTICAST_IF).all == by, "interface of multicast");
        check(*(int *)get(by_index, IPPROTO_IPV6, IPV6_UNICAST_IF).all == big, "interface");
        check(*(int *)get(by_index, IPPROTO_IP, IP_UNICAST_IF).all == big, "interface of IPv4");
        say("ok\n");
    }
}
