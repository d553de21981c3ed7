// System V IPC of all kinds: memory that is attached as a whole, in parts, read-only, by a child, not at all, and after
// its removal; semaphores on which a child waits; messages.
#include "check.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#define PAGE 4096
static int whole, alone, removed, parts, set, queue;
static volatile int *memory, *readable, *rest;
static char *pieces;
static struct { long kind; char text[64]; } message;

static void operate(int semaphore, int change) {
    struct sembuf operation = {(unsigned short)semaphore, (short)change, 0};
    int result;
    while ((result = semop(set, &operation, 1)) == -1 && errno == EINTR);
    check(result == 0, "semop");
}

static void send(long kind, const char *text) {
    message.kind = kind;
    strcpy(message.text, text);
    check(msgsnd(queue, &message, strlen(text), IPC_NOWAIT) == 0, "msgsnd");
}

static void receive(long kind, const char *text) {
    long length = msgrcv(queue, &message, sizeof message.text, 0, IPC_NOWAIT);
    check(length == (long)strlen(text) && message.kind == kind && !memcmp(message.text, text, strlen(text)), "message");
}

static void serve(void) {
    signal(SIGUSR1, SIG_DFL);
    for (;;) {
        operate(1, -1);
        memory[3]++;
        operate(2, 1);
    }
}

int main(int argc, char **argv) {
    begin(argc, argv);
    // So that numbers are not the first ones.
    for (int round = 0; round < 3; round++) {
        shmctl(shmget(IPC_PRIVATE, 1, 0600), IPC_RMID, 0);
        semctl(semget(IPC_PRIVATE, 1, 0600), 0, IPC_RMID);
        msgctl(msgget(IPC_PRIVATE, 0600), IPC_RMID, 0);
    }
    whole = shmget(0x1234, 3 * PAGE + 100, IPC_CREAT | 0640);
    alone = shmget(0x1235, 10, IPC_CREAT | 0600);
    removed = shmget(IPC_PRIVATE, PAGE, 0600);
    parts = shmget(0x1236, 5 * PAGE, IPC_CREAT | 0600);
    set = semget(0x77, 3, IPC_CREAT | 0604);
    queue = msgget(0x88, IPC_CREAT | 0620);
    check(whole >= 0 && alone >= 0 && removed >= 0 && parts >= 0 && set >= 0 && queue >= 0, "System V IPC");
    memory = shmat(whole, 0, 0);
    readable = shmat(whole, 0, SHM_RDONLY);
    rest = shmat(removed, 0, 0);
    check(shmctl(removed, IPC_RMID, 0) == 0, "IPC_RMID");
    pieces = shmat(parts, 0, 0);
    for (int page = 0; page < 5; page++) pieces[page * PAGE] = (char)(page + 1);
    check(munmap(pieces + PAGE, PAGE) == 0 && mprotect(pieces + 3 * PAGE, PAGE, PROT_READ) == 0, "parts");
    strcpy(shmat(alone, 0, 0), "alone");
    check(shmdt(shmat(alone, 0, SHM_RDONLY)) == 0, "shmdt");
    memory[3 * PAGE / 4] = 7;
    rest[5] = 8;
    check(semctl(set, 0, SETVAL, 42) == 0, "SETVAL");
    send(5, "five"); send(1, ""); send(7, "seven");
    pid_t child = fork();
    if (child == 0) serve();
    for (int round = 0;; round++) {
        if (round == 0) say("ready\n");
        else say("ok\n");
        wait_to_be_told();
        check(shmget(0x1234, 0, 0) == whole && shmget(0x1236, 0, 0) == parts, "numbers of memory");
        check(semget(0x77, 0, 0) == set && msgget(0x88, 0) == queue, "other numbers");
        struct shmid_ds memory_status;
        check(shmctl(whole, IPC_STAT, &memory_status) == 0 && memory_status.shm_segsz == 3 * PAGE + 100, "size");
        check((memory_status.shm_perm.mode & 0777) == 0640 && memory_status.shm_nattch == 4, "rights, and who is attached");
        check(shmctl(removed, IPC_STAT, &memory_status) == 0 && memory_status.shm_perm.mode & SHM_DEST, "it is removed");
        struct msqid_ds queue_status;
        check(msgctl(queue, IPC_STAT, &queue_status) == 0 && queue_status.msg_qnum == 3, "messages");
        check((queue_status.msg_perm.mode & 0777) == 0620, "rights of a queue");
        for (int tries = 0; tries < 5000 && semctl(set, 1, GETNCNT) != 1; tries++) usleep(1000);
        check(semctl(set, 0, GETVAL) == 42 && semctl(set, 1, GETNCNT) == 1, "values, and who waits");
        int before = memory[3];
        operate(1, 1);
        operate(2, -1);
        check(memory[3] == before + 1 && readable[3] == before + 1, "memory is shared");
        check(memory[3 * PAGE / 4] == 7 && rest[5] == 8, "memory");
        check(pieces[0] == 1 && pieces[2 * PAGE] == 3 && pieces[3 * PAGE] == 4 && pieces[4 * PAGE] == 5, "parts");
        unsigned char resident;
        check(mincore(pieces + PAGE, PAGE, &resident) == -1 && errno == ENOMEM, "a part that is gone");
        check(mprotect(pieces + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0, "a part that may be written to");
        pieces[3 * PAGE] = 4;
        check(mprotect(pieces + 3 * PAGE, PAGE, PROT_READ) == 0, "a part that may not");
        check(mprotect((void *)readable, PAGE, PROT_READ | PROT_WRITE) == -1, "read-only memory");
        char *found = shmat(alone, 0, 0);
        check(!strcmp(found, "alone") && shmdt(found) == 0, "memory that nobody is attached to");
        receive(5, "five"); receive(1, ""); receive(7, "seven");
        send(5, "five"); send(1, ""); send(7, "seven");
        // The child waits again before anybody looks.
        while (semctl(set, 1, GETNCNT) != 1) usleep(1000);
    }
}
