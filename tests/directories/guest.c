/* What programs may expect of files, beyond what pjdfstest asks: run in a directory of the host and, by
 * tests/directories/posix.rs, in a guest that has such a directory as a volume. It prints what it finds, with
 * nothing that may differ from run to run, so that both must print the same. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { PAGE = 4096, RECORD = 41, RECORDS = 2000, WRITERS = 4, ENTRIES = 10000 };

/* What a call gave: a number, or why there is none. */
static void say(const char *what, long result) {
    printf("%s: ", what);
    if (result < 0) printf("%s\n", strerrorname_np(errno));
    else printf("%ld\n", result);
}

static int make(const char *name, const char *text) {
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || write(file, text, strlen(text)) < 0) {
        printf("cannot make %s: %s\n", name, strerror(errno));
        exit(1);
    }
    return file;
}

static struct stat status(int file) {
    struct stat status = {0};
    if (fstat(file, &status)) say("fstat", -1);
    return status;
}

static const char *text_at_start(int file) {
    static char text[64];
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    if (length < 0) return strerrorname_np(errno);
    text[length] = 0;
    return text;
}

static int ended(void) {
    int status;
    return wait(&status) < 0 || !WIFEXITED(status) ? -1 : WEXITSTATUS(status);
}

/* Names and what they name. */

static void names(void) {
    int old = make("old", "old"), kept = make("kept", "kept");
    say("rename over an open file", rename("kept", "old"));
    printf("it says %s, has %ld names\n", text_at_start(old), (long)status(old).st_nlink);
    say("unlink an open file", unlink("old"));
    say("write to it", pwrite(kept, "more", 4, 4));
    say("truncate it", ftruncate(kept, 6));
    printf("it says %s, has %ld names\n", text_at_start(kept), (long)status(kept).st_nlink);
    close(old), close(kept);

    char name[300], path[2 * PAGE];
    memset(name, 'n', sizeof name), name[255] = 0;
    say("a name of 255 bytes", close(make(name, "")));
    say("is removed", unlink(name));
    name[255] = 'n', name[256] = 0;
    say("a name of 256 bytes", open(name, O_CREAT | O_RDWR, 0644));
    for (size_t at = 0; at < sizeof path; at += 2) memcpy(path + at, "./", 2);
    path[sizeof path - 1] = 0;
    say("a path of 8 KiB", access(path, F_OK));
    path[4000] = 0;
    say("a path of 4,000 bytes", access(path, F_OK));

    say("a link to itself", symlink("loop", "loop"));
    say("is followed", open("loop", O_RDONLY));
    say("is not followed", open("loop", O_RDONLY | O_NOFOLLOW));
    say("its length", readlink("loop", name, sizeof name));
    unlink("loop");
}

static void directories(void) {
    mkdir("d", 0755), mkdir("d/e", 0755), mkdir("other", 0755);
    say("a directory into itself", rename("d", "d/e/f"));
    say("over one that is not empty", rename("other", "d"));
    say("a directory over a file", (close(make("file", "")), rename("d", "file")));
    say("a file over a directory", rename("file", "d"));
    int directory = open("d", O_RDONLY | O_DIRECTORY);
    say("renamed while open", rename("d", "renamed"));
    say("a file in it", close(openat(directory, "in", O_CREAT | O_RDWR, 0644)));
    say("by its new name", access("renamed/in", F_OK));
    say("synchronised", fsync(directory));
    say("exchanged with a file", renameat2(AT_FDCWD, "renamed", AT_FDCWD, "file", RENAME_EXCHANGE));
    say("where it is now", access("file/in", F_OK));
    say("not over another", renameat2(AT_FDCWD, "file", AT_FDCWD, "other", RENAME_NOREPLACE));
    say("one that is not empty is removed", rmdir("file"));
    close(directory), unlink("file/in"), rmdir("file/e"), rmdir("file"), unlink("renamed");

    if (fork() == 0) {
        char here[PAGE];
        chdir("other"), rmdir("../other");
        say("a file where the current directory was", open("new", O_CREAT | O_RDWR, 0644));
        say("its name", getcwd(here, sizeof here) ? 0 : -1);
        say("what is above it", access("..", F_OK));
        fflush(stdout), _exit(0);
    }
    say("that process", ended());
}

