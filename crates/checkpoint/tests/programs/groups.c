// UDP sockets in multicast groups: of any sender, of all but some, of some only, in IPv4 and IPv6, and with datagrams to
// a group that nobody has received.
#include "check.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

static const struct timeval patience = {5, 0};
static unsigned lo;
static struct sockaddr_storage address(const char *text, int port) {
    struct sockaddr_storage made;
    struct sockaddr_in *four = (void *)&made;
    struct sockaddr_in6 *six = (void *)&made;
    memset(&made, 0, sizeof made);
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) { made.ss_family = AF_INET; four->sin_port = htons(port); }
    else { check(inet_pton(AF_INET6, text, &six->sin6_addr) == 1, "address"); made.ss_family = AF_INET6; six->sin6_port = htons(port); }
    return made;
}
static int bound(const char *text, int port, int one_more) {
    struct sockaddr_storage at = address(text, port);
    int one = 1, zero = 0, made = socket(at.ss_family, SOCK_DGRAM, 0);
    if (one_more) check(setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0, "reuse");
    setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    // It hears the groups that it has joined, and no others.
    setsockopt(made, IPPROTO_IP, IP_MULTICAST_ALL, &zero, sizeof zero);
    if (at.ss_family == AF_INET6) setsockopt(made, IPPROTO_IPV6, 29, &zero, sizeof zero);
    check(bind(made, (void *)&at, sizeof at) == 0, "bind");
    return made;
}
static void join(int made, int name, const char *group, const char *source) {
    struct group_source_req request = {.gsr_interface = lo, .gsr_group = address(group, 0)};
    if (source) request.gsr_source = address(source, 0);
    int level = request.gsr_group.ss_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
    socklen_t bytes = name == MCAST_JOIN_GROUP ? sizeof(struct group_req) : sizeof request;
    check(setsockopt(made, level, name, &request, bytes) == 0, "join");
}
static int hears(int made, const char *text) {
    char found[32];
    struct pollfd polled = {made, POLLIN, 0};
    if (poll(&polled, 1, text ? 5000 : 50) == 0) return !text;
    ssize_t got = recv(made, found, sizeof found, 0);
    return text && got == (ssize_t)strlen(text) && memcmp(found, text, (size_t)got) == 0;
}
static void tell(int from, const char *group, int port, const char *text) {
    struct sockaddr_storage to = address(group, port);
    check(sendto(from, text, strlen(text), 0, (void *)&to, sizeof to) == (ssize_t)strlen(text), "send");
}
static int sender(const char *text) {
    struct sockaddr_storage at = address(text, 0);
    int made = socket(AF_INET, SOCK_DGRAM, 0);
    struct in_addr by = ((struct sockaddr_in *)&at)->sin_addr;
    check(bind(made, (void *)&at, sizeof at) == 0, "bind");
    // By that address it goes over the loopback interface.
    check(setsockopt(made, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by) == 0, "interface");
    return made;
}

// Of IPv6, for which there is no route by the loopback interface.
static int is_member(int made, const char *group) {
    struct group_filter filter = {.gf_interface = lo, .gf_group = address(group, 0)};
    socklen_t bytes = sizeof filter;
    if (getsockopt(made, IPPROTO_IPV6, MCAST_MSFILTER, &filter, &bytes)) { check(errno == EADDRNOTAVAIL, "filter"); return 0; }
    return filter.gf_fmode == MCAST_EXCLUDE && filter.gf_numsrc == (unsigned)(group[3] == '5');
}

int main(int argc, char **argv) {
    begin(argc, argv);
    lo = if_nametoindex("lo");
    int everybody = bound("0.0.0.0", 5001, 0), not_two = bound("0.0.0.0", 5002, 0), only_two = bound("0.0.0.0", 5003, 0);
    int none = bound("0.0.0.0", 5004, 0), six = bound("::", 5005, 0), mixed = bound("::", 5006, 0);
    int one = sender("127.0.0.1"), two = sender("127.0.0.2");
    join(everybody, MCAST_JOIN_GROUP, "239.1.0.1", 0);
    join(everybody, MCAST_JOIN_GROUP, "239.1.0.2", 0);
    join(not_two, MCAST_JOIN_GROUP, "239.1.0.1", 0);
    join(not_two, MCAST_BLOCK_SOURCE, "239.1.0.1", "127.0.0.2");
    join(only_two, MCAST_JOIN_SOURCE_GROUP, "239.1.0.1", "127.0.0.2");
    join(only_two, MCAST_JOIN_SOURCE_GROUP, "239.1.0.1", "127.0.0.3");
    join(six, MCAST_JOIN_GROUP, "ff01::77", 0);
    join(six, MCAST_JOIN_GROUP, "ff05::1:3", 0);
    join(six, MCAST_BLOCK_SOURCE, "ff05::1:3", "fd00::7");
    join(mixed, MCAST_JOIN_GROUP, "239.1.0.3", 0);
    // Two that hear the same, which is there already.
    int old[2];
    for (int at = 0; at < 2; at++) {
        old[at] = bound("239.1.0.9", 5009, 1);
        join(old[at], MCAST_JOIN_GROUP, "239.1.0.9", 0);
    }
    tell(two, "239.1.0.9", 5009, "old");
    tell(one, "239.1.0.9", 5009, "news");
    say("ready\n");
    for (;;) {
        wait_to_be_told();
        tell(one, "239.1.0.1", 5001, "a"); tell(two, "239.1.0.2", 5001, "b");
        check(hears(everybody, "a") && hears(everybody, "b"), "two groups");
        tell(two, "239.1.0.1", 5002, "c"); tell(one, "239.1.0.1", 5002, "d");
        check(hears(not_two, "d"), "all but one");
        tell(one, "239.1.0.1", 5003, "e"); tell(two, "239.1.0.1", 5003, "f");
        check(hears(only_two, "f"), "only some");
        check(is_member(six, "ff01::77") && is_member(six, "ff05::1:3") && !is_member(mixed, "ff01::77"), "IPv6");
        tell(one, "239.1.0.3", 5006, "h");
        check(hears(mixed, "h"), "IPv4 by a socket of IPv6");
        for (int at = 0; at < 2; at++) check(hears(old[at], "old") && hears(old[at], "news") && hears(old[at], 0), "what waited");
        tell(two, "239.1.0.9", 5009, "old"); tell(one, "239.1.0.9", 5009, "news");
        // Who has joined nothing hears nothing.
        tell(one, "239.1.0.1", 5004, "i");
        check(hears(none, 0) && hears(not_two, 0) && hears(only_two, 0), "nobody else");
        say("ok\n");
    }
}
