/* syscall, sysret, sysenter, sysexit, swapgs and the bases of FS and GS in 64-bit mode (SDM 2B;
 * where AMD's processors differ, APM 3). */
#include "harness.h"

SNIPPET(call_system, "nop", "syscall", "");
SNIPPET(call_and_return, "syscall", "mov $0x55, %eax", "");
SNIPPET(system_entry, "nop", "nop", "");
SNIPPET(system_back, "push %rcx; pop %rcx", "sysretq", "");
SNIPPET(return_64, "nop", "sysretq", "");
SNIPPET(return_32, "nop", "sysretl", "");
SNIPPET(landing, "nop", "nop", "");
asm(".text; .code32; landing_32: mov %cs, %eax; mov %ss, %ebx; int $0x81; .code64");
extern char landing_32[];
SNIPPET(enter_system, "nop", "sysenter", "");
SNIPPET(exit_64, "nop", "sysexitq", "");
SNIPPET(exit_32, "nop", "sysexitl", "");
SNIPPET(swap, "nop", "swapgs", "");
SNIPPET(swap_and_load, "swapgs; mov %gs:0, %rax; swapgs", "mov %gs:0, %rbx", "");
SNIPPET(read_fs_base, "nop", "rdfsbase %rax", "");
SNIPPET(write_fs_base, "nop", "wrfsbase %rdi", "rdfsbase %rax");
SNIPPET(write_gs_base, "nop", "wrgsbase %rdi", "rdgsbase %rax");
SNIPPET(write_fs_base_32, "nop", "wrfsbase %edi", "rdfsbase %rax");
SNIPPET(load_fs, "mov %edi, %fs", "mov %fs:0, %rax", "");
SNIPPET(write_msr, "mov %edi, %ecx; mov %esi, %eax; mov %rsi, %rdx; shr $32, %rdx", "wrmsr", "");

#define STAR ((u64)(USER_CS32) << 48 | (u64)KERNEL_CS << 32)
#define NONCANONICAL 0x800000000000
static u64 first = 0x1111, second = 0x2222;

static void syscalls(void)
{
    wrmsr(MSR_STAR, STAR);
    wrmsr(MSR_LSTAR, (word)system_entry);
    wrmsr(MSR_SFMASK, F_IF | F_DF | F_CF | F_NT);
    struct event start = user_state(call_system);
    start.rflags = 2 | F_IF | F_DF | F_CF | F_ZF | F_NT | F_AC;
    run(&start);
    check_event(DONE, 0, (word)system_entry_after + 2, "syscall goes to LSTAR");
    check(last.cs, KERNEL_CS, "syscall: CS");
    check(last.ss, KERNEL_DS, "syscall: SS");
    check(last.rcx, USER(call_system_after), "syscall: RCX");
    check(last.r11, start.rflags, "syscall: R11");
    check(last.rflags, 2 | F_ZF | F_AC, "syscall: RFLAGS are masked");
    check(last.rsp, start.rsp, "syscall: RSP is kept");
    wrmsr(MSR_SFMASK, 0);
    run(&start);
    check(last.rflags, start.rflags, "syscall: RFLAGS with an empty mask");
    run_kernel(call_system, 0, 0);
    check_event(DONE, 0, (word)system_entry_after + 2, "syscall from ring 0");
    check(last.cs, KERNEL_CS, "syscall from ring 0: CS");
    wrmsr(MSR_LSTAR, (word)system_back);
    start = user_state(call_and_return);
    start.rflags |= F_CF | F_DF;
    run(&start);
    check_event(DONE, 0, USER(call_and_return_after) + 2, "syscall and sysret");
    check(last.rax, 0x55, "execution goes on after syscall");
    check(last.cs, USER_CS64, "sysretq: CS");
    check(last.ss, USER_DS, "sysretq: SS");
    check(last.rflags, start.rflags, "sysretq: RFLAGS");
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) & ~EFER_SCE);
    run_user(call_system, 0, 0);
    check_event(UD, 0, USER(call_system_at), "syscall without SCE");
    run_kernel(return_64, 0, 0);
    check_event(UD, 0, (word)return_64_at, "sysret without SCE");
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SCE);
}

static void sysrets(void)
{
    struct event start = kernel_state(return_64);
    start.rcx = USER(landing);
    start.r11 = 2 | F_ZF | F_AC | F_IOPL;
    start.rsp = user_state(0).rsp;
    run(&start);
    check_event(DONE, 0, USER(landing_after) + 2, "sysretq to RCX");
    check(last.rflags, start.r11, "sysretq: RFLAGS from R11");
    start.r11 = ~0ul & ~F_TF & ~F_IF & ~(15ul << 17);
    run(&start);
    check(last.rflags, 0x207cd7, "sysretq: reserved bits, RF and VM of R11 are ignored");
    start.r11 = 2;
    start.rcx = NONCANONICAL;
    run(&start);
    check(last.vector, GP, "sysretq to a non-canonical RCX");
    if (is_intel())
        check_event(GP, 0, (word)return_64_at, "sysretq to a non-canonical RCX faults in ring 0");
    else
        check(last.cs, USER_CS64, "sysretq to a non-canonical RCX faults in ring 3");
    start = kernel_state(return_32);
    start.rcx = USER(landing_32) | 0xff00000000;
    start.r11 = 2;
    start.rsp = user_state(0).rsp;
    run(&start);
    check(last.vector, DONE, "sysretl");
    check(last.rax, USER_CS32, "sysretl: CS");
    check(last.rbx, USER_DS, "sysretl: SS");
    run_user(return_64, 0, 0);
    check_event(GP, 0, USER(return_64_at), "sysret in ring 3");
}

