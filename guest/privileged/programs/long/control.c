/* What control registers and model-specific registers refuse, and what their bits do: TSD, PCE,
 * alignment checks (SDM 3A 2.5, 4.1, 6.15; SDM 2B, MOV to control registers, WRMSR). */
#include "harness.h"

SNIPPET(set_cr0, "nop", "mov %rdi, %cr0", "");
SNIPPET(set_cr3, "nop", "mov %rdi, %cr3", "");
SNIPPET(set_cr4, "nop", "mov %rdi, %cr4", "");
SNIPPET(set_cr8, "nop", "mov %rdi, %cr8", "");
SNIPPET(set_word, "nop", "lmsw %di", "");
SNIPPET(get_cr2, "nop", "mov %cr2, %rax", "");
SNIPPET(set_cr2, "nop", "mov %rdi, %cr2", "mov %cr2, %rax");
SNIPPET(get_msr, "mov %edi, %ecx", "rdmsr", "");
SNIPPET(set_msr, "mov %edi, %ecx; mov %esi, %eax; mov %rsi, %rdx; shr $32, %rdx", "wrmsr", "");
SNIPPET(read_time, "mov $-1, %rax; mov $-1, %rdx", "rdtsc", "");
SNIPPET(read_time_and_cpu, "nop", "rdtscp", "");
SNIPPET(read_counter, "mov %edi, %ecx", "rdpmc", "");
SNIPPET(load_2, "nop", "movw (%rdi), %ax", "");
SNIPPET(load_4, "nop", "movl (%rdi), %eax", "");
SNIPPET(load_8, "nop", "movq (%rdi), %rax", "");
SNIPPET(store_4, "nop", "movl %eax, (%rdi)", "");
SNIPPET(push_8, "mov %rdi, %rsp", "push %rax", "");
SNIPPET(string_4, "mov %rdi, %rsi; cld", "lodsl", "");
SNIPPET(x87_8, "nop", "fldl (%rdi)", "fstp %st(0)");

/* A page of code of its own, that others jump to: what is known of it must not outlive its mode. */
asm(".pushsection .text; .p2align 12; nothing_there: int $0x81;"
    ".p2align 6; time_there: rdtsc; int $0x81; .p2align 12; .popsection");
extern char nothing_there[], time_there[];
SNIPPET(jump_there, "nop", "jmp *%rdi", "");

static void refuse(const void *code, const void *at, word value, const char *name)
{
    run_kernel(code, value, 0);
    check_event(GP, 0, (word)at, "%s", name);
}

static void accept(const void *code, word value, const char *name)
{
    run_kernel(code, value, 0);
    check_done("%s", name);
}

/* What TCG does not refuse and does not survive, or refuses and then hangs. */
static void fatal_on_tcg(const void *code, const void *at, word value, const char *name)
{
    if (is_tcg())
        skip(name, "TCG does not survive it");
    else
        refuse(code, at, value, name);
}

