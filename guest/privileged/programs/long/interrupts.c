/* Where interrupts are taken and where not: the shadows of sti and of a stack switch, hlt, popf and
 * iret that set IF, CR8, priorities and nesting, NMIs and their blocking (SDM 3A 6.7, 6.8, 10.8).
 */
#include "apic.h"

#define SEND "movl $0x40050, 0x300(%rdi)"
SNIPPET(sti_nop, "cli; " SEND, "sti", "nop; nop; nop");
SNIPPET(sti_twice, "cli; " SEND, "sti", "sti; nop");
SNIPPET(sti_cli, "cli; " SEND "; sti; cli; nop; nop; nop; sti; cli", "nop", "");
SNIPPET(sti_halt, "cli; " SEND, "sti", "hlt; nop");
SNIPPET(popf_sets, "cli; " SEND "; pushq $0x202", "popfq", "nop; nop");
SNIPPET(iret_sets,
        "cli; " SEND
        "; mov %rsp, %rax; mov %ss, %ecx; push %rcx; push %rax; push $0x202; mov %cs, %ecx;"
        "push %rcx; lea 1f(%rip), %rax; push %rax; iretq; nop",
        "1: nop", "nop");
SNIPPET(call_after_sti, "cli; " SEND, "sti", "call 1f; 1: nop; nop");
SNIPPET(string_after_sti, "cli; " SEND "; mov %rsp, %rsi; mov $3, %ecx", "sti",
        "rep lodsb; nop; nop");
SNIPPET(lower_cr8, "sti; mov $15, %eax; mov %rax, %cr8; " SEND "; nop; nop; xor %eax, %eax",
        "mov %rax, %cr8", "nop; nop");
SNIPPET(wait_here, "nop", "1: pause; jmp 1b", "");
SNIPPET(halt_here, "nop", "hlt", "nop");
SNIPPET(sti_halt_only, "cli", "sti", "hlt; nop");
SNIPPET(nothing, "nop", "nop", "");
SNIPPET(send_nmi, "mov $1000, %ecx", "movl $0x40400, 0x300(%rdi); 1: dec %ecx; jnz 1b", "");
SNIPPET(sti_fault, "cli; " SEND, "sti", "mov (%rsi), %eax; nop");
SNIPPET(user_loop, "nop", "1: jmp 1b", "");

enum { VECTOR = 0x50 };
#define APIC_BASE 0xfee00000

static void window(const void *code, word rip, const char *name)
{
    run_kernel(code, APIC_BASE, 0x9000000000);
    check_event(VECTOR, 0, rip, "%s", name);
}

static void windows(void)
{
    hooks[VECTOR] = acknowledge_and_stop;
    window(sti_nop, (word)sti_nop_after + 1, "sti holds interrupts off for one instruction");
    window(sti_twice, (word)sti_twice_after + 1, "a second sti holds nothing off");
    window(sti_halt, (word)sti_halt_after + 1, "sti; hlt wakes at once");
    window(popf_sets, (word)popf_sets_after, "popf that sets IF holds nothing off");
    window(iret_sets, (word)iret_sets_at, "iret that sets IF holds nothing off");
    run_kernel(call_after_sti, APIC_BASE, 0);
    check_event(VECTOR, 0, (word)call_after_sti_after + 5,
                "sti; call is interrupted at the target");
    window(string_after_sti, (word)string_after_sti_after + 2, "sti; rep lodsb");
    window(lower_cr8, (word)lower_cr8_after, "mov to CR8 opens the window");
    run_kernel(sti_cli, APIC_BASE, 0);
    check_event(DONE, 0, (word)sti_cli_after + 2, "sti; cli has no window");
    check(apic_highest(APIC_IRR), VECTOR, "it is still pending");
    struct event start = kernel_state(nothing);
    start.rflags |= F_IF;
    run(&start);
    check_event(VECTOR, 0, (word)nothing, "and taken as soon as iret sets IF");
    run_kernel(sti_fault, APIC_BASE, 0x9000000000);
    check_event(PF, 0, (word)sti_fault_after, "a fault in the shadow of sti comes first");
    check(last.rflags & F_IF, F_IF, "with IF set");
    start = user_state(nothing);
    start.rflags |= F_IF;
    run(&start);
    check_event(VECTOR, 0, USER(nothing), "taken in ring 3");
    check(last.cs, USER_CS64, "taken in ring 3: CS");
    check(last_frame + 22 * 8, tss.rsp[0], "taken in ring 3: stack");
    start = user_state(nothing);
    start.rflags &= ~F_IF;
    apic_write(APIC_ICR, ICR_SELF | VECTOR);
    run(&start);
    check_event(DONE, 0, USER(nothing_after) + 2, "IF clear holds off in ring 3");
    start = kernel_state(nothing);
    start.rflags |= F_IF;
    run(&start);
    check(last.vector, VECTOR, "taken later");
}

