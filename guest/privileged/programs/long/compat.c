/* 32-bit user code under a 64-bit kernel: what it executes, how it enters, what it may not (SDM 1
 * 3.2.1; SDM 3A 5.2, 5.3; APM 2 4.8). */
#include "harness.h"

SNIPPET32(int_80, "nop", "int $0x80", "");
SNIPPET32(call_system, "nop", "syscall", "");
SNIPPET32(enter_system, "nop", "sysenter", "");
SNIPPET(system_entry, "nop", "nop", "");
SNIPPET32(legacy,
          "xor %eax, %eax; mov $0x3a, %al; daa; mov %eax, %ebx; mov $0x25, %al; aam; aad; das",
          "nop", "");
SNIPPET32(push_pop, "mov %esp, %eax; push $-1; pushl %cs; mov %esp, %ebx; pop %ecx; pop %edx",
          "nop", "");
SNIPPET32(push_all, "mov $1, %eax; mov $2, %ecx; pushal; xor %eax, %eax; popal; pushfl; popl %edx",
          "nop", "");
SNIPPET32(bound_high, "mov $9, %eax", "bound %eax, (%edi)", "");
SNIPPET32(into_set, "mov $0x7fffffff, %eax; inc %eax", "into", "");
SNIPPET32(inc_short, "mov $5, %eax", ".byte 0x40", ".byte 0x48, 0x40");
SNIPPET32(code_16, "mov $0x12345678, %eax", ".byte 0x66; mov $1, %ax", "movw %ax, %cx");
SNIPPET32(address_16, "mov $0xffff0000, %ebx; mov $0, %esi; mov $0x1234, %ecx",
          "lea (%bx,%si), %eax", "");
SNIPPET32(wrap, "mov $0xfffffff0, %eax", "lea 0x20(%eax), %ecx", "");
SNIPPET32(load, "nop", "mov (%edi), %eax", "");
SNIPPET32(load_code, "nop", "mov %cs:(%edi), %eax", "");
SNIPPET32(store_code, "nop", "mov %eax, %cs:(%edi)", "");
SNIPPET32(load_segment, "mov %esi, %es", "mov %es:(%edi), %eax", "");
SNIPPET32(store_segment, "mov %esi, %es", "mov %eax, %es:(%edi)", "");
SNIPPET32(load_fs, "mov %esi, %fs", "mov %fs:(%edi), %eax", "");
SNIPPET32(load_pair, "nop", "les (%edi), %eax", "mov %es, %ebx");
SNIPPET32(halt, "nop", "hlt", "");
SNIPPET32(ud, "nop", "ud2", "");
SNIPPET32(far_to_64, "nop", "ljmp *(%edi)", "");
SNIPPET32(gate_call, "nop", "lcall *(%edi)", "");
SNIPPET32(loop_ecx,
          "mov $0x10, %ecx; xor %eax, %eax; 1: inc %eax; loop 1b; jecxz 2f; xor %eax, %eax; 2:",
          "nop", "");
SNIPPET32(call_return, "call 1f; jmp 2f; 1: mov (%esp), %eax; ret; 2:", "nop", "");
SNIPPET32(string_copy, "push %ds; pop %es; mov $16, %ecx; cld", "rep movsb", "");
SNIPPET32(swap_gs, "nop", ".byte 0x0f, 0x01, 0xf8", "");
SNIPPET32(jump_wrap, "nop", "jmp *%edi", "");
SNIPPET32(stack_load, "mov %edi, %ebp", "mov (%ebp), %eax", "");
SNIPPET(in_64, "mov %cs, %eax; movabs $0x1122334455667788, %rbx", "nop", "");
SNIPPET(gate_entry, "nop", "nop", "");

static u32 data[8] = {0x11223344, 0x55667788, 1, 2};
#define LOW32(address) ((u32)USER(address))