static void control_registers(void)
{
    word cr0 = read_cr0(), cr4 = read_cr4(), cr3 = read_cr3();
    fatal_on_tcg(set_cr0, set_cr0_at, cr0 & ~1ul, "CR0: PG without PE");
    refuse(set_cr0, set_cr0_at, cr0 | 1ul << 29, "CR0: NW without CD");
    accept(set_cr0, cr0 | 3ul << 29, "CR0: NW and CD");
    accept(set_cr0, cr0 | 1ul << 30, "CR0: CD");
    write_cr0(cr0);
    fatal_on_tcg(set_cr0, set_cr0_at, cr0 & ~CR0_PG, "CR0: PG off in 64-bit mode");
    refuse(set_cr0, set_cr0_at, cr0 | 1ul << 32, "CR0: above 32 bits");
    accept(set_cr0, cr0 & ~(1ul << 4), "CR0: ET off");
    check(read_cr0(), cr0, "CR0: ET stays on");
    accept(set_word, 0x1e, "lmsw that clears PE");
    check(read_cr0() & 0xf, 0xf, "lmsw cannot clear PE");
    write_cr0(cr0);
    fatal_on_tcg(set_cr4, set_cr4_at, cr4 & ~CR4_PAE, "CR4: PAE off in long mode");
    fatal_on_tcg(set_cr4, set_cr4_at, cr4 | 1ul << 15, "CR4: bit 15");
    fatal_on_tcg(set_cr4, set_cr4_at, cr4 | 1ul << 31, "CR4: bit 31");
    fatal_on_tcg(set_cr4, set_cr4_at, cr4 | 1ul << 32, "CR4: bit 32");
    fatal_on_tcg(set_cr4, set_cr4_at, cr4 | 1ul << 63, "CR4: bit 63");
    fatal_on_tcg(set_cr4, set_cr4_at, cr4 ^ 1ul << 12, "CR4: LA57 while in long mode");
    static const struct {
        unsigned bit, leaf, reg, feature;
        const char *name;
    } features[] = {
        {11, 7, 2, 2, "UMIP"},     {16, 7, 1, 0, "FSGSBASE"}, {17, 1, 2, 17, "PCIDE"},
        {18, 1, 2, 26, "OSXSAVE"}, {20, 7, 1, 7, "SMEP"},     {21, 7, 1, 20, "SMAP"},
        {22, 7, 2, 3, "PKE"},      {23, 7, 3, 20, "CET"},     {24, 7, 2, 31, "PKS"},
        {13, 1, 2, 5, "VMXE"},
    };
    for (unsigned i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
        struct cpuid id = cpuid(features[i].leaf, 0);
        u32 words[] = {id.eax, id.ebx, id.ecx, id.edx};
        if (words[features[i].reg] >> features[i].feature & 1) {
            if (features[i].bit == 13 || features[i].bit == 23)
                continue;
            accept(set_cr4, cr4 | 1ul << features[i].bit, features[i].name);
        } else {
            fatal_on_tcg(set_cr4, set_cr4_at, cr4 | 1ul << features[i].bit, features[i].name);
        }
        write_cr4(cr4);
    }
    unsigned physical = cpuid(0x80000008, 0).eax & 0xff;
    fatal_on_tcg(set_cr3, set_cr3_at, cr3 | 1ul << physical, "CR3: above the physical address");
    fatal_on_tcg(set_cr3, set_cr3_at, cr3 | 1ul << 62, "CR3: bit 62");
    refuse(set_cr8, set_cr8_at, 16, "CR8: bit 4");
    accept(set_cr8, 15, "CR8: 15");
    accept(set_cr8, 0, "CR8: 0");
    accept(set_cr2, 0x123456789abcdef0, "CR2: anything");
    check(last.rax, 0x123456789abcdef0, "CR2 reads back");
    run_user(get_cr2, 0, 0);
    check_event(GP, 0, USER(get_cr2_at), "CR2 in ring 3");
}

static void refuse_msr(u32 index, u64 value, const char *name)
{
    run_kernel(set_msr, index, value);
    check_event(GP, 0, (word)set_msr_at, "wrmsr: %s", name);
}

static void accept_msr(u32 index, u64 value, const char *name)
{
    u64 old = rdmsr(index);
    run_kernel(set_msr, index, value);
    check_done("wrmsr: %s", name);
    run_kernel(get_msr, index, 0);
    check(last.rax | last.rdx << 32, value, "rdmsr: %s", name);
    wrmsr(index, old);
}

static void model_specific(void)
{
    u64 efer = rdmsr(MSR_EFER);
    check(efer & (EFER_LME | EFER_LMA), EFER_LME | EFER_LMA, "EFER: LME and LMA");
    refuse_msr(MSR_EFER, efer & ~EFER_LME, "EFER: LME off while paging");
    refuse_msr(MSR_EFER, efer | 1ul << 16, "EFER: bit 16");
    refuse_msr(MSR_EFER, efer | 1ul << 63, "EFER: bit 63");
    run_kernel(set_msr, MSR_EFER, efer & ~EFER_LMA);
    check(rdmsr(MSR_EFER), efer, "EFER: LMA cannot be cleared");
    wrmsr(MSR_EFER, efer);
    accept_msr(MSR_STAR, 0x0023001000000000, "STAR");
    accept_msr(MSR_LSTAR, 0xffffffff81234567, "LSTAR");
    accept_msr(MSR_SFMASK, 0x47700, "SFMASK");
    accept_msr(MSR_SYSENTER_CS, 0x10, "SYSENTER_CS");
    accept_msr(MSR_SYSENTER_ESP, 0xffff888000001000, "SYSENTER_ESP");
    accept_msr(MSR_SYSENTER_EIP, 0xffffffff81000000, "SYSENTER_EIP");
    accept_msr(MSR_FS_BASE, 0x7fff12345678, "FS_BASE");
    accept_msr(MSR_KERNEL_GS_BASE, 0xffff888012345678, "KERNEL_GS_BASE");
    accept_msr(0x277, 0x0007040600070406, "PAT");
    accept_msr(0x277, 0x0407050600070106, "PAT of other types");
    refuse_msr(0x277, 0x0007040600070402, "PAT of type 2");
    refuse_msr(0x277, 0x0807040600070406, "PAT of type 8");
    accept_msr(0xc0000103, 0x12345, "TSC_AUX");
    run_kernel(get_msr, 0x10, 0);
    check_done("rdmsr: TSC");
    wrmsr(0x10, 0x1000000000000);
    u64 now = rdtsc();
    check(now >= 0x1000000000000 && now < 0x1001000000000, true, "wrmsr: TSC");
    wrmsr(0xc0000103, 7);
    run_user(read_time_and_cpu, 0, 0);
    check(last.rcx, 7, "rdtscp reads TSC_AUX");
    wrmsr(0xc0000103, 0);
}