/* What is read of a directory while others are removed from it is each of the rest once. */
static void many_entries(void) {
    static unsigned char seen[ENTRIES];
    char name[16];
    mkdir("many", 0755), chdir("many");
    for (int n = 0; n < ENTRIES; n++) {
        sprintf(name, "%d", n);
        close(open(name, O_CREAT | O_WRONLY, 0644));
    }
    DIR *directory = opendir(".");
    long twice = 0, missing = 0, removed = 0, place = -1;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.') continue;
        int n = atoi(entry->d_name);
        twice += seen[n]++;
        if (place < 0) place = telldir(directory);
        if (n % 4 == 1) removed += !unlink(entry->d_name);
    }
    for (int n = 0; n < ENTRIES; n++) missing += !seen[n];
    printf("of %d entries twice %ld, missing %ld, removed %ld\n", ENTRIES, twice, missing, removed);
    seekdir(directory, place);
    long rest = 0;
    while (readdir(directory)) rest++;
    printf("after the first there were more: %d\n", rest > ENTRIES / 2);
    rewinddir(directory);
    for (rest = 0; readdir(directory); rest++);
    printf("there are %ld\n", rest);
    closedir(directory);
    for (int n = 0; n < ENTRIES; n++) sprintf(name, "%d", n), unlink(name);
    chdir(".."), say("the emptied directory is removed", rmdir("many"));
}

/* Several at once. */

static void writers(void) {
    close(make("log", ""));
    for (int writer = 0; writer < WRITERS; writer++) {
        if (fork()) continue;
        int log = open("log", O_WRONLY | O_APPEND);
        char record[RECORD];
        memset(record, 'a' + writer, RECORD), record[RECORD - 1] = '\n';
        for (int n = 0; n < RECORDS; n++)
            if (write(log, record, RECORD) != RECORD) _exit(1);
        _exit(0);
    }
    long failed = 0, torn = 0, counts[WRITERS] = {0};
    for (int writer = 0; writer < WRITERS; writer++) failed += ended();
    FILE *log = fopen("log", "r");
    for (char record[RECORD]; fread(record, RECORD, 1, log) == 1;) {
        for (int at = 1; at < RECORD - 1; at++) torn += record[at] != record[0];
        counts[(unsigned)(record[0] - 'a') % WRITERS]++;
    }
    printf("appended by %d: failed %ld, torn %ld, size %ld\n", WRITERS, failed, torn,
           (long)status(fileno(log)).st_size);
    for (int writer = 0; writer < WRITERS; writer++) printf("records %ld\n", counts[writer]);
    fclose(log), unlink("log");

    for (int racer = 0; racer < WRITERS; racer++)
        if (fork() == 0) {
            int won = 0;
            for (int n = 0; n < 200; n++) {
                char name[16];
                sprintf(name, "race%d", n);
                won += open(name, O_CREAT | O_EXCL | O_RDWR, 0644) >= 0;
            }
            _exit(won);
        }
    int won = 0;
    for (int racer = 0; racer < WRITERS; racer++) won += ended();
    printf("of 200 names won %d\n", won);
    for (int n = 0; n < 200; n++) {
        char name[16];
        sprintf(name, "race%d", n), unlink(name);
    }
}

static void locks(void) {
    int file = make("lock", "0123456789");
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct flock middle = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 4, .l_len = 2};
    say("some bytes are locked", fcntl(file, F_SETLK, &middle));
    pid_t own = getpid();
    if (fork() == 0) {
        struct flock asked = all;
        fcntl(file, F_GETLK, &asked);
        printf("by whom is known: %d, %ld to %ld\n", asked.l_pid == own, (long)asked.l_start,
               (long)(asked.l_start + asked.l_len));
        say("all of them", fcntl(file, F_SETLK, &all));
        all.l_len = 4;
        say("others", fcntl(file, F_SETLK, &all));
        fflush(stdout), _exit(0);
    }
    say("that process", ended());
    close(open("lock", O_RDONLY));
    all.l_len = 0;
    if (fork() == 0) {
        say("a file that was closed has no locks", fcntl(file, F_SETLK, &all));
        fflush(stdout), _exit(0);
    }
    say("that process", ended());
    int other = open("lock", O_RDWR);
    say("an open file is locked", fcntl(file, F_OFD_SETLK, &middle));
    say("for another", fcntl(other, F_OFD_SETLK, &middle));
    say("flock", flock(file, LOCK_EX | LOCK_NB));
    say("flock by another", flock(other, LOCK_SH | LOCK_NB));
    close(file), say("when it is closed", flock(other, LOCK_SH | LOCK_NB));
    close(other), unlink("lock");
}

