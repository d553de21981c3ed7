// A tree: children in its session and in others, groups, one that is stopped, those that have ended and that it has
// not waited for; pipes, an offset and memory that they share.
#include "check.h"

enum { PLAIN, LEADER, GROUP, MEMBER, STOPPED, EXITED, KILLED, COUNT };
static pid_t child[COUNT], grandchild;
static int requests[3][2], replies[2], file;
static char *shared, *private;

static void serve(int number) {
    for (;;) {
        char request;
        check(read(requests[number][0], &request, 1) == 1, "request");
        struct { pid_t pid, parent, group, session; long offset; char shared, private; } answer = {
            getpid(), getppid(), getpgid(0), getsid(0), lseek(file, 1, SEEK_CUR), 0, private[4096]};
        shared[number]++;
        answer.shared = shared[8];
        private[4096] = (char)(private[4096] + number + 1);
        check(write(replies[1], &answer, sizeof answer) == sizeof answer, "answer");
    }
}

static void ask(int number, pid_t pid, pid_t parent, pid_t group, pid_t session, char expected) {
    struct { pid_t pid, parent, group, session; long offset; char shared, private; } answer;
    long before = lseek(file, 0, SEEK_CUR);
    char old = shared[number];
    shared[8] = (char)(old + 55);
    check(write(requests[number][1], "?", 1) == 1, "ask");
    check(read(replies[0], &answer, sizeof answer) == sizeof answer, "reply");
    check(answer.pid == pid && answer.parent == parent, "numbers");
    check(answer.group == group, "group");
    check(answer.session == session, "session");
    check(answer.offset == before + 1 && lseek(file, 0, SEEK_CUR) == before + 1, "shared offset");
    check(shared[number] == old + 1 && answer.shared == (char)(old + 55), "shared memory");
    check(answer.private == expected, "private memory");
}

int main(int argc, char **argv) {
    begin(argc, argv);
    signal(SIGCHLD, SIG_DFL);
    file = open("shared", O_RDWR | O_CREAT, 0600);
    for (int number = 0; number < 3; number++) check(pipe(requests[number]) == 0, "pipe");
    check(pipe(replies) == 0, "pipe");
    shared = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    private = mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(private, 7, 4 << 20);
    for (int i = 0; i < COUNT; i++) {
        fflush(0);
        child[i] = fork();
        if (child[i]) {
            // Groups are made by both, so that it is done whoever comes first.
            if (i == GROUP) setpgid(child[i], child[i]);
            if (i == MEMBER) setpgid(child[i], child[GROUP]);
            continue;
        }
        signal(SIGUSR1, SIG_DFL);
        switch (i) {
        case PLAIN: serve(0); break;
        case LEADER:
            setsid();
            if (fork() == 0) serve(1);
            serve(2);
            break;
        case EXITED: _exit(42);
        default: for (;;) pause();
        }
    }
    kill(child[STOPPED], SIGSTOP);
    kill(child[KILLED], SIGKILL);
    siginfo_t info;
    waitid(P_PID, child[STOPPED], &info, WSTOPPED | WNOWAIT);
    waitid(P_PID, child[KILLED], &info, WEXITED | WNOWAIT);
    waitid(P_PID, child[EXITED], &info, WEXITED | WNOWAIT);
    struct { pid_t pid, parent, group, session; long offset; char shared, private; } first;
    check(write(requests[1][1], "?", 1) == 1, "ask");
    check(read(replies[0], &first, sizeof first) == sizeof first, "reply");
    grandchild = first.pid;
    pid_t pid = getpid(), group = getpgid(0), session = getsid(0);
    say("ready\n");
    for (int round = 0;; round++) {
        wait_to_be_told();
        check(getpid() == pid && getpgid(0) == group && getsid(0) == session, "own numbers");
        ask(0, child[PLAIN], pid, group, session, (char)(7 + round));
        ask(1, grandchild, child[LEADER], child[LEADER], child[LEADER], (char)(9 + 2 * round));
        ask(2, child[LEADER], pid, child[LEADER], child[LEADER], (char)(7 + 3 * round));
        check(getpgid(child[GROUP]) == child[GROUP] && getpgid(child[MEMBER]) == child[GROUP], "groups");
        check(private[4096] == 7 && private[8192] == 7, "own memory");
        memset(&info, 0, sizeof info);
        check(waitid(P_PID, child[EXITED], &info, WEXITED | WNOWAIT | WNOHANG) == 0, "waitid");
        check(info.si_pid == child[EXITED] && info.si_code == CLD_EXITED && info.si_status == 42, "exit status");
        memset(&info, 0, sizeof info);
        check(waitid(P_PID, child[KILLED], &info, WEXITED | WNOWAIT | WNOHANG) == 0, "waitid");
        check(info.si_pid == child[KILLED] && info.si_code == CLD_KILLED && info.si_status == SIGKILL, "killed");
        char name[64], state[128] = {0};
        snprintf(name, sizeof name, "/proc/%d/stat", child[STOPPED]);
        int stat = open(name, O_RDONLY);
        // Who is let go while it is stopped says so a moment later.
        for (int tries = 0; tries < 2000 && !strstr(state, ") T "); tries++) {
            if (tries) usleep(1000);
            check(pread(stat, state, 127, 0) > 0, "read");
        }
        check(strstr(state, ") T ") != 0, "stopped");
        close(stat);
        sigset_t pending;
        sigpending(&pending);
        check(!sigismember(&pending, SIGCHLD), "SIGCHLD");
        say("ok\n");
    }
}
