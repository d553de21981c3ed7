/* An interrupt must end a loop of every shape, in ring 0, ring 3 and compatibility mode, within
 * bounded time and with the state of an instruction boundary. */
#include "apic.h"

SNIPPET(to_itself, "nop", "jmp .", "");
SNIPPET(to_itself_long, "nop", "1: .byte 0xe9, 0xfb, 0xff, 0xff, 0xff", "");
SNIPPET(two_jumps, "nop", "1: jmp 2f; nop; 2: jmp 1b", "");
SNIPPET(count, "xor %ecx, %ecx", "1: dec %rcx; jnz 1b; jmp 1b", "");
SNIPPET(count_chain, "xor %ecx, %ecx",
        "1: dec %ecx; jnz 2f; nop; 2: inc %edx; jnz 3f; nop; 3: add $3, %ebx; jc 1b; jmp 1b", "");
SNIPPET(loop_instruction, "xor %ecx, %ecx", "1: loop 1b; jmp 1b", "");
SNIPPET(loop_not_equal, "xor %ecx, %ecx", "1: cmp $1, %eax; loopne 1b; jmp 1b", "");
SNIPPET(jump_on_zero, "xor %ecx, %ecx", "1: jrcxz 1b", "");
SNIPPET(call_return, "nop", "1: call 2f; jmp 1b; 2: ret", "");
SNIPPET(call_deep, "nop", "1: call 2f; jmp 1b; 2: call 3f; ret; 3: call 4f; ret; 4: ret", "");
SNIPPET(indirect_jump, "lea 1f(%rip), %rax", "1: jmp *%rax", "");
SNIPPET(indirect_call, "lea 2f(%rip), %rax", "1: call *%rax; jmp 1b; 2: ret", "");
SNIPPET(through_memory, "lea 1f(%rip), %rax; push %rax", "1: jmp *(%rsp)", "");
SNIPPET(return_only, "lea 1f(%rip), %rax", "1: push %rax; ret", "");
SNIPPET(return_drop, "lea 1f(%rip), %rax", "1: push %rbx; push %rax; ret $8", "");
SNIPPET(pause_loop, "nop", "1: pause; jmp 1b", "");
SNIPPET(lock_loop, "push $0", "1: lock incq (%rsp); jmp 1b", "");
SNIPPET(exchange_loop, "push $1", "1: mov $1, %eax; xchg %eax, (%rsp); test %eax, %eax; jnz 1b",
        "");
SNIPPET(load_loop, "push $0", "1: cmpq $0, (%rsp); je 1b", "");
SNIPPET(string_load, "cld", "1: mov %rsp, %rsi; mov $64, %ecx; rep lodsb; jmp 1b", "");
SNIPPET(string_store, "cld; lea -4096(%rsp), %rbx",
        "1: mov %rbx, %rdi; mov $128, %ecx; rep stosq; jmp 1b", "");
SNIPPET(string_scan, "cld", "1: mov %rsp, %rdi; mov $64, %ecx; repne scasb; jmp 1b", "");
SNIPPET(string_none, "cld", "1: xor %ecx, %ecx; rep movsb; jmp 1b", "");
SNIPPET(string_compare, "cld",
        "1: mov %rsp, %rsi; mov %rsp, %rdi; mov $64, %ecx; repe cmpsb; jmp 1b", "");
SNIPPET(long_copy, "cld",
        "1: mov %r8, %rsi; lea 4096(%r8), %rdi; mov $0x800000, %rcx; rep movsb; jmp 1b", "");
SNIPPET(long_copy_overlap, "cld",
        "1: mov %r8, %rsi; lea 1(%r8), %rdi; mov $0x100000, %rcx; rep movsb; jmp 1b", "");
SNIPPET(divide_loop, "mov $1, %ebx", "1: xor %edx, %edx; mov $100, %eax; div %ebx; jmp 1b", "");
SNIPPET(vector_loop, "nop", "1: paddd %xmm0, %xmm1; jmp 1b", "");
SNIPPET(time_loop, "nop", "1: rdtsc; jmp 1b", "");
SNIPPET(flags_loop, "nop", "1: pushfq; popfq; jmp 1b", "");
SNIPPET(identify_loop, "nop", "1: xor %eax, %eax; xor %ecx, %ecx; cpuid; jmp 1b", "");
SNIPPET(system_loop, "nop", "1: syscall; jmp 1b", "");
SNIPPET(system_back, "nop", "sysretq", "");
SNIPPET(trap_loop, "nop", "1: int3; jmp 1b", "");
SNIPPET(software_loop, "nop", "1: int $0x80; jmp 1b", "");
SNIPPET(window_loop, "nop", "1: sti; nop; cli; jmp 1b", "");
SNIPPET(popf_window, "nop", "1: pushq $0x202; popfq; pushq $2; popfq; jmp 1b", "");
SNIPPET(halt_loop, "nop", "1: hlt; jmp 1b", "");
SNIPPET(port_loop, "nop", "1: inb $0x61, %al; jmp 1b", "");
SNIPPET(mmio_loop, "nop", "1: mov 0x20(%r9), %eax; jmp 1b", "");
SNIPPET(control_loop, "mov %cr0, %rax", "1: mov %rax, %cr0; jmp 1b", "");
SNIPPET(flush_loop, "nop", "1: invlpg (%rsp); jmp 1b", "");
SNIPPET(space_loop, "mov %cr3, %rax", "1: mov %rax, %cr3; jmp 1b", "");
SNIPPET(msr_loop, "mov $0xc0000102, %ecx; xor %eax, %eax; xor %edx, %edx", "1: wrmsr; jmp 1b", "");
SNIPPET(segment_loop, "xor %eax, %eax", "1: mov %eax, %es; jmp 1b", "");
SNIPPET(modify_loop, "xor %eax, %eax", "1: incb 2f+1(%rip); 2: mov $0, %bl; jmp 1b", "");
SNIPPET(cross_page, "nop", "jmp 2f; .balign 4096; .fill 4094, 1, 0x90; 2: nop; nop; nop; jmp 2b",
        "");
