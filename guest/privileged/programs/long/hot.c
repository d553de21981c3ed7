/* Code that has run many times, and then the ground shifts beneath it: mode bits, translations,
 * segment bases, breakpoints and tables change within the loop, and the next round must notice. */
#include "paging.h"

/* 100 rounds of `body`, counted down in R9; before the 50th from the end, `change` happens. */
#define HOT(name, setup, body, change)                                                             \
    SNIPPET(name, setup "; mov $100, %r9d; xor %r8d, %r8d; 1:", body,                              \
            "dec %r9d; jz 2f; cmp $50, %r9d; jne 1b; " change "; jmp 1b; 2:")

#define SET_CR4(bit) "mov %cr4, %rax; bts $" #bit ", %rax; mov %rax, %cr4"
#define CLEAR_CR4(bit) "mov %cr4, %rax; btr $" #bit ", %rax; mov %rax, %cr4"
#define SET_CR0(bit) "mov %cr0, %rax; bts $" #bit ", %rax; mov %rax, %cr0"
#define CALL_AND_ADD "call *%rdi; add %rax, %r8"
#define LOAD_AND_ADD "mov (%rdi), %eax; add %rax, %r8"

HOT(smep, "nop", "call *%rdi", SET_CR4(20));
HOT(smap, "nop", "mov (%rdi), %eax", SET_CR4(21));
HOT(smap_clac, "stac", "mov (%rdi), %eax", "clac");
HOT(smap_popf, "stac", "mov (%rdi), %eax", "pushq $2; popfq");
HOT(write_protect, "nop", "mov %eax, (%rdi)", SET_CR0(16));
HOT(task_switched, "nop", "addps %xmm0, %xmm1", SET_CR0(3));
HOT(emulation, "nop", "addps %xmm0, %xmm1", SET_CR0(2));
HOT(no_sse, "nop", "addps %xmm0, %xmm1", CLEAR_CR4(9));
HOT(no_xsave, "nop", "vaddps %ymm0, %ymm0, %ymm0", CLEAR_CR4(18));
HOT(no_avx, "nop", "vaddps %ymm0, %ymm0, %ymm0",
    "xor %ecx, %ecx; mov $3, %eax; xor %edx, %edx; xsetbv");
HOT(no_nxe, "nop", "mov (%rdi), %eax", "mov $0xc0000080, %ecx; rdmsr; btr $11, %eax; wrmsr; invlpg (%rdi)");
HOT(frame_code, "nop", CALL_AND_ADD, "mov %rdx, (%rsi); invlpg (%rdi)");
HOT(frame_code_cr3, "nop", CALL_AND_ADD, "mov %rdx, (%rsi); mov %cr3, %rax; mov %rax, %cr3");
HOT(frame_code_pge, "nop", CALL_AND_ADD,
    "mov %rdx, (%rsi); mov %cr4, %rax; btc $7, %rax; mov %rax, %cr4; btc $7, %rax; mov %rax, %cr4");
HOT(frame_data, "nop", LOAD_AND_ADD, "mov %rdx, (%rsi); invlpg (%rdi)");
HOT(frame_data_cr3, "nop", LOAD_AND_ADD, "mov %rdx, (%rsi); mov %cr3, %rax; mov %rax, %cr3");
HOT(other_space, "nop", LOAD_AND_ADD, "mov %rsi, %cr3");
HOT(other_space_code, "nop", CALL_AND_ADD, "mov %rsi, %cr3");
HOT(page_gone, "nop", "mov (%rdi), %eax", "movq $0, (%rsi); invlpg (%rdi)");
HOT(code_gone, "nop", "call *%rdi", "movq $0, (%rsi); invlpg (%rdi)");
HOT(read_only, "nop", "mov %eax, (%rdi)", "andq $-3, (%rsi); invlpg (%rdi)");
HOT(not_executable, "nop", "call *%rdi", "btsq $63, (%rsi); invlpg (%rdi)");
HOT(code_written, "nop", CALL_AND_ADD, "movb $2, 1(%rdi)");
HOT(gs_by_msr, "nop", "mov %gs:0, %eax; add %rax, %r8",
    "mov $0xc0000101, %ecx; mov %esi, %eax; xor %edx, %edx; wrmsr");
HOT(gs_by_swap, "nop", "mov %gs:0, %eax; add %rax, %r8", "swapgs");
HOT(gs_by_load, "nop", "mov %gs:0, %eax; add %rax, %r8", "mov $0x70, %eax; mov %eax, %gs");
HOT(gs_by_instruction, "nop", "mov %gs:0, %eax; add %rax, %r8", "wrgsbase %rsi");
HOT(fs_by_instruction, "nop", "mov %fs:0, %eax; add %rax, %r8", "wrfsbase %rsi");
HOT(fs_by_msr, "nop", "mov %fs:0, %eax; add %rax, %r8",
    "mov $0xc0000100, %ecx; mov %esi, %eax; xor %edx, %edx; wrmsr");
