// A UDP socket with a datagram that is not complete, and not sent: it says so, and waits.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    // Whoever runs the tests may have given them more.
    syscall(SYS_close_range, 3, ~0U, 0);
    int one = 1, made = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (argc > 1 && argv[1][0] == 'c') setsockopt(made, IPPROTO_UDP, UDP_CORK, &one, sizeof one);
    puts(sendto(made, "half", 4, argc > 1 && argv[1][0] == 'm' ? MSG_MORE : 0, (void *)&to, sizeof to) == 4 ? "done" : "cannot");
    fflush(stdout);
    for (;;) pause();
}