/* Ticks until a timer fires that must not fire before the processor waits, on a busy host. */
#define SOON 20000000

/* The same before it is in ring 3, where a process of the host's may have to be started for it. */
#define LATER 200000000

/* A timer that fires while the processor waits or runs. */
static void waiting(void)
{
    struct event start = kernel_state(wait_here);
    start.rflags |= F_IF;
    apic_timer(VECTOR, 0, 100000);
    run(&start);
    check(last.vector, VECTOR, "a timer ends a loop");
    start = kernel_state(halt_here);
    start.rflags |= F_IF;
    apic_timer(VECTOR, 0, SOON);
    run(&start);
    check_event(VECTOR, 0, (word)halt_here_after, "a timer ends hlt");
    apic_timer(VECTOR, 0, SOON);
    run_kernel(sti_halt_only, 0, 0);
    check_event(VECTOR, 0, (word)sti_halt_only_after + 1, "a timer ends sti; hlt");
    start = user_state(user_loop);
    start.rflags |= F_IF;
    apic_timer(VECTOR, 0, LATER);
    run(&start);
    check_event(VECTOR, 0, USER(user_loop_at), "a timer ends a loop in ring 3");
    apic_timer_off();
}

static unsigned order[16], order_count;

static bool note_order(struct event *event)
{
    order[order_count++ & 15] = event->vector;
    apic_eoi();
    return true;
}

/* Opens interrupts within the handler; what is lower or equal must wait for the EOI. */
static bool note_nested(struct event *event)
{
    order[order_count++ & 15] = event->vector;
    if (event->vector == 0x60) {
        apic_write(APIC_ICR, ICR_SELF | 0x61);
        apic_write(APIC_ICR, ICR_SELF | 0x50);
        apic_write(APIC_ICR, ICR_SELF | 0x70);
        asm volatile("sti; nop; nop; cli" ::: "memory");
        order[order_count++ & 15] = 1;
    }
    apic_eoi();
    return true;
}