/* What is in files. */

static sigjmp_buf beyond;

static void beyond_the_end(int signal) { (void)signal, siglongjmp(beyond, 1); }

static void mappings(void) {
    int file = make("mapped", "");
    ftruncate(file, 3 * PAGE);
    int how = PROT_READ | PROT_WRITE;
    volatile char *one = mmap(NULL, 3 * PAGE, how, MAP_SHARED, file, 0);
    volatile char *other = mmap(NULL, 3 * PAGE, how, MAP_SHARED, file, 0);
    volatile char *private = mmap(NULL, 3 * PAGE, how, MAP_PRIVATE, file, 0);
    if (one == MAP_FAILED || other == MAP_FAILED) return say("shared mappings", -1);
    char read = 0;
    one[5] = 'a', private[6] = 'p';
    pread(file, &read, 1, 5);
    printf("a store is seen through another mapping: %d, by read: %d\n", other[5] == 'a', read == 'a');
    pwrite(file, "w", 1, PAGE + 5);
    printf("what is written is seen: %d, and in a private one: %d\n", one[PAGE + 5] == 'w',
           private[PAGE + 5] == 'w');
    if (fork() == 0) one[2 * PAGE] = 'c', _exit(0);
    ended();
    printf("what a child stores is seen: %d; a private store is not: %d\n", other[2 * PAGE] == 'c',
           other[6] == 0);
    say("synchronised", msync((void *)one, 3 * PAGE, MS_SYNC));
    say("cut", ftruncate(file, PAGE + 7));
    signal(SIGBUS, beyond_the_end);
    if (sigsetjmp(beyond, 1)) printf("a page beyond the end is an error\n");
    else printf("beyond the end there is %d\n", one[2 * PAGE]);
    printf("the rest of the last page is empty: %d\n", one[PAGE + 7] == 0 && one[PAGE + 5] == 'w');
    ftruncate(file, 3 * PAGE);
    printf("what was cut does not come back: %d\n", one[2 * PAGE] == 0);
    munmap((void *)one, 3 * PAGE), munmap((void *)other, 3 * PAGE), munmap((void *)private, 3 * PAGE);
    close(file);
    file = open("mapped", O_RDONLY);
    pread(file, &read, 1, PAGE + 5);
    printf("opened again it says %c\n", read);
    say("to be stored into", mmap(NULL, PAGE, how, MAP_SHARED, file, 0) == MAP_FAILED ? -1 : 0);
    close(file), unlink("mapped");
}

