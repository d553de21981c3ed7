// A process that copies its input to its output, and has nothing else.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    char bytes[256];
    syscall(SYS_close_range, 3, ~0U, 0);
    for (;;) {
        ssize_t count = read(0, bytes, sizeof bytes);
        if (count <= 0 || write(1, bytes, (size_t)count) != count) return 1;
    }
}
