/* Task switches by hardware: jmp, call and iret between task-state segments, task gates, and what
 * is refused (SDM 3A chapter 7). */
#include "harness.h"

SNIPPET(jump_task, "mov $0x77, %ebx; stc", "ljmp *(%edi)", "mov $1, %eax");
SNIPPET(call_task, "mov $0x77, %ebx; stc", "lcall *(%edi)", "setc %cl");
SNIPPET(software, "mov $0x77, %ebx", "int $0x40", "");
SNIPPET(nested_return, "pushfl; orl $0x4000, (%esp); popfl", "iret", "");
SNIPPET(other_task, "mov %cs, %esi; str %edi", "nop", "");
SNIPPET(returning_task, "mov $0x99, %ebx; mov $5, %ecx", "iret", "mov $0x88, %ebx");
SNIPPET(error_task, "pop %edx", "nop", "");

#define OTHER FREE_SELECTOR
static struct tss32 other __attribute__((aligned(128)));
static u8 other_stack[4096] __attribute__((aligned(4096)));
static struct {
    u32 offset;
    u16 selector;
} __attribute__((packed)) pointer = {0xdeadbeef, OTHER};

static unsigned type_of(unsigned selector) { return gdt[selector / 8] >> 40 & 0xff; }

/* The first task runs again, the other is ready to start at `code`. */
static void set_up(const void *code)
{
    memset(&other, 0, sizeof(other));
    other.eip = (word)code;
    other.eflags = 2;
    other.esp = STACK_END(other_stack) - 64;
    other.eax = 0x11, other.edx = 0x33, other.ebp = 0x55;
    other.cs = KERNEL_CS;
    other.ss = other.ds = other.es = KERNEL_DS;
    other.esp0 = tss.esp0, other.ss0 = KERNEL_DS;
    other.io_map = sizeof(other);
    gdt[OTHER / 8] = descriptor((word)&other, sizeof(other) - 1, 0x89);
    gdt[TSS_SELECTOR / 8] = descriptor((word)&tss, sizeof(tss) - 1, 0x89);
    asm volatile("clts; ltr %w0" ::"r"(TSS_SELECTOR));
}

static void jumps(void)
{
    set_up(other_task);
    run_kernel(jump_task, (word)&pointer, 0);
    check_event(DONE, 0, (word)other_task_after + 2, "jmp to a TSS");
    check(last.rax | last.rdx << 8 | last.rbp << 16, 0x553311, "registers of the new task");
    check(last.rdi, OTHER, "TR is the new task's");
    check(last.rsp, other.esp, "ESP of the new task");
    check(last.rflags & (F_CF | F_NT), 0, "EFLAGS of the new task");
    check(type_of(TSS_SELECTOR), 0x89, "the old TSS is available");
    check(type_of(OTHER), 0x8b, "the new TSS is busy");
    check(read_cr0() & CR0_TS, CR0_TS, "CR0.TS is set");
    check(tss.eip, (word)jump_task_after, "EIP of the old task is saved");
    check(tss.ebx, 0x77, "EBX of the old task is saved");
    check(tss.eflags & F_CF, F_CF, "EFLAGS of the old task is saved");
    check(tss.cs, KERNEL_CS, "CS of the old task is saved");
    check(other.link, 0, "jmp leaves no link");
}

static void calls(void)
{
    set_up(other_task);
    run_kernel(call_task, (word)&pointer, 0);
    check_event(DONE, 0, (word)other_task_after + 2, "call of a TSS");
    check(last.rflags & F_NT, F_NT, "call sets NT");
    check(other.link, TSS_SELECTOR, "call links back");
    check(type_of(TSS_SELECTOR), 0x8b, "the caller's TSS stays busy");
    set_up(returning_task);
    run_kernel(call_task, (word)&pointer, 0);
    check_done("call of a TSS and iret");
    check(last.rbx, 0x77, "registers of the caller are back");
    check(last.rcx & 0xff, 1, "flags of the caller are back");
    check(last.rflags & F_NT, 0, "NT of the caller is back");
    check(type_of(TSS_SELECTOR), 0x8b, "the caller's TSS is busy");
    check(type_of(OTHER), 0x89, "the called TSS is available");
    check(other.eip, (word)returning_task_after, "EIP of the called task is behind its iret");
    check(other.ebx, 0x99, "EBX of the called task is saved");
    check(other.eflags & F_NT, 0, "NT of the called task is saved clear");
}

static void gates(void)
{
    set_gate(0x40, 0, OTHER, 0x8500);
    set_up(other_task);
    run_kernel(software, 0, 0);
    check_event(DONE, 0, (word)other_task_after + 2, "int through a task gate");
    check(tss.eip, (word)software_after, "int through a task gate: EIP");
    set_up(returning_task);
    run_kernel(software, 0, 0);
    check_done("int through a task gate and iret");
    /* A double fault, the reason why task gates exist: the stack is the new task's. */
    set_gate(DF, 0, OTHER, 0x8500);
    set_gate(GP, (word)vector_stubs + 16 * GP, KERNEL_CS, 0x0e00);
    set_up(error_task);
    pointer.selector = 0xfff8;
    run_kernel(jump_task, (word)&pointer, 0);
    pointer.selector = OTHER;
    check_event(DONE, 0, (word)error_task_after + 2, "double fault through a task gate");
    check(last.rdx, 0, "double fault through a task gate: error code");
    check(tss.eip, (word)jump_task_at, "double fault through a task gate: EIP");
    set_gate(GP, (word)vector_stubs + 16 * GP, KERNEL_CS, GATE_INTERRUPT);
    set_gate(DF, (word)vector_stubs + 16 * DF, KERNEL_CS, GATE_INTERRUPT);
}

static void refused(void)
{
    set_up(other_task);
    gdt[OTHER / 8] = descriptor((word)&other, sizeof(other) - 1, 0x8b);
    run_kernel(jump_task, (word)&pointer, 0);
    check_event(GP, OTHER, (word)jump_task_at, "jmp to a busy TSS");
    gdt[OTHER / 8] = descriptor((word)&other, sizeof(other) - 1, 0x09);
    run_kernel(jump_task, (word)&pointer, 0);
    check_event(NP, OTHER, (word)jump_task_at, "jmp to a TSS that is not present");
    gdt[OTHER / 8] = descriptor((word)&other, 0x66, 0x89);
    run_kernel(jump_task, (word)&pointer, 0);
    check_event(TS, OTHER, (word)jump_task_at, "jmp to a TSS that is too small");
    gdt[OTHER / 8] = descriptor((word)&other, sizeof(other) - 1, 0x89);
    run_user(jump_task, (word)&pointer, 0);
    check_event(GP, OTHER, (word)jump_task_at, "jmp to a TSS of DPL 0 from ring 3");
    tss.link = OTHER;
    run_kernel(nested_return, 0, 0);
    check_event(TS, OTHER, (word)nested_return_at, "iret with NT to a TSS that is not busy");
}

int main(void)
{
    jumps();
    calls();
    gates();
    refused();
    return 0;
}
