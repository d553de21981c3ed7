// A process with something of its processor that cannot be made again: it says which, and waits.
#define _GNU_SOURCE
#include <asm/ldt.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int segments(void) {
    struct user_desc one = {.entry_number = 0, .limit = 0xfffff, .seg_32bit = 1, .limit_in_pages = 1, .useable = 1};
    return (int)syscall(SYS_modify_ldt, 1, &one, sizeof one);
}

int main(int argc, char **argv) {
    // Whoever runs the tests may have given them more.
    syscall(SYS_close_range, 3, ~0U, 0);
    // AMX is asked for by its number among the components of the state.
    int result = argc > 1 && !strcmp(argv[1], "amx") ? (int)syscall(SYS_arch_prctl, 0x1023, 18) : segments();
    puts(result == 0 ? "done" : "cannot");
    fflush(stdout);
    for (;;) pause();
}
