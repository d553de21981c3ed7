/* The stack that an event gets: none, RSP0 or one of the seven interrupt stacks; its alignment, what
 * SS is then, events within events on the same and on other stacks, and stacks that the TSS does
 * not have (SDM 3A 6.14.2, 6.14.4, 6.14.5). */
#include "harness.h"

SNIPPET(call_0, "nop", "int $0x50", "nop");
SNIPPET(call_1, "nop", "int $0x51", "nop");
SNIPPET(load, "nop", "mov (%rdi), %rax", "nop");

#define FRAME_BYTES sizeof(struct event)
#define DEPTH 7

static word seen_frame[16], seen_ss, seen_rflags, seen_cs;
static unsigned seen;

static void look(struct event *event)
{
    if (seen < 16)
        seen_frame[seen++] = (word)event + FRAME_BYTES;
    asm volatile("mov %%ss, %0; mov %%cs, %1; pushf; pop %2"
                 : "=r"(seen_ss), "=r"(seen_cs), "=r"(seen_rflags));
}

static bool look_and_resume(struct event *event)
{
    look(event);
    return true;
}

static void gate(unsigned vector, unsigned kind, unsigned ist)
{
    set_gate(vector, (word)vector_stubs + 16 * vector, KERNEL_CS, kind | GATE_DPL3, ist);
}

static void one(bool user, unsigned ist, word misaligned)
{
    struct event start = user ? user_state(call_0) : kernel_state(call_0);
    word expected = ist ? tss.ist[ist - 1] : user ? tss.rsp[0] : start.rsp - misaligned;
    gate(0x50, GATE_INTERRUPT, ist);
    start.rsp -= misaligned;
    start.rflags |= F_CF | F_AC | F_IOPL;
    seen = 0;
    run(&start);
    check_done("stack %d, off by %d, user %d", ist, (unsigned)misaligned, user);
    check(seen_frame[0], expected & ~15ul, "stack %d, off by %d, user %d: frame", ist,
          (unsigned)misaligned, user);
    check(seen_ss, user ? 0 : KERNEL_DS, "stack %d, off by %d, user %d: SS", ist,
          (unsigned)misaligned, user);
    check(seen_cs, KERNEL_CS, "stack %d, off by %d, user %d: CS", ist, (unsigned)misaligned, user);
    check(seen_rflags & F_AC, F_AC, "stack %d, off by %d, user %d: AC stays", ist,
          (unsigned)misaligned, user);
    check(last.rsp, start.rsp, "stack %d, off by %d, user %d: RSP returns", ist,
          (unsigned)misaligned, user);
}

static void every_stack(void)
{
    hooks[0x50] = look_and_resume;
    begin_group();
    for (unsigned user = 0; user < 2; user++) {
        for (unsigned ist = 0; ist <= 7; ist++) {
            for (word misaligned = 0; misaligned < 16; misaligned += 5)
                one(user, ist, misaligned);
        }
    }
    end_group("every stack, from both rings, at four alignments");
    tss.rsp[0] -= 3;
    for (unsigned i = 0; i < 7; i++)
        tss.ist[i] -= i + 1;
    begin_group();
    for (unsigned user = 0; user < 2; user++) {
        for (unsigned ist = 0; ist <= 7; ist++)
            one(user, ist, 8);
    }
    end_group("stacks that are not aligned themselves");
    tss.rsp[0] += 3;
    for (unsigned i = 0; i < 7; i++)
        tss.ist[i] += i + 1;
}

static unsigned depth;

/* `int` of a vector known at run time. */
static void raise(unsigned vector)
{
    switch (vector) {
    case 0x51: asm volatile("int $0x51" ::: "memory"); break;
    case 0x52: asm volatile("int $0x52" ::: "memory"); break;
    case 0x53: asm volatile("int $0x53" ::: "memory"); break;
    case 0x54: asm volatile("int $0x54" ::: "memory"); break;
    case 0x55: asm volatile("int $0x55" ::: "memory"); break;
    case 0x56: asm volatile("int $0x56" ::: "memory"); break;
    case 0x57: asm volatile("int $0x57" ::: "memory"); break;
    }
}

static bool descend(struct event *event)
{
    look(event);
    if (++depth < DEPTH)
        raise(event->vector + 1);
    depth--;
    return true;
}

/* Each handler raises the next event, on the next interrupt stack; all of them return. */
static void across(void)
{
    for (unsigned i = 0; i < DEPTH; i++) {
        gate(0x51 + i, i & 1 ? GATE_TRAP : GATE_INTERRUPT, i + 1);
        hooks[0x51 + i] = descend;
    }
    for (unsigned user = 0; user < 2; user++) {
        struct event start = user ? user_state(call_1) : kernel_state(call_1);
        start.rbx = 0x1122334455667788, start.r15 = ~0x1122334455667788ul;
        seen = depth = 0;
        run(&start);
        check_done("seven stacks deep, user %d", user);
        check(seen, DEPTH, "seven stacks deep: events, user %d", user);
        begin_group();
        for (unsigned i = 0; i < DEPTH; i++)
            check(seen_frame[i], tss.ist[i], "frame %d, user %d", i, user);
        end_group("seven stacks deep: frames");
        check(last.rbx ^ last.r15, ~0ul, "seven stacks deep: registers, user %d", user);
        check(last.rsp, start.rsp, "seven stacks deep: RSP, user %d", user);
    }
}

