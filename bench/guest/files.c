/* Files that come and go, on a file system in memory, and what waits for many of them. */
#define _GNU_SOURCE
#include "bench.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

/* So many files exist at once, as in lmbench's lat_fs. */
enum { FILES = 100, LARGE = 10 << 10 };

static const char *name_of(long i) {
    static char name[64];
    snprintf(name, sizeof name, "/tmp/bench-file-%ld", i % FILES);
    return name;
}

static void create(long i, long bytes) {
    static char content[LARGE];
    int file = open(name_of(i), O_WRONLY | O_CREAT | O_EXCL, 0600);
    must(file >= 0, "create a file");
    must(write(file, content, bytes) == bytes, "write a file");
    close(file);
}

static void delete(long i) { must(!unlink(name_of(i)), "delete a file"); }

/* Of n creations and deletions in turns, the time of one kind. */
static double come_and_go(long n, long bytes, int counts_creations) {
    double creating = 0, deleting = 0;
    for (long done = 0; done < n; done += FILES) {
        long many = n - done < FILES ? n - done : FILES;
        double start = now();
        for (long i = 0; i < many; i++) create(i, bytes);
        double between = now();
        for (long i = 0; i < many; i++) delete(i);
        creating += between - start;
        deleting += now() - between;
    }
    return counts_creations ? creating : deleting;
}

double create_0k(long n) { return come_and_go(n, 0, 1); }
double delete_0k(long n) { return come_and_go(n, 0, 0); }
double create_10k(long n) { return come_and_go(n, LARGE, 1); }
double delete_10k(long n) { return come_and_go(n, LARGE, 0); }

/* A mapping of a file comes and goes, a tenth of its pages read: lmbench's lat_mmap, with 1 MiB. */
double map_file(long n) {
    enum { BYTES = 1 << 20, STEP = 10 * 4096 };
    int file = open(SCRATCH, O_RDWR | O_CREAT, 0600);
    must(file >= 0 && !ftruncate(file, BYTES), "create " SCRATCH);
    char *all = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    must(all != MAP_FAILED, "mmap");
    memset(all, 1, BYTES);
    munmap(all, BYTES);
    double start = now();
    for (long i = 0; i < n; i++) {
        char *at = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file, 0);
        must(at != MAP_FAILED, "mmap");
        for (long byte = 0; byte < BYTES; byte += STEP) sink += at[byte];
        munmap(at, BYTES);
    }
    double took = now() - start;
    close(file);
    return took;
}

/* select(2) over 100 TCP sockets, none of which is ready. */
double select_tcp(long n) {
    enum { SOCKETS = 100 };
    int sockets[SOCKETS], most = 0;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    for (int i = 0; i < SOCKETS; i++) {
        sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
        must(sockets[i] >= 0 && sockets[i] < FD_SETSIZE, "socket");
        must(!bind(sockets[i], (struct sockaddr *)&address, sizeof address), "bind");
        must(!listen(sockets[i], 1), "listen");
        if (sockets[i] > most) most = sockets[i];
    }
    double start = now();
    for (long i = 0; i < n; i++) {
        fd_set wanted;
        struct timeval none = {0};
        FD_ZERO(&wanted);
        for (int s = 0; s < SOCKETS; s++) FD_SET(sockets[s], &wanted);
        must(select(most + 1, &wanted, NULL, NULL, &none) == 0, "select");
    }
    double took = now() - start;
    for (int i = 0; i < SOCKETS; i++) close(sockets[i]);
    return took;
}

static void nothing(int signal) { (void)signal; }

/* A handler for a signal is installed. */
double signal_install(long n) {
    struct sigaction action = {.sa_handler = nothing};
    double start = now();
    for (long i = 0; i < n; i++) sigaction(SIGUSR1, &action, NULL);
    return now() - start;
}
