// Memory of all kinds: huge pages, advice, locked and unreserved memory, stacks that grow, files without a name that are
// mapped, memfds with seals and without a descriptor, guards, and pages that children do not get.
#include "check.h"
#include <sys/resource.h>

#define PAGE 4096
#define HUGE (2 << 20)
static char *huge, *plain, *locked, *unreserved, *grows, *unlinked, *copied, *nameless, *held, *wiped, *kept, *sealed, *readable, *dropped;
static int sealed_file, temporary;

static char *map(size_t bytes, int flags) {
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    check(at != MAP_FAILED, "mmap");
    return at;
}
static void fill(char *at, size_t bytes, int seed) { for (size_t i = 0; i < bytes; i++) at[i] = (char)((i * 2654435761u + (unsigned)seed) >> 11); }
static int has(const char *at, size_t bytes, int seed) {
    for (size_t i = 0; i < bytes; i++) if (at[i] != (char)((i * 2654435761u + (unsigned)seed) >> 11)) return 0;
    return 1;
}
// The flags of a mapping, as smaps has them; whether one of them is there.
static int flag(const void *at, const char *name) {
    static char text[1 << 20];
    size_t length = 0;
    ssize_t more;
    int file = open("/proc/self/smaps", O_RDONLY), found = 0;
    while ((more = read(file, text + length, sizeof text - 1 - length)) > 0) length += (size_t)more;
    close(file);
    text[length] = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(0, "\n")) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) found = (unsigned long)at >= start && (unsigned long)at < end;
        if (found && !strncmp(line, "VmFlags:", 8)) return strstr(line, name) != 0;
    }
    return 0;
}
static int file(const char *name, size_t bytes, int seed) {
    int made = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    static char content[16 * PAGE];
    fill(content, bytes, seed);
    check(made >= 0 && write(made, content, bytes) == (ssize_t)bytes, "file");
    return made;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    // An area with whole huge pages in it, and one that has asked for none.
    huge = map(4 * HUGE, 0);
    huge = (char *)(((uintptr_t)huge + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    check(madvise(huge, 2 * HUGE, MADV_HUGEPAGE) == 0, "huge");
    fill(huge, 2 * HUGE, 1);
    plain = map(HUGE, 0);
    check(madvise(plain, HUGE, MADV_NOHUGEPAGE) == 0 && madvise(plain, HUGE, MADV_DONTDUMP) == 0, "plain");
    fill(plain + 5 * PAGE, PAGE, 2);
    // Who may lock none has none.
    locked = map(4 * PAGE, 0);
    int has_locked = mlock(locked, 2 * PAGE) == 0;
    fill(locked, 4 * PAGE, 3);
    unreserved = map(1ul << 36, MAP_NORESERVE);
    fill(unreserved + (1ul << 35), PAGE, 4);
    // The kernel leaves a gap of a megabyte below it.
    grows = map(2 * HUGE, 0);
    check(munmap(grows, 2 * HUGE) == 0, "munmap");
    grows = mmap(grows + HUGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
    fill(grows, 2 * PAGE, 5);
    // Files whose names are gone: mapped shared, with the descriptor closed, and private, with a page that was changed.
    int one = file("unlinked", 4 * PAGE, 6), two = file("copied", 4 * PAGE, 7);
    unlinked = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, one, 0);
    copied = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, two, 0);
    fill(copied + PAGE, PAGE, 8);
    check(unlink("unlinked") == 0 && close(one) == 0, "unlink");
    temporary = open(".", O_TMPFILE | O_RDWR, 0640);
    if (temporary >= 0) check(pwrite(temporary, "tail", 4, 1 << 20) == 4 && lseek(temporary, 77, SEEK_SET) == 77, "O_TMPFILE");
    int other = (int)syscall(SYS_memfd_create, "nameless", 0);
    check(ftruncate(other, 8 * PAGE) == 0, "memfd");
    nameless = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, other, 2 * PAGE);
    fill(nameless, 4 * PAGE, 9);
    close(other);
    sealed_file = (int)syscall(SYS_memfd_create, "sealed", 2);
    check(write(sealed_file, "content", 7) == 7 && fcntl(sealed_file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW) == 0, "seals");
    sealed = mmap(0, PAGE, PROT_READ, MAP_SHARED, sealed_file, 0);
    // What children get, and what not.
    held = map(PAGE, 0); wiped = map(PAGE, 0); kept = map(PAGE, 0); dropped = map(PAGE, 0);
    fill(held, PAGE, 10); fill(wiped, PAGE, 11); fill(kept, PAGE, 12);
    check(madvise(held, PAGE, MADV_DONTFORK) == 0 && madvise(wiped, PAGE, MADV_WIPEONFORK) == 0, "children");
    madvise(dropped, PAGE, MADV_SEQUENTIAL); madvise(kept, PAGE, MADV_RANDOM);
    readable = map(4 * PAGE, 0);
    fill(readable, 4 * PAGE, 13);
    check(mprotect(readable, PAGE, PROT_READ) == 0 && mprotect(readable + 2 * PAGE, PAGE, PROT_READ | PROT_EXEC) == 0, "rights");
    int is_huge = flag(huge, " hg");
    say("ready\n");
    for (;;) {
        wait_to_be_told();
        check(has(huge, 2 * HUGE, 1) && flag(huge, " hg") == is_huge, "huge pages");
        check(has(plain + 5 * PAGE, PAGE, 2) && plain[0] == 0 && flag(plain, " dd") && flag(plain, " nh") == is_huge, "plain pages");
        check(has(locked, 4 * PAGE, 3) && flag(locked, " lo") == has_locked && !flag(locked + 3 * PAGE, " lo"), "locked memory");
        check(has(unreserved + (1ul << 35), PAGE, 4) && unreserved[5] == 0 && flag(unreserved, " nr"), "unreserved memory");
        check(has(grows, 2 * PAGE, 5) && flag(grows, " gd"), "memory that grows");
        grows[-PAGE] = 1;
        check(has(unlinked, 4 * PAGE, 6), "a file without a name");
        check(has(copied, PAGE, 7) && has(copied + PAGE, PAGE, 8), "a private mapping of a file");
        char text[8] = {0};
        struct stat stat;
        if (temporary >= 0) {
            check(lseek(temporary, 0, SEEK_CUR) == 77 && pread(temporary, text, 4, 1 << 20) == 4 && !strcmp(text, "tail"), "a temporary file");
            check(fstat(temporary, &stat) == 0 && stat.st_size == (1 << 20) + 4 && stat.st_blocks < 1024, "its hole");
        }
        check(has(nameless, 4 * PAGE, 9), "memory without a descriptor");
        check(!memcmp(sealed, "content", 7) && fcntl(sealed_file, F_GET_SEALS) == (F_SEAL_WRITE | F_SEAL_GROW), "sealed memory");
        check(pwrite(sealed_file, "x", 1, 0) == -1 && errno == EPERM, "it is sealed");
        check(has(readable, 4 * PAGE, 13), "rights of pages");
        check(mprotect(readable + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0 && mprotect(readable + 2 * PAGE, PAGE, PROT_READ | PROT_EXEC) == 0, "rights");
        check(flag(kept, " rr") && flag(dropped, " sr"), "how it is read");
        pid_t child = fork();
        if (child == 0) {
            unsigned char resident;
            int is_right = mincore(held, PAGE, &resident) == -1 && wiped[7] == 0 && has(kept, PAGE, 12);
            _exit(is_right ? 0 : 1);
        }
        int status;
        check(waitpid(child, &status, 0) == child && status == 0, "what a child gets");
        check(has(held, PAGE, 10) && has(wiped, PAGE, 11) && has(kept, PAGE, 12), "what it keeps");
        say("ok\n");
    }
}
