// POSIX message queues: one with messages of several priorities, one on which a child waits, one that is full and to
// which another waits to send, one that is open for reading only, one that has no name any more.
#include "check.h"
#include <mqueue.h>

static mqd_t many, empty, full, readable, removed;

static mqd_t make(const char *name, long most, int flags) {
    struct mq_attr attributes = {.mq_maxmsg = most, .mq_msgsize = 64};
    mqd_t queue = mq_open(name, O_CREAT | O_EXCL | flags, 0640, &attributes);
    check(queue >= 0, "mq_open");
    return queue;
}

static void send(mqd_t queue, const char *text, unsigned priority) {
    int result;
    while ((result = mq_send(queue, text, strlen(text), priority)) == -1 && errno == EINTR);
    check(result == 0, "mq_send");
}

static void receive(mqd_t queue, const char *text, unsigned priority) {
    char room[64];
    unsigned found;
    long length;
    while ((length = mq_receive(queue, room, sizeof room, &found)) == -1 && errno == EINTR);
    check(length == (long)strlen(text) && !memcmp(room, text, strlen(text)) && found == priority, text);
}

static void fill(void) {
    send(many, "second", 5); send(many, "", 0); send(many, "third", 5); send(many, "first", 31000);
}

static void serve(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGUSR1, SIG_IGN);
    for (;;) { receive(empty, "ask", 1); send(many, "answer", 32000); }
}

static void press(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGUSR1, SIG_IGN);
    for (;;) send(full, "pressed", 2);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    // The name of the namespace's queues need not be new where programs are tried one after the other.
    const char *names[] = {"/many", "/empty", "/full", "/removed"};
    for (int i = 0; i < 4; i++) mq_unlink(names[i]);
    many = make("/many", 8, O_RDWR);
    empty = make("/empty", 1, O_RDWR);
    full = make("/full", 2, O_RDWR);
    removed = make("/removed", 3, O_RDWR | O_NONBLOCK);
    readable = mq_open("/many", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    check(readable >= 0 && mq_unlink("/removed") == 0, "queues");
    send(removed, "kept", 3);
    fill();
    if (fork() == 0) serve();
    if (fork() == 0) press();
    for (int round = 0;; round++) {
        say(round ? "ok\n" : "ready\n");
        wait_to_be_told();
        struct mq_attr has;
        check(mq_getattr(readable, &has) == 0 && has.mq_curmsgs == 4 && has.mq_flags == O_NONBLOCK, "what one has");
        check(has.mq_maxmsg == 8 && has.mq_msgsize == 64, "what one may have");
        check(fcntl(readable, F_GETFD) == FD_CLOEXEC && mq_send(readable, "", 0, 0) == -1 && errno == EBADF, "rights");
        struct stat status;
        check(fstat(many, &status) == 0 && (status.st_mode & 0777) == 0640 && status.st_nlink == 1, "a file's rights");
        check(fstat(removed, &status) == 0 && status.st_nlink == 0, "one without a name");
        check(mq_open("/removed", O_RDWR) == -1 && errno == ENOENT, "its name is gone");
        receive(readable, "first", 31000); receive(many, "second", 5); receive(many, "third", 5); receive(many, "", 0);
        send(empty, "ask", 1);
        receive(many, "answer", 32000);
        fill();
        receive(removed, "kept", 3);
        check(mq_receive(removed, (char[64]){0}, 64, 0) == -1 && errno == EAGAIN, "it is empty");
        send(removed, "kept", 3);
        for (int count = 0; count < 5; count++) receive(full, "pressed", 2);
        // Who presses is waiting again.
        for (int tries = 0;; tries++) {
            check(tries < 5000 && mq_getattr(full, &has) == 0, "it is filled again");
            if (has.mq_curmsgs == 2) break;
            usleep(1000);
        }
    }
}