static void entries(void)
{
    struct event start = compat_state(int_80);
    start.rflags |= F_IF;
    run(&start);
    check_event(0x80, 0, USER(int_80_after), "int 0x80");
    check(last.cs, USER_CS32, "int 0x80: CS");
    check(last.rsp, start.rsp, "int 0x80: RSP");
    check(last.ss, USER_DS, "int 0x80: SS");
    check(last_frame + 22 * 8, tss.rsp[0], "int 0x80: stack of the TSS");
    wrmsr(MSR_STAR, (u64)USER_CS32 << 48 | (u64)KERNEL_CS << 32);
    wrmsr(MSR_CSTAR, (word)system_entry);
    wrmsr(MSR_LSTAR, 0);
    wrmsr(MSR_SFMASK, F_IF);
    wrmsr(MSR_SYSENTER_CS, KERNEL_CS);
    wrmsr(MSR_SYSENTER_EIP, (word)system_entry);
    wrmsr(MSR_SYSENTER_ESP, kernel_state(0).rsp);
    start = compat_state(call_system);
    start.rflags |= F_IF | F_CF;
    run(&start);
    if (is_intel()) {
        check_event(UD, 0, USER(call_system_at),
                    "syscall is invalid in compatibility mode on Intel's");
    } else {
        check_event(DONE, 0, (word)system_entry_after + 2, "syscall goes to CSTAR");
        check(last.rcx, USER(call_system_after), "syscall: RCX");
        check(last.r11, start.rflags, "syscall: R11");
        check(last.cs, KERNEL_CS, "syscall: CS");
        check(last.rflags, 2 | F_CF, "syscall: RFLAGS");
    }
    start.rip = USER(enter_system);
    run(&start);
    if (is_intel()) {
        check_event(DONE, 0, (word)system_entry_after + 2, "sysenter");
        check(last.cs, KERNEL_CS, "sysenter: CS");
        check(last.rsp, kernel_state(0).rsp, "sysenter: RSP");
    } else {
        check_event(UD, 0, USER(enter_system_at), "sysenter is invalid in long mode on AMD's");
    }
}

static void instructions(void)
{
    run_compat(legacy, 0, 0);
    check_done("daa, das, aam, aad");
    check(last.rbx, 0x40, "daa");
    struct event start = compat_state(push_pop);
    start.r8 = 0x123456789abcdef0;
    run(&start);
    check_done("push and pop");
    check(last.rax - last.rbx, 8, "pushes are of 4 bytes");
    check(last.rcx, USER_CS32, "push of CS");
    check(last.rdx, 0xffffffff, "push of -1");
    check(last.r8, start.r8, "R8 is kept");
    run_compat(push_all, 0, 0);
    check(last.rax | last.rcx << 8, 0x201, "pusha and popa");
    run_compat(bound_high, LOW32(data + 2), 0);
    check_event(BR, 0, USER(bound_high_at), "bound");
    run_compat(into_set, 0, 0);
    check_event(OF, 0, USER(into_set_after), "into");
    run_compat(inc_short, 0, 0);
    check(last.rax, 6, "40 and 48 are inc and dec");
    run_compat(code_16, 0, 0);
    check(last.rax, 0x12340001, "operand of 16 bits");
    run_compat(address_16, 0, 0);
    check(last.rax, 0, "address of 16 bits");
    run_compat(wrap, 0, 0);
    check(last.rcx, 0x10, "effective addresses wrap at 4 GiB");
    run_compat(load_pair, LOW32(data + 4), 0);
    check_done("les of a null selector");
    run_compat(loop_ecx, 0, 0);
    check(last.rax, 0x10, "loop and jecxz count in ECX");
    start = compat_state(loop_ecx);
    start.rcx = 0xff00000000;
    run(&start);
    check(last.rax, 0x10, "a 32-bit write clears the upper half of RCX");
    run_compat(call_return, 0, 0);
    check_done("call and ret");
    run_compat(string_copy, LOW32(data + 4), LOW32(data));
    check_done("rep movsb");
    check(data[4] | (u64)data[5] << 32, data[0] | (u64)data[1] << 32, "rep movsb has copied");
    check(last.rdi, LOW32(data + 8), "rep movsb: EDI");
    run_compat(ud, 0, 0);
    check_event(UD, 0, USER(ud_at), "ud2");
    run_compat(halt, 0, 0);
    check_event(GP, 0, USER(halt_at), "hlt");
    run_compat(swap_gs, 0, 0);
    check_event(UD, 0, USER(swap_gs_at), "swapgs");
    run_compat(load, 0x7f000000, 0);
    check_event(PF, 4, USER(load_at), "load of an absent page");
    check(last_cr2, 0x7f000000, "load of an absent page: CR2");
    run_compat(jump_wrap, 0x7f000000, 0);
    check_event(PF, 0x14, 0x7f000000, "jump to an absent page");
}