SNIPPET32(to_itself_32, "nop", "jmp .", "");
SNIPPET32(count_32, "xor %ecx, %ecx", "1: dec %ecx; jnz 1b; jmp 1b", "");
SNIPPET32(call_return_32, "nop", "1: call 2f; jmp 1b; 2: ret", "");
SNIPPET32(string_32, "push %ds; pop %es; cld",
          "1: mov %esp, %edi; sub $512, %edi; mov $64, %ecx; rep stosl; jmp 1b", "");

enum { VECTOR = 0x50, KERNEL = 1, USER_CODE = 2, COMPAT = 4 };

static const struct {
    const char *name;
    char *code, *after;
    unsigned where;
} loops[] = {
#define BOTH(name)                                    \
    {                                                 \
#name, name, name##_after, KERNEL | USER_CODE \
    }
#define ONLY(name, where)                \
    {                                    \
#name, name, name##_after, where \
    }
    BOTH(to_itself),
    BOTH(to_itself_long),
    BOTH(two_jumps),
    BOTH(count),
    BOTH(count_chain),
    BOTH(loop_instruction),
    BOTH(loop_not_equal),
    BOTH(jump_on_zero),
    BOTH(call_return),
    BOTH(call_deep),
    BOTH(indirect_jump),
    BOTH(indirect_call),
    BOTH(through_memory),
    BOTH(return_only),
    BOTH(return_drop),
    BOTH(pause_loop),
    BOTH(lock_loop),
    BOTH(exchange_loop),
    BOTH(load_loop),
    BOTH(string_load),
    BOTH(string_store),
    BOTH(string_scan),
    BOTH(string_none),
    BOTH(string_compare),
    BOTH(long_copy),
    BOTH(long_copy_overlap),
    BOTH(divide_loop),
    BOTH(vector_loop),
    BOTH(time_loop),
    BOTH(flags_loop),
    BOTH(identify_loop),
    BOTH(trap_loop),
    BOTH(software_loop),
    BOTH(segment_loop),
    BOTH(modify_loop),
    BOTH(cross_page),
    ONLY(system_loop, USER_CODE),
    ONLY(window_loop, KERNEL),
    ONLY(popf_window, KERNEL),
    ONLY(halt_loop, KERNEL),
    ONLY(port_loop, KERNEL),
    ONLY(mmio_loop, KERNEL),
    ONLY(control_loop, KERNEL),
    ONLY(flush_loop, KERNEL),
    ONLY(space_loop, KERNEL),
    ONLY(msr_loop, KERNEL),
    ONLY(to_itself_32, COMPAT),
    ONLY(count_32, COMPAT),
    ONLY(call_return_32, COMPAT),
    ONLY(string_32, COMPAT),
};

static bool resume(struct event *event)
{
    (void)event;
    return true;
}

/* Several rounds, so that the loop is hot in the later ones. */
static void try_loop(unsigned i, struct event start, word base, const char *where)
{
    start.rflags |= F_IF;
    start.r8 = base + (64ul << 20);
    start.r9 = 0xfee00000;
    bool within = true, once = true;
    for (unsigned round = 0; round < 4; round++) {
        apic_timer(VECTOR, 0, 20000 << round);
        run(&start);
        within &= last.rip >= start.rip && last.rip <= (word)loops[i].after + base;
        once &= last.vector == VECTOR;
    }
    check(once, true, "%s %s ends", loops[i].name, where);
    check(within, true, "%s %s ends within itself", loops[i].name, where);
}

int main(void)
{
    apic_enable();
    hooks[VECTOR] = acknowledge_and_stop;
    hooks[BP] = resume;
    hooks[0x80] = resume;
    wrmsr(MSR_STAR, (u64)USER_CS32 << 48 | (u64)KERNEL_CS << 32);
    wrmsr(MSR_LSTAR, (word)system_back_at);
    wrmsr(MSR_SFMASK, F_IF);
    for (unsigned i = 0; i < sizeof(loops) / sizeof(loops[0]); i++) {
        if (loops[i].where & KERNEL)
            try_loop(i, kernel_state(loops[i].code), 0, "in ring 0");
        if (loops[i].where & USER_CODE)
            try_loop(i, user_state(loops[i].code), USER_ALIAS, "in ring 3");
        if (loops[i].where & COMPAT)
            try_loop(i, compat_state(loops[i].code), USER_ALIAS, "in compatibility mode");
    }
    return 0;
}