HOT(breakpoint_set, "nop", "nop", "lea 1b(%rip), %rax; mov %rax, %dr0; mov $0x401, %eax; mov %rax, %dr7");
HOT(watchpoint_set, "nop", "mov %eax, (%rdi)", "mov %rdi, %dr0; mov $0xd0401, %eax; mov %rax, %dr7");
HOT(step_set, "nop", "nop", "pushq $0x102; popfq; nop");
HOT(table_changed, "nop", "int $0x40", "lidt (%rdi)");
HOT(entry_changed, "nop", "syscall",
    "mov $0xc0000082, %ecx; mov %esi, %eax; xor %edx, %edx; wrmsr");
HOT(no_system_calls, "nop", "syscall", "mov $0xc0000080, %ecx; rdmsr; btr $0, %eax; wrmsr");
SNIPPET(system_one, "inc %r8", "jmp *%rcx", "");
SNIPPET(system_thousand, "add $1000, %r8", "jmp *%rcx", "");

#define FRAME_A (48ul << 20)
#define FRAME_B (50ul << 20)
#define ADDRESS (HIGH_BASE + (60ul << 30))
static u64 one = 1, thousand = 1000;
static word cr0, cr4;
static u64 efer;

static void restore(void)
{
    write_cr0(cr0);
    write_cr4(cr4);
    wrmsr(MSR_EFER, efer);
    write_dr7(0x400);
    write_dr6(0xffff0ff0);
    write_cr3((word)pml4);
    load_idt();
}

static void go(const void *code, word rdi, word rsi, word rdx)
{
    struct event start = kernel_state(code);
    start.rdi = rdi;
    start.rsi = rsi;
    start.rdx = rdx;
    run(&start);
    restore();
}

