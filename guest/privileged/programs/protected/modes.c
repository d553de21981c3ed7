/* From 32-bit protected mode to real mode and back, and to long mode and back: what code in each
 * sees (SDM 3A 9.8.5, 9.9, 20.1; SDM 3A 6.4), and the interrupts that real mode finds as firmware has left
 * them (PC/AT BIOS). */
#include "harness.h"

/* 16-bit code, copied to REAL; what it finds is at RESULTS. `real_call` takes the offset of a
 * function in it. */
#define REAL 0x8000
#define RESULTS 0x7000
#define STRINGIFY2(x) #x
#define STRINGIFY(x) STRINGIFY2(x)

extern char real_begin[], real_end[];
void real_call(unsigned offset);

/* clang-format off */
/* Protected to real by way of 16-bit segments, a near call, and back (SDM 3A 9.9.1, 9.9.2). */
asm(".text\n"
    ".globl real_call\n"
    "real_call:\n"
    "mov 4(%esp), %eax\n"
    "pushal\n"
    "mov %esp, real_stack_saved\n"
    "mov %eax, %ebx\n"
    "ljmp $0x40, $" STRINGIFY(REAL) "\n"
    ".globl real_return\n"
    "real_return:\n"
    "mov $0x10, %eax; mov %eax, %ds; mov %eax, %es; mov %eax, %ss\n"
    "mov real_stack_saved, %esp\n"
    "xor %eax, %eax; mov %eax, %fs; mov %eax, %gs\n"
    "call load_idt\n"
    "popal\n"
    "ret\n"
    ".data\n"
    "real_stack_saved: .long 0\n"
    ".text\n"
    ".code16\n"
    "real_begin:\n"
    "mov $0x48, %ax; mov %ax, %ds; mov %ax, %es; mov %ax, %ss; mov %ax, %fs; mov %ax, %gs\n"
    "mov %cr0, %eax; and $~1, %eax; mov %eax, %cr0\n"
    "ljmp $0, $(" STRINGIFY(REAL) " + 1f - real_begin)\n"
    "1: xor %ax, %ax; mov %ax, %ds; mov %ax, %es; mov %ax, %ss; mov $0x7000, %sp\n"
    "lidtl " STRINGIFY(REAL) " + real_idt - real_begin\n"
    "call *%bx\n"
    "xor %ax, %ax; mov %ax, %ds\n"
    "mov %cr0, %eax; or $1, %eax; mov %eax, %cr0\n"
    "ljmpl $8, $real_return\n"
    "real_idt: .word 0x3ff; .long 0\n"
    /* Where vectors go: notes the vector and the frame, and leaves the function. */
    ".macro HANDLER number\n"
    "real_handler_\\number: movw $\\number, %cs:(" STRINGIFY(RESULTS) "); jmp real_note\n"
    ".endm\n"
    "HANDLER 0; HANDLER 6; HANDLER 12; HANDLER 13\n"
    "real_note: xor %ax, %ax; mov %ax, %ds\n"
    "popw (" STRINGIFY(RESULTS) " + 2); popw (" STRINGIFY(RESULTS) " + 4); popw (" STRINGIFY(RESULTS) " + 6)\n"
    "mov %sp, (" STRINGIFY(RESULTS) " + 8)\n"
    "mov %ax, %ss; mov $0x6ffe, %sp; ret\n"
    /* int 0x40: counts, shows FLAGS, returns. */
    "real_software: pushf; popw (" STRINGIFY(RESULTS) " + 10); mov %sp, (" STRINGIFY(RESULTS) " + 12)\n"
    "incw (" STRINGIFY(RESULTS) " + 14); iretw\n"
    ".code32\n");

/* clang-format on */