static void holes(void) {
    int file = make("holes", "start"), other = open("holes", O_RDWR);
    const off_t far = 1L << 33;
    say("written far away", pwrite(file, "end", 3, far));
    printf("size %ld, blocks are few: %d\n", (long)status(other).st_size,
           status(other).st_blocks < 100);
    say("the first hole", lseek(other, 0, SEEK_HOLE));
    say("data after it", lseek(other, PAGE, SEEK_DATA));
    say("data after the end", lseek(other, far + 3, SEEK_DATA));
    say("space for what is there", fallocate(file, FALLOC_FL_KEEP_SIZE, 0, 16 * PAGE));
    say("a hole at the start", fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
    printf("it says \"%s\"\n", text_at_start(other));
    say("cut", ftruncate(file, 10));
    printf("the other has size %ld\n", (long)status(other).st_size);
    say("longer", ftruncate(other, 100));
    char bytes[100];
    memset(bytes, 'x', sizeof bytes);
    say("read", pread(file, bytes, sizeof bytes, 0));
    long left = 0;
    for (size_t at = 0; at < sizeof bytes; at++) left += bytes[at] != 0;
    printf("not empty are %ld\n", left);
    say("too far", ftruncate(file, INT64_MAX));
    say("to a negative size", ftruncate(file, -1));
    say("zeroed", fallocate(file, FALLOC_FL_ZERO_RANGE, 0, 8 * PAGE));
    printf("size %ld\n", (long)status(file).st_size);
    close(file), close(other), unlink("holes");
}

static void copies(void) {
    int from = make("from", "0123456789"), to = make("to", "");
    off_t place = 2;
    say("copied within the kernel", copy_file_range(from, &place, to, NULL, 5, 0));
    say("sent", sendfile(to, from, &place, 100));
    struct iovec parts[] = {{"ab", 2}, {"cde", 3}};
    say("written in parts", pwritev(to, parts, 2, 8));
    say("appended whatever the place", pwritev2(to, parts, 2, 0, RWF_APPEND));
    printf("it says %s\n", text_at_start(to));
    int pipes[2];
    pipe(pipes);
    place = 0;
    say("into a pipe", splice(from, &place, pipes[1], NULL, 10, 0));
    say("out of it", splice(pipes[0], NULL, to, NULL, 10, 0));
    close(from), close(to), unlink("from"), unlink("to");
    void *page = NULL;
    if (posix_memalign(&page, PAGE, PAGE)) return;
    memset(page, 'd', PAGE);
    int direct = open("direct", O_RDWR | O_CREAT | O_DIRECT, 0644);
    say("written past the page cache", write(direct, page, PAGE));
    memset(page, 0, PAGE);
    say("read past it", pread(direct, page, PAGE, 0));
    printf("it is %c\n", ((char *)page)[PAGE - 1]);
    say("at its end", pread(direct, page, PAGE, PAGE));
    close(direct), unlink("direct");
}

/* What is said about files. */

static void attributes(void) {
    char value[512];
    int file = make("attributes", "");
    say("an attribute", fsetxattr(file, "user.one", "first", 5, 0));
    say("again", fsetxattr(file, "user.one", "x", 1, XATTR_CREATE));
    say("another that is not there", fsetxattr(file, "user.two", "x", 1, XATTR_REPLACE));
    say("is as long as", fgetxattr(file, "user.one", NULL, 0));
    say("does not fit", fgetxattr(file, "user.one", value, 2));
    say("is read", getxattr("attributes", "user.one", value, sizeof value));
    say("the list", listxattr("attributes", NULL, 0));
    say("the list does not fit", listxattr("attributes", value, 3));
    say("one that is not there", fgetxattr(file, "user.none", value, sizeof value));
    say("is removed", fremovexattr(file, "user.one"));
    say("twice", fremovexattr(file, "user.one"));
    say("of a space that is not", fsetxattr(file, "nothing.one", "x", 1, 0));

    struct timespec times[2] = {{1000000000, 123456789}, {1, 987654321}};
    say("times", futimens(file, times));
    struct stat now = status(file);
    printf("%ld.%09ld %ld.%09ld\n", now.st_atim.tv_sec, now.st_atim.tv_nsec, now.st_mtim.tv_sec,
           now.st_mtim.tv_nsec);
    times[0].tv_nsec = UTIME_OMIT, times[1].tv_sec = -5;
    say("one of them, before 1970", futimens(file, times));
    now = status(file);
    printf("%ld.%09ld %ld.%09ld\n", now.st_atim.tv_sec, now.st_atim.tv_nsec, now.st_mtim.tv_sec,
           now.st_mtim.tv_nsec);
    write(file, "x", 1);
    printf("writing sets the time: %d\n", status(file).st_mtim.tv_sec > 1000000000);
    say("another name", link("attributes", "linked"));
    struct stat linked = {0};
    stat("linked", &linked);
    printf("the same file: %d, names %ld\n", linked.st_ino == now.st_ino, (long)linked.st_nlink);
    unlink("attributes");
    printf("names left %ld\n", (long)status(file).st_nlink);
    close(file), unlink("linked");
}

/* A program that runs is not written to. */
static void running(const char *own) {
    int from = open(own, O_RDONLY), to = open("program", O_CREAT | O_WRONLY, 0755);
    while (sendfile(to, from, NULL, 1 << 20) > 0);
    close(from), close(to);
    int pipes[2];
    pipe(pipes);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], 1), close(pipes[0]), close(pipes[1]);
        execl("./program", "program", "wait", NULL);
        _exit(9);
    }
    char up = 0;
    close(pipes[1]);
    say("it runs", read(pipes[0], &up, 1));
    say("is written to", open("program", O_WRONLY));
    say("is removed", unlink("program"));
    say("goes on", kill(child, 0));
    kill(child, SIGKILL), wait(NULL), close(pipes[0]);
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count > 1 && !strcmp(words[1], "wait")) {
        puts("up"), pause();
        return 0;
    }
    char *own = realpath("/proc/self/exe", NULL);
    if (count > 1 && chdir(words[1])) return say("chdir", -1), 1;
    umask(022);
    names(), directories(), many_entries(), writers(), locks(), mappings(), holes(), copies();
    attributes(), running(own);
    puts("done");
    return 0;
}