static void time_stamps(void)
{
    word cr4 = read_cr4();
    run_user(read_time, 0, 0);
    check_done("rdtsc in ring 3");
    check(last.rax >> 32 | last.rdx >> 32, 0, "rdtsc clears the upper halves");
    u64 first = rdtsc();
    u64 second = rdtsc();
    check(second >= first, true, "the time-stamp counter does not go back");
    write_cr4(cr4 | CR4_TSD);
    run_user(read_time, 0, 0);
    check_event(GP, 0, USER(read_time_at), "rdtsc in ring 3 with TSD");
    run_user(read_time_and_cpu, 0, 0);
    check_event(GP, 0, USER(read_time_and_cpu_at), "rdtscp in ring 3 with TSD");
    run_kernel(read_time, 0, 0);
    check_done("rdtsc in ring 0 with TSD");
    write_cr4(cr4);
    begin_group();
    for (unsigned i = 0; i < 8; i++) {
        run_user(jump_there, USER(nothing_there), 0);
        check(last.vector, DONE, "a jump to another page");
        run_user(jump_there, USER(time_there), 0);
        if (i & 1)
            check_event(GP, 0, USER(time_there), "rdtsc there with TSD");
        else
            check(last.vector, DONE, "rdtsc there without TSD");
        write_cr4(read_cr4() ^ CR4_TSD);
    }
    end_group("TSD comes and goes");
    write_cr4(cr4);
    run_user(read_counter, 0, 0);
    check_event(GP, 0, USER(read_counter_at), "rdpmc in ring 3 without PCE");
}

static void align_case(const void *code, const void *at, word address, bool fault, const char *name)
{
    struct event start = user_state(code);
    start.rdi = address;
    start.rflags |= F_AC;
    run(&start);
    if (fault)
        check_event(AC, 0, USER(at), "%s", name);
    else
        check_done("%s", name);
}

#define ALIGN(code, offset, fault, name) \
    align_case(code, code##_at, USER(ist_stack[3]) + 256 + (offset), fault, name)

static void alignment(void)
{
    ALIGN(load_4, 1, false, "AC without AM");
    write_cr0(read_cr0() | CR0_AM);
    ALIGN(load_2, 1, true, "load of 2 at 1");
    ALIGN(load_2, 2, false, "load of 2 at 2");
    ALIGN(load_4, 2, true, "load of 4 at 2");
    ALIGN(load_8, 4, true, "load of 8 at 4");
    ALIGN(load_8, 8, false, "load of 8 at 8");
    ALIGN(store_4, 3, true, "store of 4 at 3");
    ALIGN(push_8, 4, true, "push at 4");
    ALIGN(string_4, 1, true, "lodsl at 1");
    ALIGN(x87_8, 4, true, "fld at 4");
    struct event start = user_state(load_4);
    start.rdi = USER(ist_stack[3]) + 1;
    run(&start);
    check_done("AM without AC");
    start = kernel_state(load_4);
    start.rdi = (word)ist_stack[3] + 1;
    start.rflags |= F_AC;
    run(&start);
    check_done("no alignment check in ring 0");
    write_cr0(read_cr0() & ~CR0_AM);
}

int main(void)
{
    control_registers();
    model_specific();
    time_stamps();
    alignment();
    return 0;
}