#define FAULTS(name, vector, error, rdi, rsi, rip)                                                 \
    do {                                                                                           \
        go(name, rdi, rsi, 0);                                                                     \
        check_event(vector, error, (word)(rip), #name);                                            \
        check(last.r9, 50, #name ": round");                                                       \
    } while (0)

#define SUMS(name, rdi, rsi, rdx)                                                                  \
    do {                                                                                           \
        go(name, rdi, rsi, rdx);                                                                   \
        check_done(#name);                                                                         \
        check(last.r8, expected, #name ": sum");                                                   \
    } while (0)

/* mov $value, %eax; ret */
static void put(word frame, u8 value)
{
    const u8 code[] = {0xb8, value, 0, 0, 0, 0xc3};
    memcpy((void *)frame, code, sizeof(code));
}

static void modes(void)
{
    word user_code = USER(FRAME_A), user_data = USER(&one);
    put(FRAME_A, 1);
    if (has_smep())
        FAULTS(smep, PF, E_P | E_I, user_code, 0, user_code);
    if (has_smap()) {
        FAULTS(smap, PF, E_P, user_data, 0, smap_at);
        for (unsigned i = 0; i < 2; i++) {
            write_cr4(cr4 | CR4_SMAP);
            if (i)
                FAULTS(smap_clac, PF, E_P, user_data, 0, smap_clac_at);
            else
                FAULTS(smap_popf, PF, E_P, user_data, 0, smap_popf_at);
        }
    }
    FAULTS(task_switched, NM, 0, 0, 0, task_switched_at);
    FAULTS(emulation, UD, 0, 0, 0, emulation_at);
    FAULTS(no_sse, UD, 0, 0, 0, no_sse_at);
    if (cpuid(1, 0).ecx >> 28 & 1) {
        cr4 |= CR4_OSXSAVE;
        restore();
        asm volatile("xsetbv" ::"a"(7), "d"(0), "c"(0));
        FAULTS(no_xsave, UD, 0, 0, 0, no_xsave_at);
        FAULTS(no_avx, UD, 0, 0, 0, no_avx_at);
    }
    write_cr0(cr0 & ~CR0_WP);
    map_at(ADDRESS, FRAME_A, 1, P_P);
    FAULTS(write_protect, PF, E_P | E_W, ADDRESS + 64, 0, write_protect_at);
    map_at(ADDRESS, FRAME_A, 1, P_ALL | P_NX);
    /* A translation in use may outlive EFER.NXE; a flush makes the bit reserved. */
    FAULTS(no_nxe, PF, E_P | E_R, ADDRESS, 0, no_nxe_at);
}

static void translations(void)
{
    static const u64 bits = P_ALL;
    word expected = 50 * 1 + 50 * 2;
    put(FRAME_A, 1);
    put(FRAME_B, 2);
    struct walk walk = map_at(ADDRESS, FRAME_A, 1, bits);
    word entry = (word)walk.entry[1];
#define AGAIN (*walk.entry[1] = FRAME_A | bits, invlpg(ADDRESS))
    AGAIN;
    SUMS(frame_code, ADDRESS, entry, FRAME_B | bits);
    AGAIN;
    SUMS(frame_code_cr3, ADDRESS, entry, FRAME_B | bits);
    AGAIN;
    SUMS(frame_code_pge, ADDRESS, entry, FRAME_B | bits);
    AGAIN;
    SUMS(code_written, ADDRESS, 0, 0);
    put(FRAME_A, 1);
    AGAIN;
    FAULTS(page_gone, PF, 0, ADDRESS, entry, page_gone_at);
    AGAIN;
    FAULTS(code_gone, PF, E_I, ADDRESS, entry, ADDRESS);
    AGAIN;
    FAULTS(read_only, PF, E_P | E_W, ADDRESS + 64, entry, read_only_at);
    AGAIN;
    FAULTS(not_executable, PF, E_P | E_I, ADDRESS, entry, ADDRESS);
    *(u32 *)(FRAME_A + 128) = 1;
    *(u32 *)(FRAME_B + 128) = 2;
    AGAIN;
    SUMS(frame_data, ADDRESS + 128, entry, FRAME_B | bits);
    AGAIN;
    SUMS(frame_data_cr3, ADDRESS + 128, entry, FRAME_B | bits);
    AGAIN;
    u64 *other = new_table();
    memcpy(other, pml4, 4096);
    word other_address = LOW_BASE + (60ul << 30);
    map_at(other_address, FRAME_A, 1, bits);
    u64 kept = pml4[other_address >> 39];
    pml4[other_address >> 39] = 0;
    map_at(other_address, FRAME_B, 1, bits);
    other[other_address >> 39] = pml4[other_address >> 39];
    pml4[other_address >> 39] = kept;
    flush_tlb();
    SUMS(other_space, other_address + 128, (word)other, 0);
    SUMS(other_space_code, other_address, (word)other, 0);
}

static void set_bases(void)
{
    wrmsr(MSR_GS_BASE, (word)&one);
    wrmsr(MSR_KERNEL_GS_BASE, (word)&thousand);
    wrmsr(MSR_FS_BASE, (word)&one);
}

static void bases(void)
{
    word expected = 50 * 1 + 50 * 1000;
    set_bases();
    SUMS(gs_by_msr, 0, (word)&thousand, 0);
    set_bases();
    SUMS(gs_by_swap, 0, 0, 0);
    set_bases();
    gdt[FREE_SELECTOR / 8] = descriptor((word)&thousand, 0xfffff, 0xc093);
    SUMS(gs_by_load, 0, 0, 0);
    set_bases();
    SUMS(fs_by_msr, 0, (word)&thousand, 0);
    if (!(cpuid(7, 0).ebx & 1)) {
        skip("bases by instruction", "no FSGSBASE");
        return;
    }
    cr4 |= CR4_FSGSBASE;
    restore();
    set_bases();
    SUMS(gs_by_instruction, 0, (word)&thousand, 0);
    set_bases();
    SUMS(fs_by_instruction, 0, (word)&thousand, 0);
}

static bool add_one(struct event *event)
{
    event->r8++;
    return true;
}

static void traps(void)
{
    FAULTS(breakpoint_set, DB, 0, 0, 0, breakpoint_set_at);
    FAULTS(watchpoint_set, DB, 0, (word)&one, 0, watchpoint_set_after);
    one = 1;
    go(step_set, 0, 0, 0);
    check(last.vector, DB, "step_set");
    check(last.r9, 50, "step_set: round");
    word expected = 50 * 1 + 50 * 1000;
    wrmsr(MSR_STAR, (u64)USER_CS32 << 48 | (u64)KERNEL_CS << 32);
    wrmsr(MSR_SFMASK, 0);
    wrmsr(MSR_LSTAR, (word)system_one);
    SUMS(entry_changed, 0, (word)system_thousand, 0);
    FAULTS(no_system_calls, UD, 0, 0, 0, no_system_calls_at);
    struct {
        u16 limit;
        u64 base;
    } __attribute__((packed)) pointer;
    asm volatile("sidt %0" : "=m"(pointer));
    /* One gate further: vector 0x40 is then what 0x41 was. */
    pointer.base += 16;
    pointer.limit -= 16;
    hooks[0x40] = add_one;
    go(table_changed, (word)&pointer, 0, 0);
    check(last.vector, 0x41, "table_changed");
    check(last.r8, 50, "table_changed: sum");
}

int main(void)
{
    cr0 = read_cr0();
    cr4 = read_cr4();
    efer = rdmsr(MSR_EFER);
    modes();
    translations();
    bases();
    traps();
    return 0;
}