#define REAL_FUNCTION(name, code)                             \
    asm(".text; .code16; " #name ": " code "; ret; .code32"); \
    extern char name[]

#define R(n) "(" STRINGIFY(RESULTS) " + " #n ")"

REAL_FUNCTION(real_state, "mov %cs, " R(0) "; mov %sp, " R(2) "; pushfl; popl " R(
                              4) "; mov %cr0, %eax; mov %eax, " R(8) "; smsw " R(12));
REAL_FUNCTION(real_int, "pushl $0x202; popfl; sti; int $0x40; pushf; popw " R(16) "; cli");
REAL_FUNCTION(real_divide, "xor %dx, %dx; mov $1, %ax; xor %cx, %cx; real_divide_at: div %cx");
REAL_FUNCTION(real_invalid, "real_invalid_at: ud2");
REAL_FUNCTION(real_lldt, "xor %ax, %ax; real_lldt_at: lldt %ax");
REAL_FUNCTION(real_word_wrap, "mov $0xffff, %si; real_word_wrap_at: mov (%si), %ax");
REAL_FUNCTION(real_byte_end, "mov $0xffff, %si; mov (%si), %al; movw $0x55, " R(0));
REAL_FUNCTION(real_stack_wrap, "mov $0xffff, %bp; real_stack_wrap_at: mov (%bp), %ax");
REAL_FUNCTION(real_beyond, "mov $0x10000, %esi; real_beyond_at: addr32 movb (%esi), %al");
REAL_FUNCTION(real_high_area, "mov $0xffff, %ax; mov %ax, %es; mov %es:(0x10), %eax; mov %eax, " R(
                                  0) "; xor %ax, %ax; mov %ax, %es");
REAL_FUNCTION(real_push_wrap,
              "mov %sp, %cx; xor %sp, %sp; mov $0x1234, %ax; push %ax; mov %sp, " R(
                  0) "; pop %dx; mov %dx, " R(2) "; mov %sp, " R(4) "; mov %cx, %sp");
REAL_FUNCTION(
    real_wide,
    "mov $0x12345678, %eax; mov $0x7100, %ebx; addr32 movl %eax, (%ebx); mov " R(0x100) ", %dx; mov %dx, " R(
        0) "; pushl %eax; pop %ax; mov %ax, " R(2) "; pop %ax; mov %ax, " R(4));
REAL_FUNCTION(real_string,
              "cld; mov $0x7200, %si; mov $0x7300, %di; mov $0x10004, %ecx; rep movsb; mov %di, " R(
                  0) "; mov %ecx, " R(4));
REAL_FUNCTION(real_loop, "mov $0x10003, %ecx; xor %ax, %ax; 1: inc %ax; loop 1b; mov %ax, " R(
                             0) "; mov %ecx, " R(4));
REAL_FUNCTION(real_far,
              "push %cs; call 1f; movw $2, " R(2) "; jmp 2f; 1: movw $1, " R(0) "; lretw; 2:");
REAL_FUNCTION(
    real_segments,
    "mov $0x700, %ax; mov %ax, %fs; mov $0x77, %eax; mov %eax, %fs:(8); mov %fs, %ax; mov %ax, " R(0) "; mov " R(
        8) ", %ax; mov %ax, " R(2) "; mov $0xffffffff, %eax; mov %eax, " R(4) "; xor %ax, %ax; mov %ax, %fs");
/* Limits of 4 GiB stay when PE goes off again: "unreal mode". */
REAL_FUNCTION(
    real_unreal,
    "mov %cr0, %eax; or $1, %al; mov %eax, %cr0; mov $0x10, %bx; mov %bx, %es; and $0xfe, %al;"
    "mov %eax, %cr0; xor %bx, %bx; mov %bx, %es; mov $0x2000000, %edi; addr32 movl %es:(%edi), %eax;"
    "mov %eax, " R(0) "; addr32 movl $0x5555aaaa, %es:4(%edi)");
REAL_FUNCTION(
    real_table,
    "sub $8, %sp; mov %sp, %si; movl $0x12345678, 2(%si); movw $0x27, (%si); sgdt (0x7110); lgdtw (%si);"
    "sgdt " R(0) "; lgdtl (0x7110); add $8, %sp");
REAL_FUNCTION(real_step, "pushw $0x102; popfw; nop; nop; pushw $2; popfw; nop");
/* Interrupts on, until one has come or for some seconds. */
REAL_FUNCTION(real_wait, "mov $20000000, %ecx; sti; 1: cmpw $0xeeee, " R(0) "; jne 2f; dec %ecx; jnz 1b; 2: cli");
/* The handlers of IRQ 0 and IRQ 8 count, and end the interrupt where it came from. */
asm(".text; .code16\n"
    "real_timer: push %ax; movw $8, %cs:" R(0) "; mov $0x20, %al; out %al, $0x20; pop %ax; iretw\n"
    "real_clock: push %ax; movw $0x70, %cs:" R(0) "; mov $0x0c, %al; out %al, $0x70; in $0x71, %al\n"
    "mov $0x20, %al; out %al, $0xa0; out %al, $0x20; pop %ax; iretw; .code32");
asm(".text; .code16; real_count: incw " R(0) "; push %bp; mov %sp, %bp; push %ax; mov 2(%bp), %ax; mov %ax, " R(
    2) "; pop %ax; pop %bp; iretw; real_end: .code32");
extern char real_divide_at[], real_invalid_at[], real_lldt_at[], real_word_wrap_at[],
    real_stack_wrap_at[];
extern char real_beyond_at[], real_handler_0[], real_handler_6[], real_handler_12[],
    real_handler_13[];
extern char real_software[], real_count[], real_timer[], real_clock[];

static unsigned offset_of(const char *label) { return REAL + (label - real_begin); }

static volatile u16 *const results16 = (u16 *)RESULTS;
static volatile u32 *const results32 = (u32 *)RESULTS;

static void call_real(const char *function)
{
    memset((void *)RESULTS, 0, 64);
    results16[0] = 0xeeee;
    real_call(offset_of(function));
}

/* The exception leaves IP of the instruction, FLAGS, and no error code. */
static void real_fault(const char *function, const char *at, unsigned vector, const char *name)
{
    call_real(function);
    check(results16[0], vector, "real mode: %s: vector", name);
    check(results16[1], offset_of(at), "real mode: %s: IP", name);
    check(results16[2], 0, "real mode: %s: CS", name);
    check(results16[4], 0x6ffe, "real mode: %s: SP", name);
}

static void set_up_real(void)
{
    volatile u32 *ivt = (u32 *)0;
    asm volatile("" : "+r"(ivt));
    memcpy((void *)REAL, real_begin, real_end - real_begin);
    ivt[0] = offset_of(real_handler_0);
    ivt[1] = offset_of(real_count);
    ivt[6] = offset_of(real_handler_6);
    ivt[12] = offset_of(real_handler_12);
    ivt[13] = offset_of(real_handler_13);
    ivt[0x40] = offset_of(real_software);
    ivt[0x08] = offset_of(real_timer);
    ivt[0x70] = offset_of(real_clock);
}

static void real_mode(void)
{
    call_real(real_state);
    check(results16[0], 0, "real mode: CS");
    check(results16[1], 0x6ffe, "real mode: SP");
    check(results32[1] & 0x302, 2, "real mode: EFLAGS");
    check(results32[2] & 0x80000001, 0, "real mode: CR0");
    check(results16[6] & 1, 0, "real mode: smsw");
    call_real(real_int);
    check(results16[7], 1, "real mode: int runs its handler");
    check(results16[5] & F_IF, 0, "real mode: int clears IF");
    check(results16[6], 0x6ffe - 6, "real mode: int pushes three words");
    check(results16[8] & F_IF, F_IF, "real mode: iret sets IF again");
    real_fault(real_divide, real_divide_at, DE, "divide");
    real_fault(real_invalid, real_invalid_at, UD, "ud2");
    real_fault(real_lldt, real_lldt_at, UD, "lldt");
    real_fault(real_word_wrap, real_word_wrap_at, GP, "word at ffff");
    real_fault(real_stack_wrap, real_stack_wrap_at, SS, "word at ffff of the stack");
    real_fault(real_beyond, real_beyond_at, GP, "beyond 64 KiB");
    call_real(real_byte_end);
    check(results16[0], 0x55, "real mode: byte at ffff");
    call_real(real_high_area);
    check(results32[0], *(u32 *)0x100000, "real mode: ffff:0010 is at 1 MiB");
    call_real(real_push_wrap);
    check(results16[0], 0xfffe, "real mode: push at SP 0");
    check(results16[1], 0x1234, "real mode: pop at SP fffe");
    check(results16[2], 0, "real mode: SP wraps to 0");
}

static void real_mode_instructions(void)
{
    call_real(real_wide);
    check(results16[0], 0x5678, "real mode: 32-bit store");
    check(results16[1] | results16[2] << 16, 0x12345678, "real mode: 32-bit push");
    memcpy((void *)0x7200, "abcd", 4);
    call_real(real_string);
    check(results16[0], 0x7304, "real mode: rep movsb counts in CX");
    check(results32[1], 0x10000, "real mode: rep movsb leaves the upper half of ECX");
    check(*(u32 *)0x7300, 0x64636261, "real mode: rep movsb");
    call_real(real_loop);
    check(results16[0], 3, "real mode: loop counts in CX");
    check(results32[1], 0x10000, "real mode: loop leaves the upper half of ECX");
    call_real(real_far);
    check(results16[0] | results16[1] << 4, 0x21, "real mode: far return");
    call_real(real_segments);
    check(results16[0], 0x700, "real mode: FS");
    check(results16[1], 0x77, "real mode: FS base");
    *(u32 *)0x2000000 = 0x13572468;
    call_real(real_unreal);
    check(results32[0], 0x13572468, "unreal mode: load");
    check(*(u32 *)0x2000004, 0x5555aaaa, "unreal mode: store");
    call_real(real_table);
    check(results16[0], 0x27, "real mode: lgdt: limit");
    check(*(u32 *)(RESULTS + 2), 0x345678, "real mode: lgdt of 16 bits takes 24 bits of the base");
    call_real(real_step);
    check(results16[0], (u16)(0xeeee + 4), "real mode: single step");
    for (unsigned i = 0; i < 50; i++)
        call_real(real_byte_end);
    check(results16[0], 0x55, "real mode: fifty times there and back");
}

static void write_clock(u8 index, u8 value)
{
    out8(0x70, index);
    out8(0x71, value);
}

/* Firmware has set up the 8259s and the PIT: nobody here has. */
static void firmware_interrupts(void)
{
    check(boot_pic_masks[0] & 5, 0, "the first 8259 is open to the timer and the second");
    check(boot_pic_masks[1] & 1, 0, "the second 8259 is open to the clock");
    out8(0x21, 0xfe);
    call_real(real_wait);
    check(results16[0], 8, "real mode: the timer ticks at vector 08h");
    out8(0x21, 0xfb);
    out8(0xa1, 0xfe);
    write_clock(0xa, 0x26);
    write_clock(0xb, 0x42);
    call_real(real_wait);
    check(results16[0], 0x70, "real mode: the clock interrupts at vector 70h");
    write_clock(0xb, 0x02);
    out8(0x21, 0xff);
    out8(0xa1, 0xff);
}

/* Long mode from 32 bits: compatibility mode first, then 64-bit code, and all the way back. */
static u64 *const top = (u64 *)page_pool[0], *const middle = (u64 *)page_pool[1];
static u64 *const bottom = (u64 *)page_pool[2];
static volatile u64 wide_value;
static volatile u32 compat_cr0, compat_efer, compat_value;
void to_long_and_back(void);
/* clang-format off */
asm(".text\n"
    ".globl to_long_and_back\n"
    "to_long_and_back:\n"
    "pushal\n"
    "mov %cr4, %eax; or $0x20, %eax; mov %eax, %cr4\n"
    "mov $page_pool, %eax; mov %eax, %cr3\n"
    "mov $0xc0000080, %ecx; rdmsr; or $0x100, %eax; wrmsr\n"
    "mov %cr0, %eax; or $0x80000000, %eax; mov %eax, %cr0\n"
    "jmp 1f\n"
    "1: rdmsr; mov %eax, compat_efer\n"
    "mov $-1, %eax; inc %eax; mov %eax, compat_value\n"
    "mov $wide_value, %edi; ljmp $0x70, $2f\n"
    ".code64\n"
    "2: movabs $0x123456789abcdef0, %rax; mov %rax, %r15; mov %r15, (%rdi)\n"
    "lea 3f(%rip), %rax; pushq $0x38; push %rax; lretq\n"
    ".code32\n"
    "3: mov %cr0, %eax; and $0x7fffffff, %eax; mov %eax, %cr0\n"
    "jmp 4f\n"
    "4: mov $0xc0000080, %ecx; rdmsr; mov %eax, compat_cr0; and $~0x100, %eax; wrmsr\n"
    "mov %cr4, %eax; and $~0x20, %eax; mov %eax, %cr4\n"
    "popal\n"
    "ret\n");

/* clang-format on */

static void long_mode(void)
{
    gdt[FREE_SELECTOR / 8] = 0x00af9b000000ffff;
    top[0] = (word)middle | 3;
    middle[0] = (word)bottom | 3;
    for (unsigned i = 0; i < 512; i++)
        bottom[i] = (u64)i << 21 | 0x83;
    for (unsigned round = 0; round < 5; round++) {
        wide_value = compat_efer = compat_cr0 = 0;
        compat_value = 1;
        to_long_and_back();
        check(compat_efer & 0x500, 0x500, "compatibility mode: EFER.LMA, round %d", round);
        check(compat_value, 0, "compatibility mode: inc, round %d", round);
        check(wide_value == 0x123456789abcdef0, true, "64-bit mode: 64-bit registers, round %d",
              round);
        check(compat_cr0 & 0x500, 0x100, "EFER.LMA is clear again, round %d", round);
        call_real(real_byte_end);
        check(results16[0], 0x55, "real mode after long mode, round %d", round);
    }
}

SNIPPET(set_cr0, "nop", "mov %edi, %cr0", "");
SNIPPET(arpl, "mov $0x10, %eax; mov $3, %ecx", "arpl %cx, %ax", "");

static void protected_mode(void)
{
    wrmsr(MSR_EFER, EFER_LME);
    run_kernel(set_cr0, read_cr0() | CR0_PG, 0);
    check_event(GP, 0, (word)set_cr0_at, "PG with LME but without PAE");
    write_cr0(read_cr0() & ~CR0_PG);
    wrmsr(MSR_EFER, 0);
    run_kernel(arpl, 0, 0);
    check(last.rax, 0x13, "arpl raises the RPL");
}

int main(void)
{
    set_up_real();
    firmware_interrupts();
    real_mode();
    real_mode_instructions();
    long_mode();
    protected_mode();
    return 0;
}
