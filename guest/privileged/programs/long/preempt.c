/* Interrupts at arbitrary points of a computation must not show in its result: the same sums with
 * and without a timer that fires all the time, in ring 0, ring 3 and compatibility mode. */
#include "apic.h"

/* Each leaves its result in RAX and takes a count in RDI. */
SNIPPET(mix, "mov %rdi, %rcx; mov $0x9e3779b97f4a7c15, %rax; mov $1, %ebx",
        "1: mov %rax, %rdx; shr $30, %rdx; xor %rdx, %rax; imul $0x1ce4e5b9, %rax, %rax;"
        "adc %rbx, %rax; rcl $7, %rbx; bt $13, %rax; sbb %rdx, %rax; dec %rcx; jnz 1b",
        "");
SNIPPET(vectors,
        "mov %rdi, %rcx; movq %rdi, %xmm0; pshufd $0, %xmm0, %xmm0; movdqa %xmm0, %xmm1;"
        "pcmpeqd %xmm5, %xmm5",
        "1: paddd %xmm0, %xmm1; pxor %xmm1, %xmm0; pslld $3, %xmm0; psubd %xmm5, %xmm0;"
        "pshufd $0x39, %xmm1, %xmm1; dec %rcx; jnz 1b",
        "movq %xmm1, %rax; pshufd $0xee, %xmm1, %xmm2; movq %xmm2, %rbx; xor %rbx, %rax");
SNIPPET(floating, "mov %rdi, %rcx; fninit; fld1; fldl2e",
        "1: fadd %st(0), %st(1); fmul %st(0), %st(0); fsqrt; fxch; fadd %st(1), %st(0); fxch;"
        "dec %rcx; jnz 1b",
        "sub $16, %rsp; fistpll (%rsp); fistpll 8(%rsp); pop %rax; pop %rbx; xor %rbx, %rax");
SNIPPET(strings,
        "mov %rdi, %r8; lea -2048(%rsp), %r9; xor %r10d, %r10d; cld; mov %r9, %rdi; xor %eax, %eax;"
        "mov $128, %ecx; rep stosq",
        "1: incq (%r9); mov %r9, %rsi; lea 1(%r9), %rdi; mov $500, %ecx; rep movsb;"
        "mov %r9, %rsi; mov $64, %ecx; 2: lodsq; add %rax, %r10; rol $5, %r10; loop 2b;"
        "dec %r8; jnz 1b",
        "mov %r10, %rax");
SNIPPET(calls, "mov %rdi, %rcx; xor %eax, %eax",
        "1: call 2f; call 3f; dec %rcx; jnz 1b; jmp 5f; 2: add %rcx, %rax; call 3f; ret;"
        "3: rol $3, %rax; push %rax; pop %rbx; xor %rcx, %rax; ret; 5:",
        "");
SNIPPET(atomics, "mov %rdi, %rcx; push $0; push $0",
        "1: lock incq (%rsp); mov $1, %eax; lock xadd %rax, 8(%rsp); mov (%rsp), %rax;"
        "lea 3(%rax), %rbx; lock cmpxchg %rbx, (%rsp); dec %rcx; jnz 1b",
        "pop %rax; pop %rbx; add %rbx, %rax");
SNIPPET(flags, "mov %rdi, %rcx; xor %ebx, %ebx; xor %eax, %eax",
        "1: add %rcx, %rbx; pushfq; pop %rdx; and $0x8d5, %edx; add %rdx, %rax; rol %rax;"
        "cmp %rax, %rbx; setg %dl; adc %dl, %al; std; cld; dec %rcx; jnz 1b",
        "");
SNIPPET(indirect, "mov %rdi, %rcx; xor %eax, %eax; lea 2f(%rip), %r8; lea 3f(%rip), %r9",
        "1: mov %r8, %r10; test $4, %cl; cmovz %r9, %r10; jmp *%r10; 2: add %rcx, %rax; rol %rax;"
        "jmp 4f; 3: xor %rcx, %rax; 4: dec %rcx; jnz 1b",
        "");
SNIPPET32(compat_mix, "mov %edi, %ecx; mov $0x9e3779b9, %eax; xor %ebx, %ebx",
          "1: mov %eax, %edx; shr $15, %edx; xor %edx, %eax; imul $0x2c1b3c6d, %eax, %eax;"
          "push %eax; pop %esi; adc %esi, %ebx; dec %ecx; jnz 1b",
          "add %ebx, %eax");

enum { VECTOR = 0x50 };
static unsigned ticks;
static u32 interval;

static bool tick(struct event *event)
{
    (void)event;
    ticks++;
    apic_eoi();
    /* Not always at the same place. */
    interval = interval * 1103515245 + 12345;
    apic_timer(VECTOR, 0, 10000 + (interval >> 16) % 30000);
    return true;
}

static word result(struct event start, word count, bool disturbed)
{
    start.rdi = count;
    if (disturbed) {
        start.rflags |= F_IF;
        apic_timer(VECTOR, 0, 10000);
    }
    run(&start);
    apic_timer_off();
    return last.vector == DONE ? last.rax : ~(word)last.vector;
}

static void compare(const char *name, struct event start, word count, const char *where)
{
    word expected = result(start, count, false);
    bool same = true;
    for (unsigned round = 0; round < 8; round++)
        same &= result(start, count, true) == expected;
    check(same, true, "%s, %s", name, where);
}

int main(void)
{
    static const struct {
        const char *name;
        const void *code;
        word count;
    } cases[] = {
        {"mix", mix, 100000},      {"vectors", vectors, 3000},     {"floating", floating, 2000},
        {"strings", strings, 300}, {"calls", calls, 20000},        {"atomics", atomics, 3000},
        {"flags", flags, 5000},    {"indirect", indirect, 100000},
    };
    apic_enable();
    hooks[VECTOR] = tick;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        compare(cases[i].name, kernel_state(cases[i].code), cases[i].count, "ring 0");
        compare(cases[i].name, user_state(cases[i].code), cases[i].count, "ring 3");
    }
    compare("mix", compat_state(compat_mix), 3000, "compatibility mode");
    check(ticks > 0, true, "interrupts have come");
    return 0;
}
