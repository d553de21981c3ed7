/* Any value in any model-specific, control, debug and segment register, and in the tables that they
 * point to. What it takes to go on is put back. */
#include "hostile.h"

SNIPPET(write_msr, "mov %edi, %ecx; mov %esi, %eax; mov %rsi, %rdx; shr $32, %rdx", "wrmsr", "");
SNIPPET(read_msr, "mov %edi, %ecx", "rdmsr", "");
SNIPPET(use_gs, "", "mov %gs:(%rdi), %rax", "mov %rsi, %gs:(%rdi)");
SNIPPET(use_fs, "", "mov %fs:(%rdi), %rax", "mov %rsi, %fs:(%rdi)");
SNIPPET(swap, "", "swapgs", "mov %gs:(%rdi), %rax; swapgs");
SNIPPET(base_gs, "", "wrgsbase %rdi", "mov %gs:0, %rax; rdgsbase %rax");
SNIPPET(base_fs, "", "wrfsbase %rdi", "mov %fs:0, %rax; rdfsbase %rax");
SNIPPET(selectors, "", "mov %di, %gs", "mov %si, %fs; mov %di, %ds; mov %si, %es");
SNIPPET(stack_selector, "", "mov %di, %ss", "push %rax");
SNIPPET(far_return, "push %rdi; lea 1f(%rip), %rax; push %rax", "lretq", "1: nop");
SNIPPET(task, "", "ltr %di", "");
SNIPPET(local_table, "", "lldt %di", "");
SNIPPET(cr0, "", "mov %rdi, %cr0", "mov %rsi, (%rsp)");
SNIPPET(cr4, "", "mov %rdi, %cr4", "mov %rsi, (%rsp)");
SNIPPET(cr8, "", "mov %rdi, %cr8", "");
SNIPPET(debug7, "mov %rsi, %dr0; mov %rsi, %dr3", "mov %rdi, %dr7", "mov (%rsi), %rax");
SNIPPET(debug6, "", "mov %rdi, %dr6", "");
SNIPPET(states, "mov %edi, %eax; mov %esi, %edx; xor %ecx, %ecx", "xsetbv", "");
SNIPPET(flags, "push %rdi", "popfq", "nop; nop");
SNIPPET(any_return, "push %rsi; push %rdi; push %rsi; push %rdi; push %rsi", "iretq", "");
SNIPPET(system_return, "mov %rdi, %rcx; mov %rsi, %r11", "sysretq", "");
SNIPPET(system_call, "", "syscall", "");
SNIPPET(system_enter, "", "sysenter", "");
SNIPPET(system_exit, "mov %rdi, %rcx; mov %rsi, %rdx", "sysexitq", "");
SNIPPET(invalidate, "push %rsi; push %rdi", "invpcid (%rsp), %rdi", "");
SNIPPET(interrupts, "", "int $0x40", "");

static char *const WAYS[] = {
    write_msr, write_msr,  write_msr,      write_msr,     read_msr,    use_gs,       use_fs,
    swap,      base_gs,    base_fs,        selectors,     far_return,  stack_selector, task,
    cr0,       cr4,        cr8,            debug7,        debug6,      states,       flags,
    any_return, system_return, system_call, system_enter, system_exit, local_table,  invalidate,
    interrupts};

static u32 msr(void)
{
    static const u32 known[] = {ODD_MSRS,   0x11,       0x12,       0x4b564d00, 0x4b564d01,
                                0x4b564d02, 0x4b564d03, 0x4b564d04, 0x4b564d05, 0xda0,
                                0x1d9};
    switch (random() % 4) {
    case 0:
        return random() % 0x2000;
    case 1:
        return 0xc0000000 + random() % 0x2000;
    case 2:
        return random();
    default:
        return known[random() % (sizeof(known) / sizeof(known[0]))];
    }
}

/* What a return to this program needs; the rest stays as it was left. */
static struct {
    word cr0, cr4;
    u64 efer, apic_base, descriptors[8];
} kept;

static void keep(void)
{
    kept.cr0 = read_cr0(), kept.cr4 = read_cr4();
    kept.efer = rdmsr(MSR_EFER), kept.apic_base = rdmsr(MSR_APIC_BASE);
    memcpy(kept.descriptors, gdt, sizeof(kept.descriptors));
}

/* An address that the next attempt may go to, or write to, must not be this program's. */
static void lead_away(u32 msr)
{
    if (is_own(rdmsr(msr)))
        wrmsr(msr, HIGH_BASE);
}

static void put_back(void)
{
    write_dr7(0);
    write_cr0(kept.cr0);
    write_cr4(kept.cr4);
    asm volatile("mov %0, %%cr8" ::"r"(0ul));
    wrmsr(MSR_EFER, kept.efer);
    wrmsr(MSR_APIC_BASE, kept.apic_base);
    memcpy(gdt, kept.descriptors, sizeof(kept.descriptors));
    gdt[TSS_SELECTOR / 8] &= ~(1ull << 41);
    asm volatile("ltr %w0" ::"r"(TSS_SELECTOR));
    lead_away(MSR_LSTAR);
    lead_away(MSR_SYSENTER_EIP);
    lead_away(MSR_FS_BASE);
    lead_away(MSR_GS_BASE);
    lead_away(MSR_KERNEL_GS_BASE);
    load_idt();
    apic_enable();
}

int main(void)
{
    u64 rounds = begin();
    keep();
    for (u64 round = 0; round < rounds; round++) {
        char *way = WAYS[random() % (sizeof(WAYS) / sizeof(WAYS[0]))];
        /* Now and then descriptors of any kind, where selectors find them. */
        if (random() % 4 == 0)
            gdt[FREE_SELECTOR / 8 + random() % 8] = random() << 3 ^ random();
        bool is_msr = way == write_msr || way == read_msr;
        bool is_gone_to = way == any_return || way == system_return || way == system_exit;
        u64 first = is_msr ? msr() : odd_number();
        if (is_gone_to && is_own(first))
            continue;
        attempt(way, first, odd_number());
        put_back();
    }
    print("ok survived\n");
    return 0;
}