/* Segmentation is at work in compatibility mode. */
static void segments(void)
{
    enum { S = FREE_SELECTOR };
    word base = USER(data);
    gdt[S / 8] = descriptor(base, 0xf, 0x40f3);
    run_compat(load_segment, 4, S | 3);
    check(last.rax, 0x55667788, "segment base");
    run_compat(load_segment, 12, S | 3);
    check_done("load at the limit");
    run_compat(load_segment, 13, S | 3);
    check_event(GP, 0, USER(load_segment_at), "load across the limit");
    run_compat(load_segment, 0xfffffffc, S | 3);
    check_event(GP, 0, USER(load_segment_at), "load far beyond the limit");
    run_compat(load_fs, 4, S | 3);
    check(last.rax, 0x55667788, "FS base");
    check(rdmsr(MSR_FS_BASE), base, "FS base in its MSR");
    gdt[S / 8] = descriptor(base, 0xf, 0x40f1);
    run_compat(store_segment, 0, S | 3);
    check_event(GP, 0, USER(store_segment_at), "store to a read-only segment");
    gdt[S / 8] = descriptor(base, 0x7, 0x40f7);
    run_compat(load_segment, 8, S | 3);
    check_done("expand-down: load above the limit");
    run_compat(load_segment, 4, S | 3);
    check_event(GP, 0, USER(load_segment_at), "expand-down: load below the limit");
    gdt[S / 8] = descriptor(0, 0xfffff, 0xc0f9);
    run_compat(load_segment, 0, S | 3);
    check(last.vector, GP, "execute-only code cannot be loaded into ES");
    run_compat(load_segment, 0, 0);
    check_event(GP, 0, USER(load_segment_at), "load through a null segment");
    run_compat(store_code, LOW32(data), 0);
    check_event(GP, 0, USER(store_code_at), "store to code");
    run_compat(load_code, LOW32(data), 0);
    check(last.rax, data[0], "load from readable code");
    gdt[S / 8] = descriptor(0, 0xfffff, 0x40fb);
    struct event start = compat_state(int_80);
    start.cs = S | 3;
    run(&start);
    check(last.vector, GP, "code beyond its limit");
    gdt[S / 8] = descriptor(USER_ALIAS, 0xfffff, 0xc0fb);
    start.rip = (word)int_80;
    run(&start);
    check_event(0x80, 0, (word)int_80_after, "code with a base");
    gdt[S / 8] = descriptor(0, USER_ALIAS >> 12, 0xc0f3);
    start = compat_state(stack_load);
    start.ss = S | 3;
    start.rdi = USER_ALIAS + 0x2000;
    run(&start);
    check_event(SS, 0, USER(stack_load_at), "stack beyond its limit");
}

static void to_64_bits(void)
{
    static struct {
        u32 offset;
        u16 selector;
    } __attribute__((packed)) pointer;
    pointer.offset = LOW32(in_64);
    pointer.selector = USER_CS64;
    run_compat(far_to_64, LOW32(&pointer), 0);
    check_done("jmp far to 64-bit code");
    check(last.rax, USER_CS64, "64-bit code: CS");
    check(last.rbx, 0x1122334455667788, "64-bit code runs");
    gdt[FREE_SELECTOR / 8 + 2] = ((word)gate_entry & 0xffff) | KERNEL_CS << 16 |
                                 (u64)(GATE_CALL | GATE_DPL3) << 32 |
                                 ((word)gate_entry >> 16) << 48;
    gdt[FREE_SELECTOR / 8 + 3] = 0;
    pointer.selector = (FREE_SELECTOR + 16) | 3;
    run_compat(gate_call, LOW32(&pointer), 0);
    check_event(DONE, 0, (word)gate_entry_after + 2, "call gate from compatibility mode");
    u64 *stack = (u64 *)last.rsp;
    check(stack[0], USER(gate_call_after), "call gate: RIP");
    check(stack[1], USER_CS32, "call gate: CS");
}

int main(void)
{
    entries();
    instructions();
    segments();
    to_64_bits();
    return 0;
}