static void priorities(void)
{
    static const unsigned vectors[] = {0x45, 0x91, 0x33, 0x92, 0xe1, 0x60};
    static const unsigned expected[] = {0xe1, 0x92, 0x91, 0x60, 0x45, 0x33};
    order_count = 0;
    for (unsigned i = 0; i < 6; i++) {
        hooks[vectors[i]] = note_order;
        apic_write(APIC_ICR, ICR_SELF | vectors[i]);
    }
    check(apic_highest(APIC_IRR), 0xe1, "IRR holds the highest");
    struct event start = kernel_state(nothing);
    start.rflags |= F_IF;
    run(&start);
    check(order_count, 6, "all are taken");
    for (unsigned i = 0; i < 6; i++)
        check(order[i], expected[i], "order of priority, place %d", i);
    check(apic_highest(APIC_IRR) | apic_highest(APIC_ISR), 0, "IRR and ISR are empty");

    hooks[0x50] = hooks[0x60] = hooks[0x61] = hooks[0x70] = note_nested;
    order_count = 0;
    apic_write(APIC_ICR, ICR_SELF | 0x60);
    run(&start);
    static const unsigned nested[] = {0x60, 0x70, 1, 0x61, 0x50};
    check(order_count, 5, "nested: all are taken");
    for (unsigned i = 0; i < 5; i++)
        check(order[i], nested[i], "nested: place %d", i);

    hooks[0x50] = hooks[0x70] = note_order;
    order_count = 0;
    apic_write(APIC_TPR, 0x60);
    apic_write(APIC_ICR, ICR_SELF | 0x50);
    apic_write(APIC_ICR, ICR_SELF | 0x70);
    run(&start);
    check(order_count, 1, "TPR holds off what is not above it");
    check(order[0], 0x70, "TPR lets through what is");
    check(apic_read(APIC_PPR), 0x60, "PPR is at least TPR");
    u64 cr8;
    asm volatile("mov %%cr8, %0" : "=r"(cr8));
    check(cr8, 6, "CR8 is the upper half of TPR");
    asm volatile("mov %0, %%cr8" ::"r"(2ul));
    check(apic_read(APIC_TPR), 0x20, "CR8 writes TPR");
    run(&start);
    check(order_count, 2, "lowering it lets the other through");
    apic_write(APIC_TPR, 0);
    hooks[0x50] = 0;
}

static unsigned nmi_depth, nmi_deepest, nmi_seen, inner_breakpoints;

static bool nested_nmi(struct event *event)
{
    (void)event;
    nmi_depth++;
    nmi_seen++;
    if (nmi_depth > nmi_deepest)
        nmi_deepest = nmi_depth;
    if (nmi_seen == 1) {
        apic_write(APIC_ICR, ICR_SELF | ICR_NMI);
        for (volatile unsigned i = 0; i < 1000; i++)
            ;
    }
    nmi_depth--;
    return true;
}

static bool count_breakpoint(struct event *event)
{
    (void)event;
    inner_breakpoints++;
    return true;
}

/* The iret of an exception within the NMI handler unblocks NMIs. */
static bool nmi_with_breakpoint(struct event *event)
{
    (void)event;
    nmi_depth++;
    nmi_seen++;
    if (nmi_depth > nmi_deepest)
        nmi_deepest = nmi_depth;
    if (nmi_seen == 1) {
        apic_write(APIC_ICR, ICR_SELF | ICR_NMI);
        for (volatile unsigned i = 0; i < 1000; i++)
            ;
        asm volatile("int3; nop; nop");
        for (volatile unsigned i = 0; i < 1000; i++)
            ;
    }
    nmi_depth--;
    return true;
}

static void nmis(void)
{
    hooks[NMI] = 0;
    run_kernel(send_nmi, APIC_BASE, 0);
    check(last.vector, NMI, "NMI with IF clear");
    check(last.rip > (word)send_nmi_at && last.rip <= (word)send_nmi_after, 1,
          "NMI soon after it is sent");
    hooks[NMI] = nested_nmi;
    run_kernel(send_nmi, APIC_BASE, 0);
    check_done("NMIs return");
    check(nmi_seen, 2, "an NMI within an NMI is not lost");
    check(nmi_deepest, 1, "and waits for iret");
    hooks[NMI] = nmi_with_breakpoint;
    hooks[BP] = count_breakpoint;
    nmi_seen = nmi_depth = nmi_deepest = 0;
    run_kernel(send_nmi, APIC_BASE, 0);
    check_done("NMI with a breakpoint within");
    check(inner_breakpoints, 1, "the breakpoint is taken");
    check(nmi_seen, 2, "both NMIs are taken");
    check(nmi_deepest, 2, "the iret of the breakpoint unblocks NMIs");
    hooks[BP] = 0;
    hooks[NMI] = 0;
    for (unsigned i = 0; i < 3; i++) {
        run_kernel(send_nmi, APIC_BASE, 0);
        check(last.vector, NMI, "NMIs are not blocked for good, round %d", i);
    }
}

int main(void)
{
    apic_enable();
    windows();
    waiting();
    priorities();
    nmis();
    return 0;
}