static word outer_rip;

/* The handler moves its own stack out of the way, as kernels do whose handlers may be entered again.
 */
static bool again(struct event *event)
{
    look(event);
    if (seen > 3)
        return true;
    tss.ist[2] -= 1024;
    raise(0x51);
    tss.ist[2] += 1024;
    return true;
}

/* The handler does not, and its own frame is overwritten. */
static bool overwrite(struct event *event)
{
    look(event);
    if (seen > 1)
        return false;
    outer_rip = event->rip;
    raise(0x51);
    return true;
}

static void on_one_stack(void)
{
    gate(0x51, GATE_INTERRUPT, 3);
    hooks[0x51] = again;
    seen = 0;
    run_user(call_1, 0, 0);
    check_done("one stack, moved by its handler");
    check(seen, 4, "one stack, moved by its handler: events");
    check(seen_frame[0], tss.ist[2], "one stack, moved by its handler: first frame");
    check(seen_frame[3], tss.ist[2] - 3072, "one stack, moved by its handler: last frame");
    hooks[0x51] = overwrite;
    seen = 0;
    run_user(call_1, 0, 0);
    check(last.vector, 0x51, "one stack, entered again: the second event");
    check(last.cs, KERNEL_CS, "one stack, entered again: from the handler");
    check(seen_frame[1], seen_frame[0], "one stack, entered again: the same place");
    check(outer_rip, USER(call_1_after), "one stack, entered again: the first event");
    gate(0x51, GATE_INTERRUPT, 0);
    hooks[0x51] = again;
    seen = 0;
    run_user(call_1, 0, 0);
    check_done("no stack of its own, entered again");
    check(seen_frame[0], tss.rsp[0], "no stack of its own: RSP0 at first");
    check(seen_frame[3] < seen_frame[2] && seen_frame[2] < seen_frame[1], true,
          "no stack of its own: then further down");
}

static bool touch(struct event *event)
{
    look(event);
    asm volatile("mov 0x7f00000000, %%eax" ::: "eax", "memory");
    return true;
}

static bool mend(struct event *event)
{
    look(event);
    event->rdi = event->rsp;
    return true;
}

/* A page fault on its own stack within a handler on another. */
static void fault_within(void)
{
    gate(PF, GATE_INTERRUPT, 5);
    hooks[PF] = mend;
    seen = 0;
    run_kernel(load, 0x7f00000000, 0);
    check_done("a page fault that is mended on its own stack");
    check(seen_frame[0], tss.ist[4], "a page fault that is mended: frame");
    gate(0x51, GATE_INTERRUPT, 6);
    hooks[0x51] = touch;
    hooks[PF] = NULL;
    seen = 0;
    run_user(call_1, 0, 0);
    check(last.vector, PF, "a page fault within a handler");
    check(last.cs, KERNEL_CS, "a page fault within a handler: CS");
    check(last.error, 0, "a page fault within a handler: error code");
    check(last_frame + FRAME_BYTES, tss.ist[4], "a page fault within a handler: frame");
    check(last.rsp < tss.ist[5] && last.rsp > tss.ist[5] - 4096, true,
          "a page fault within a handler: RSP");
}

/* A TSS that ends before the stack that is wanted: #TS with its selector, and nothing is changed. */
static void short_tss(void)
{
    gate(0x50, GATE_INTERRUPT, 7);
    gate(TS, GATE_INTERRUPT, 1);
    hooks[0x50] = NULL;
    gdt[TSS_SELECTOR / 8] = descriptor((word)&tss, 0x5a, 0x89);
    asm volatile("ltr %w0" ::"r"(TSS_SELECTOR));
    for (unsigned user = 0; user < 2; user++) {
        user ? run_user(call_0, 0, 0) : run_kernel(call_0, 0, 0);
        check_event(TS, TSS_SELECTOR, user ? USER(call_0_at) : (word)call_0_at,
                    "stack beyond the TSS, user %d", user);
    }
    gdt[TSS_SELECTOR / 8] = descriptor((word)&tss, 0x5b, 0x89);
    asm volatile("ltr %w0" ::"r"(TSS_SELECTOR));
    run_user(call_0, 0, 0);
    check_event(0x50, 0, USER(call_0_after), "the last stack at the end of the TSS");
    check(last_frame + FRAME_BYTES, tss.ist[6], "the last stack: frame");
}

int main(void)
{
    gate(DONE, GATE_INTERRUPT, 0);
    every_stack();
    across();
    on_one_stack();
    fault_within();
    short_tss();
    return 0;
}
