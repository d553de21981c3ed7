// Processes and threads with rights of their own: capabilities of all five sets, secure bits, no new privileges, groups.
#include "check.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <pthread.h>

enum { CHOWN = CAP_CHOWN, NICE = CAP_SYS_NICE, BIND = CAP_NET_BIND_SERVICE, COUNT = 5 };
struct rights { unsigned effective[2], permitted[2], inheritable[2]; int bounding, ambient, secure, no_new, dumpable; };
static struct rights *before, *now;
static volatile int *turn, *done;

static struct rights look(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    struct rights found;
    memset(&found, 0, sizeof found);
    check(syscall(SYS_capget, &header, data) == 0, "capget");
    for (int at = 0; at < 2; at++) {
        found.effective[at] = data[at].effective;
        found.permitted[at] = data[at].permitted;
        found.inheritable[at] = data[at].inheritable;
    }
    for (int bit = 0; bit < 31; bit++) {
        found.bounding |= (prctl(PR_CAPBSET_READ, bit, 0, 0, 0) == 1) << bit;
        found.ambient |= (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, bit, 0, 0) == 1) << bit;
    }
    found.secure = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);
    found.no_new = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    found.dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
    return found;
}
static void set(unsigned effective, unsigned permitted, unsigned inheritable) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{effective, permitted, inheritable}, {0, 0, 0}};
    check(syscall(SYS_capset, &header, data) == 0, "capset");
}
static void become(int number) {
    switch (number) {
    case 0: set(1 << CHOWN, 1 << CHOWN | 1 << NICE, 1 << BIND); break;
    case 1: check(prctl(PR_CAPBSET_DROP, NICE, 0, 0, 0) == 0 && prctl(PR_CAPBSET_DROP, BIND, 0, 0, 0) == 0, "bounding"); break;
    case 2: set(~0U >> 1, ~0U >> 1, 1 << CHOWN); check(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CHOWN, 0, 0) == 0, "ambient"); break;
    case 3: check(prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP | SECBIT_KEEP_CAPS_LOCKED, 0, 0, 0) == 0, "secure bits"); break;
    case 4: check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges"); set(0, 0, 0); break;
    }
}
static void serve(int number) {
    become(number);
    before[number] = look();
    done[number] = 1;
    for (int round = 1;; round++) {
        wait_while(turn, round - 1);
        now[number] = look();
        done[number] = round + 1;
    }
}
static void *thread(void *nothing) { serve(COUNT - 1); return nothing; }
static void await(int round) {
    for (int number = 0; number < COUNT; number++) while (done[number] < round) usleep(1000);
}
static void same(int number, struct rights old, struct rights new) {
    char text[300];
    int length = snprintf(text, sizeof text, "rights of %d:", number);
    for (unsigned word = 0; word < sizeof old / 4; word++) {
        unsigned one = ((unsigned *)&old)[word], other = ((unsigned *)&new)[word];
        if (one != other) length += snprintf(text + length, sizeof text - (size_t)length, " word %u was %x and is %x", word, one, other);
    }
    check(!memcmp(&old, &new, sizeof old), text);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    char *shared = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    before = (void *)shared;
    now = before + COUNT;
    turn = (void *)(shared + 4096);
    done = turn + 1;
    for (int number = 0; number < COUNT - 1; number++) if (fork() == 0) { signal(SIGUSR1, SIG_IGN); serve(number); }
    // A thread has less than the others of its process.
    sigset_t mask;
    sigemptyset(&mask); sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, 0);
    pthread_t id;
    pthread_create(&id, 0, thread, 0);
    await(1);
    struct rights own = look();
    int groups = getgroups(0, 0);
    check(before[4].permitted[0] == 0 && own.permitted[0] != 0 && before[4].no_new && !own.no_new, "they differ");
    say("ready\n");
    for (int round = 1;; round++) {
        wait_to_be_told();
        put_word(turn, round);
        await(round + 1);
        for (int number = 0; number < COUNT; number++) same(number, before[number], now[number]);
        struct rights found = look();
        same(COUNT, own, found);
        check(getgroups(0, 0) == groups, "groups");
        say("ok\n");
    }
}