static void sysenters(void)
{
    wrmsr(MSR_SYSENTER_CS, KERNEL_CS);
    wrmsr(MSR_SYSENTER_EIP, (word)system_entry);
    wrmsr(MSR_SYSENTER_ESP, kernel_state(0).rsp);
    if (!is_intel()) {
        /* APM 3: SYSENTER and SYSEXIT are invalid in long mode. */
        run_user(enter_system, 0, 0);
        check_event(UD, 0, USER(enter_system_at), "sysenter in 64-bit mode");
        run_kernel(exit_64, 0, 0);
        check_event(UD, 0, (word)exit_64_at, "sysexit in 64-bit mode");
        return;
    }
    struct event start = user_state(enter_system);
    start.rflags |= F_IF | F_CF | F_DF;
    run(&start);
    check_event(DONE, 0, (word)system_entry_after + 2, "sysenter");
    check(last.cs, KERNEL_CS, "sysenter: CS");
    check(last.ss, KERNEL_DS, "sysenter: SS");
    check(last.rsp, kernel_state(0).rsp, "sysenter: RSP");
    check(last.rflags, 2 | F_CF | F_DF, "sysenter: RFLAGS");
    start = kernel_state(exit_64);
    start.rdx = USER(landing);
    start.rcx = user_state(0).rsp;
    run(&start);
    check_event(DONE, 0, USER(landing_after) + 2, "sysexit to 64-bit mode");
    check(last.cs, USER_CS64, "sysexit: CS");
    check(last.ss, 0x3b, "sysexit: SS");
    check(last.rsp, start.rcx, "sysexit: RSP");
    start.rdx = NONCANONICAL;
    run(&start);
    check_event(GP, 0, (word)exit_64_at, "sysexit to a non-canonical RDX");
    start.rip = (word)exit_32;
    start.rdx = USER(landing_32);
    run(&start);
    check(last.rax, USER_CS32, "sysexit to 32 bits: CS");
    check(last.rbx, USER_DS, "sysexit to 32 bits: SS");
    run_user(exit_64, 0, 0);
    check_event(GP, 0, USER(exit_64_at), "sysexit in ring 3");
    wrmsr(MSR_SYSENTER_CS, 3);
    run_user(enter_system, 0, 0);
    check_event(GP, 0, USER(enter_system_at), "sysenter with a null CS");
}

static void bases(void)
{
    wrmsr(MSR_GS_BASE, (word)&first);
    wrmsr(MSR_KERNEL_GS_BASE, (word)&second);
    run_kernel(swap_and_load, 0, 0);
    check(last.rax, second, "swapgs");
    check(last.rbx, first, "swapgs twice");
    run_kernel(swap, 0, 0);
    check(rdmsr(MSR_GS_BASE), (word)&second, "swapgs: GS base");
    check(rdmsr(MSR_KERNEL_GS_BASE), (word)&first, "swapgs: kernel GS base");
    run_user(swap, 0, 0);
    check_event(GP, 0, USER(swap_at), "swapgs in ring 3");
    static const u32 canonical[] = {MSR_FS_BASE, MSR_GS_BASE, MSR_KERNEL_GS_BASE, MSR_LSTAR,
                                    MSR_CSTAR};
    for (unsigned i = 0; i < 5; i++) {
        run_kernel(write_msr, canonical[i], NONCANONICAL);
        check_event(GP, 0, (word)write_msr_at, "wrmsr %x with a non-canonical address",
                    (word)canonical[i]);
        run_kernel(write_msr, canonical[i], 0xffff800000001234);
        check_done("wrmsr %x with an address of the upper half", (word)canonical[i]);
        check(rdmsr(canonical[i]), 0xffff800000001234, "rdmsr %x", (word)canonical[i]);
    }
    gdt[FREE_SELECTOR / 8] = descriptor((word)&first, 0xfffff, 0xc093);
    run_kernel(load_fs, FREE_SELECTOR, 0);
    check(last.rax, first, "FS base from a descriptor");
    check(rdmsr(MSR_FS_BASE), (word)&first, "FS base in its MSR");
}

static void fsgsbase(void)
{
    if (!(cpuid(7, 0).ebx & 1)) {
        skip("rdfsbase", "no FSGSBASE");
        return;
    }
    word cr4 = read_cr4();
    write_cr4(cr4 & ~CR4_FSGSBASE);
    run_user(read_fs_base, 0, 0);
    check_event(UD, 0, USER(read_fs_base_at), "rdfsbase without CR4.FSGSBASE");
    write_cr4(cr4 | CR4_FSGSBASE);
    run_user(write_fs_base, 0x12345678abc, 0);
    check(last.rax, 0x12345678abc, "wrfsbase in ring 3");
    run_user(write_gs_base, 0xffffffff81234567, 0);
    check(last.rax, 0xffffffff81234567, "wrgsbase in ring 3");
    run_user(write_fs_base_32, 0xffffffff81234567, 0);
    check(last.rax, 0x81234567, "wrfsbase of 32 bits");
    run_user(write_fs_base, NONCANONICAL, 0);
    check_event(GP, 0, USER(write_fs_base_at), "wrfsbase of a non-canonical address");
    write_cr4(cr4);
}

int main(void)
{
    syscalls();
    sysrets();
    sysenters();
    bases();
    fsgsbase();
    return 0;
}
