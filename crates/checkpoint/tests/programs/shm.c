// POSIX shared memory whose name is gone (shm_open(3) makes files of a tmpfs): open and mapped, mapped only, by two
// processes, with a hole.
#include "check.h"

int main(int argc, char **argv) {
    begin(argc, argv);
    char name[64];
    int file[2];
    volatile char *memory[2];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "/dev/shm/bivouac-%d-%ld", i, (long)time(0) * 1000 + clock() % 1000);
        file[i] = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        check(file[i] >= 0 && unlink(name) == 0 && ftruncate(file[i], 1 << 20) == 0, "shm");
        memory[i] = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file[i], 0);
        memory[i][900000] = 9;
    }
    close(file[1]);
    int ends[2], back[2];
    check(pipe(ends) == 0 && pipe(back) == 0, "pipe");
    if (fork() == 0) {
        signal(SIGUSR1, SIG_DFL);
        char byte;
        while (read(ends[0], &byte, 1) == 1) {
            memory[0][5] = memory[0][5] + byte; memory[1][6] = memory[1][6] + byte;
            check(write(back[1], &byte, 1) == 1, "answer");
        }
        _exit(0);
    }
    for (int round = 0;; round++) {
        if (round == 0) say("ready\n");
        else say("ok\n");
        wait_to_be_told();
        char before[2] = {memory[0][5], memory[1][6]}, byte = 3;
        check(write(ends[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1, "ask");
        check(memory[0][5] == (char)(before[0] + 3) && memory[1][6] == (char)(before[1] + 3), "memory is shared");
        check(memory[0][900000] == 9 && memory[1][900000] == 9 && memory[0][500000] == 0, "memory");
        check(pread(file[0], &byte, 1, 5) == 1 && byte == memory[0][5], "the file is the memory");
        struct stat stat;
        check(fstat(file[0], &stat) == 0 && stat.st_size == 1 << 20 && stat.st_nlink == 0, "the file");
    }
}
