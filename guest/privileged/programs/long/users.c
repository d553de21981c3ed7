/* A kernel that accesses memory of its users, which the mirror of its own memory does not have (cpu's
 * memory/mirror.rs). SMAP says when it may, in the block that does it or in one before; without SMAP it may
 * whenever there are users. Where SMAP says that it may not, that is the kernel's own fault. */
#include "paging.h"

/* With a mirror 2 TiB lower, `biv` would be there. */
#define PROCESS 0x0000009000000000ul
#define FRAME (40ul << 20)
#define PATTERN 0x123456789abcdef0ul
enum { PAGES = 8 };

/* A new instruction each time: one that has missed is done otherwise from then on. */
SNIPPET(here, "stac", "mov (%rdi), %rax", "clac");
SNIPPET(behind_jump, "stac; jmp 1f; ud2; 1:", "mov (%rdi), %rax", "clac");
SNIPPET(behind_branch, "stac; test %rdi, %rdi; jnz 1f; ud2; 1:", "mov (%rdi), %rax", "clac");
SNIPPET(behind_call, "stac; lea 1f(%rip), %rdx; call *%rdx; jmp 2f; 1: ret; 2:", "mov (%rdi), %rax",
        "clac");
SNIPPET(behind_popf, "pushq $0x40002; popfq; nop", "mov (%rdi), %rax", "clac");
SNIPPET(in_callee, "stac; lea 1f(%rip), %rdx; call *%rdx; clac; jmp 2f; 1:", "mov (%rdi), %rax",
        "ret; 2:");
SNIPPET(stored, "stac; jmp 1f; ud2; 1:", "mov %rsi, 8(%rdi)", "mov 8(%rdi), %rax; clac");
SNIPPET(exchanged, "stac; jmp 1f; ud2; 1:", "xchg %rsi, (%rdi)", "mov %rsi, %rax; clac");
SNIPPET(pushed, "stac; jmp 1f; ud2; 1:", "push (%rdi)", "pop %rax; clac");
SNIPPET(absent, "stac; jmp 1f; ud2; 1:", "mov (%rdi), %rax", "clac");
SNIPPET(absent_store, "stac; jmp 1f; ud2; 1:", "movq $1, (%rdi)", "clac");
SNIPPET(forbidden, "nop", "mov (%rdi), %rax", "");
SNIPPET(forbidden_store, "nop", "movq $1, (%rdi)", "");
SNIPPET(plain, "nop", "mov (%rdi), %rax", "");
SNIPPET(plain_store, "nop", "mov %rsi, 16(%rdi)", "mov 16(%rdi), %rax");
SNIPPET(plain_absent, "nop", "mov (%rdi), %rax", "");
SNIPPET(user, "nop", "nop", "");

#define GETS(snippet)                                              \
    do {                                                           \
        run_kernel(snippet, PROCESS, PATTERN);                     \
        check(last.vector, 0x81, "%s ends", #snippet);             \
        check(last.rax, PATTERN, "%s gets the user's", #snippet); \
    } while (0)
#define FAULTS(snippet, error, at)                                       \
    do {                                                                 \
        run_kernel(snippet, at, 0);                                      \
        check_event(PF, error, (word)snippet##_at, "%s faults", #snippet); \
        check(last_cr2, at, "CR2 of %s", #snippet);                      \
    } while (0)

int main(void)
{
    for (unsigned page = 0; page < PAGES; page++)
        map_at(PROCESS + page * 4096, FRAME + page * 4096, 1, P_ALL);
    map_at(HIGH_BASE, FRAME, 1, P_ALL & ~P_U);
    volatile u64 *frame = (volatile u64 *)HIGH_BASE;
    frame[0] = PATTERN;
    word beyond = PROCESS + PAGES * 4096;
    if (cpuid(7, 0).ebx >> 20 & 1) {
        write_cr4(read_cr4() | CR4_SMAP);
        GETS(here);
        GETS(behind_jump);
        GETS(behind_branch);
        GETS(behind_call);
        GETS(behind_popf);
        GETS(in_callee);
        GETS(stored);
        check(frame[1], PATTERN, "the user's page has it");
        GETS(exchanged);
        GETS(pushed);
        FAULTS(absent, 0, beyond);
        FAULTS(absent_store, E_W, beyond);
        FAULTS(forbidden, E_P, PROCESS);
        FAULTS(forbidden_store, E_P | E_W, PROCESS);
        check(frame[0], PATTERN, "what is forbidden is not done");
        write_cr4(read_cr4() & ~CR4_SMAP);
    } else {
        skip("SMAP", "not announced");
    }
    run_user(user, 0, 0);
    check(last.vector, 0x81, "there is a user");
    GETS(plain);
    GETS(plain_store);
    check(frame[2], PATTERN, "the user's page has that too");
    FAULTS(plain_absent, 0, beyond);
    return 0;
}
