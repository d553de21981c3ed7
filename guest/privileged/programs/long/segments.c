/* Loads of segment, table and task registers in 64-bit mode, and the instructions that look at
 * descriptors (SDM 3A 3.4, 3.5, 5.4 to 5.10, 7.2; SDM 2A and 2B under each instruction). */
#include "harness.h"

SNIPPET(load_ds, "nop", "mov %edi, %ds", "mov %ds, %eax");
SNIPPET(load_es, "nop", "mov %edi, %es", "mov %es, %eax");
SNIPPET(load_fs, "nop", "mov %edi, %fs", "mov %fs, %eax");
SNIPPET(load_gs, "nop", "mov %edi, %gs", "mov %gs, %eax");
SNIPPET(load_ss, "nop", "mov %edi, %ss", "mov %ss, %eax");
SNIPPET(load_cs, "nop", ".byte 0x8e, 0xcf", "");
SNIPPET(pop_fs, "push %rdi", "popq %fs", "mov %fs, %eax");
SNIPPET(load_far, "nop", "lss (%rdi), %eax", "mov %ss, %ebx");
SNIPPET(load_ldt, "nop", "lldt %di", "sldt %eax");
SNIPPET(load_task, "nop", "ltr %di", "str %eax");
SNIPPET(access_rights, "mov $0x1234, %eax", "lar %edi, %eax", "pushfq; pop %rbx");
SNIPPET(segment_limit, "mov $0x1234, %eax", "lsl %edi, %eax", "pushfq; pop %rbx");
SNIPPET(verify_read, "nop", "verr %di", "pushfq; pop %rbx");
SNIPPET(verify_write, "nop", "verw %di", "pushfq; pop %rbx");
SNIPPET(store_gdt, "nop", "sgdt (%rdi)", "");
SNIPPET(store_idt, "nop", "sidt (%rdi)", "");
SNIPPET(store_ldt, "nop", "sldt %eax", "");
SNIPPET(store_task, "nop", "str %eax", "");
SNIPPET(store_word, "nop", "smsw %rax", "");
SNIPPET(load_gdt, "nop", "lgdt (%rdi)", "");
SNIPPET(load_fs_value, "mov %edi, %fs", "mov %fs:(%rsi), %rax", "");
SNIPPET(adjust, "nop", ".byte 0x63, 0xc7", "");

SNIPPET(null_over_return, "mov %edi, %ds; mov %edi, %es; mov %edi, %fs; mov %edi, %gs; int3",
        "mov %ds, %eax; mov %es, %ecx; mov %fs, %edx; mov %gs, %ebx", "");

SNIPPET(read_selectors, "nop", "mov %fs, %eax; mov %gs, %ecx", "");
SNIPPET(return_far_out, "push %rcx; push %rsi; push %rdx; push %rdi", "lretq", "");
SNIPPET32(load_through_gs, "nop", "mov %gs:0, %eax", "");

#define S FREE_SELECTOR
static bool user;

#define SOME_FS_BASE 0x123456000
#define SOME_GS_BASE (HIGH_ALIAS + 0x1234)

static void check_bases(const struct event *start, const char *how)
{
    asm volatile("mov %0, %%fs; mov %0, %%gs" ::"r"(KERNEL_DS));
    wrmsr(MSR_FS_BASE, SOME_FS_BASE);
    wrmsr(MSR_GS_BASE, SOME_GS_BASE);
    run(start);
    check_done("%s with segments of DPL 0", how);
    check(last.cs, USER_CS64, "%s with segments of DPL 0: CS", how);
    check(last.rax | last.rcx, 0, "%s with segments of DPL 0: selectors", how);
    check(rdmsr(MSR_FS_BASE), SOME_FS_BASE, "%s with segments of DPL 0: FS base", how);
    check(rdmsr(MSR_GS_BASE), SOME_GS_BASE, "%s with segments of DPL 0: GS base", how);
}

/* A return to an outer level takes the selectors of segments that may not be used there, but loads
 * nothing: the bases stay (SDM 2A, IRET; SDM 2B, RET). */
static void bases_over_return(void)
{
    struct event start = user_state(read_selectors);
    check_bases(&start, "iretq");
    start = kernel_state(return_far_out);
    start.rdi = USER(read_selectors);
    start.rdx = USER_CS64;
    start.rsi = user_state(0).rsp;
    start.rcx = USER_DS;
    check_bases(&start, "lretq");
    asm volatile("mov %0, %%fs; mov %0, %%gs" ::"r"(KERNEL_DS));
    run_compat(load_through_gs, 0, 0);
    check_event(GP, 0, USER(load_through_gs_at), "a segment of DPL 0 after a return to 32 bits");
    asm volatile("mov %0, %%fs; mov %0, %%gs" ::"r"(0));
}

/* An `iret` to an outer level clears what null selectors have of an RPL. */
static void null_selectors(void)
{
    hooks[BP] = log_and_resume;
    for (unsigned rpl = 0; rpl < 4; rpl++) {
        run_user(null_over_return, rpl, 0);
        check_done("null selectors with RPL %d and an interrupt", rpl);
        check(last.rax | last.rcx | last.rdx | last.rbx, 0, "null selectors with RPL %d", rpl);
    }
    hooks[BP] = NULL;
}

static void set(unsigned attributes) { gdt[S / 8] = descriptor(0, 0xfffff, attributes); }

static void load_case(const void *code, const void *at, unsigned selector, int vector,
                      unsigned error, const char *name)
{
    user ? run_user(code, selector, 0) : run_kernel(code, selector, 0);
    if (vector == DONE) {
        check_done("%s, user %d", name, user);
        check(last.rax & 0xffff, selector, "selector: %s, user %d", name, user);
    } else {
        check_event(vector, error, user ? USER(at) : (word)at, "%s, user %d", name, user);
    }
}

#define LOAD(register, selector, vector, error, name) \
    load_case(load_##register, load_##register##_at, selector, vector, error, #register ": " name)

static void data_segments(void)
{
    unsigned rpl = user ? 3 : 0;
    LOAD(ds, 0, DONE, 0, "null");
    LOAD(ds, 3, DONE, 0, "null with RPL 3");
    LOAD(es, USER_DS, DONE, 0, "user data");
    LOAD(gs, USER_CS64, DONE, 0, "readable code");
    LOAD(fs, KERNEL_DS, user ? GP : DONE, KERNEL_DS, "kernel data");
    LOAD(ds, KERNEL_DS | 3, GP, KERNEL_DS, "kernel data with RPL 3");
    LOAD(ds, 0xfff8 | rpl, GP, 0xfff8, "beyond the GDT");
    LOAD(ds, S + 4 + rpl, GP, S + 4, "in no LDT");
    LOAD(ds, TSS_SELECTOR | rpl, GP, TSS_SELECTOR, "TSS");
    set(0xc073);
    LOAD(es, S | rpl, NP, S, "not present");
    set(0xa0f9);
    LOAD(es, S | rpl, GP, S, "code that cannot be read");
    set(0xa09f);
    LOAD(es, S | 3, DONE, 0, "conforming code of DPL 0 with RPL 3");
    set(0xc0f1);
    LOAD(es, S | rpl, DONE, 0, "read-only data");
    set(0xc0f2);
    LOAD(es, S | rpl, DONE, 0, "data not yet accessed");
    check(gdt[S / 8] >> 40 & 1, 1, "the load sets accessed, user %d", user);
    set(0xc072);
    LOAD(es, S | rpl, NP, S, "data not accessed, not present");
    check(gdt[S / 8] >> 40 & 1, 0, "a load that faults leaves accessed clear, user %d", user);
    LOAD(cs, USER_CS64, UD, 0, "mov to CS");
    user ? run_user(pop_fs, USER_DS, 0) : run_kernel(pop_fs, USER_DS, 0);
    check(last.rax, USER_DS, "pop fs, user %d", user);
    check(last.rsp, (user ? user_state(0) : kernel_state(0)).rsp, "pop fs: RSP, user %d", user);
}

static void stack_segment(void)
{
    unsigned rpl = user ? 3 : 0;
    LOAD(ss, 0, user ? GP : DONE, 0, "null");
    LOAD(ss, 3, GP, 0, "null with RPL 3");
    LOAD(ss, KERNEL_DS, user ? GP : DONE, KERNEL_DS, "kernel data");
    LOAD(ss, USER_DS, user ? DONE : GP, USER_DS & ~3, "user data");
    LOAD(ss, USER_DS & ~3, GP, USER_DS & ~3, "user data with RPL 0");
    LOAD(ss, (USER_CS64 & ~3) | rpl, GP, USER_CS64 & ~3, "code");
    set(user ? 0xc0f1 : 0xc091);
    LOAD(ss, S | rpl, GP, S, "read-only");
    set(user ? 0xc073 : 0xc013);
    LOAD(ss, S | rpl, SS, S, "not present");
    LOAD(ss, 0xfff8 | rpl, GP, 0xfff8, "beyond the GDT");
    LOAD(ss, TSS_SELECTOR | rpl, GP, TSS_SELECTOR, "TSS");
}

static void look_case(const void *code, unsigned selector, bool good, u32 value, const char *name)
{
    user ? run_user(code, selector, 0) : run_kernel(code, selector, 0);
    check_done("%s, user %d", name, user);
    check(last.rbx & F_ZF, good ? F_ZF : 0, "ZF: %s, user %d", name, user);
    if (code == access_rights || code == segment_limit)
        /* lar leaves bits 19:16 undefined. */
        check(last.rax & (good && code == access_rights ? ~0xf0000u : ~0u), good ? value : 0x1234,
              "value: %s, user %d", name, user);
}

static void look(void)
{
    look_case(access_rights, 0, false, 0, "lar null");
    look_case(access_rights, USER_DS, true, 0xc0f300, "lar user data");
    look_case(access_rights, KERNEL_DS, !user, 0xc09300, "lar kernel data");
    look_case(access_rights, KERNEL_DS | 3, false, 0, "lar kernel data with RPL 3");
    look_case(access_rights, TSS_SELECTOR, !user, 0x008b00, "lar TSS");
    look_case(access_rights, 0xfff8, false, 0, "lar beyond the GDT");
    set(0xc073);
    look_case(access_rights, S | 3, true, 0xc07300, "lar not present");
    gdt[S / 8] = (u64)(GATE_CALL | GATE_DPL3) << 32;
    gdt[S / 8 + 1] = 0;
    look_case(access_rights, S | 3, true, 0x00ec00, "lar call gate");
    gdt[S / 8] = (u64)(GATE_INTERRUPT | GATE_DPL3) << 32;
    look_case(access_rights, S | 3, false, 0, "lar interrupt gate");
    look_case(segment_limit, 0, false, 0, "lsl null");
    look_case(segment_limit, USER_DS, true, 0xffffffff, "lsl of pages");
    gdt[S / 8] = descriptor(0, 0x12345, 0x40f3);
    look_case(segment_limit, S | 3, true, 0x12345, "lsl of bytes");
    look_case(segment_limit, TSS_SELECTOR, !user, 0x67, "lsl TSS");
    gdt[S / 8] = (u64)(GATE_CALL | GATE_DPL3) << 32;
    look_case(segment_limit, S | 3, false, 0, "lsl call gate");
    look_case(verify_read, USER_DS, true, 0, "verr user data");
    look_case(verify_read, KERNEL_DS, !user, 0, "verr kernel data");
    look_case(verify_read, 0, false, 0, "verr null");
    look_case(verify_read, USER_CS64, true, 0, "verr readable code");
    set(0xa0f9);
    look_case(verify_read, S | 3, false, 0, "verr code that cannot be read");
    set(0xa09f);
    look_case(verify_read, S | 3, true, 0, "verr conforming code");
    look_case(verify_read, TSS_SELECTOR, false, 0, "verr TSS");
    look_case(verify_write, USER_DS, true, 0, "verw user data");
    look_case(verify_write, USER_CS64, false, 0, "verw code");
    set(0xc0f1);
    look_case(verify_write, S | 3, false, 0, "verw read-only data");
    look_case(verify_write, KERNEL_DS | 3, false, 0, "verw kernel data with RPL 3");
}

static void local_table(void)
{
    static u64 ldt[4] __attribute__((aligned(16)));
    ldt[1] = descriptor(0, 0xfffff, 0xc0f2);
    gdt[LDT_SELECTOR / 8] = descriptor((word)ldt, sizeof(ldt) - 1, 0x82);
    gdt[LDT_SELECTOR / 8 + 1] = 0;
    load_case(load_ldt, load_ldt_at, LDT_SELECTOR, DONE, 0, "lldt");
    load_case(load_ds, load_ds_at, 8 + 4 + 3, DONE, 0, "ds from the LDT");
    check(ldt[1] >> 40 & 1, 1, "a load from the LDT sets accessed");
    load_case(load_ds, load_ds_at, 4, GP, 4, "entry 0 of the LDT is not null but empty");
    load_case(load_ds, load_ds_at, 0x24, GP, 0x24, "beyond the LDT");
    user = true;
    load_case(load_ds, load_ds_at, 8 + 4 + 3, DONE, 0, "ds from the LDT");
    load_case(load_ldt, load_ldt_at, LDT_SELECTOR, GP, 0, "lldt");
    user = false;
    load_case(load_ldt, load_ldt_at, TSS_SELECTOR, GP, TSS_SELECTOR, "lldt of a TSS");
    load_case(load_ldt, load_ldt_at, LDT_SELECTOR | 4, GP, LDT_SELECTOR | 4, "lldt from the LDT");
    load_case(load_ldt, load_ldt_at, 0xfff8, GP, 0xfff8, "lldt beyond the GDT");
    gdt[LDT_SELECTOR / 8] = descriptor((word)ldt, sizeof(ldt) - 1, 0x02);
    load_case(load_ldt, load_ldt_at, LDT_SELECTOR, NP, LDT_SELECTOR, "lldt not present");
    load_case(load_ldt, load_ldt_at, 0, DONE, 0, "lldt null");
    load_case(load_ds, load_ds_at, 8 + 4 + 3, GP, 8 + 4, "ds from no LDT");
}

static void task_register(void)
{
    check(gdt[TSS_SELECTOR / 8] >> 40 & 0xff, 0x8b, "ltr marks the TSS busy");
    load_case(load_task, load_task_at, TSS_SELECTOR, GP, TSS_SELECTOR, "ltr of a busy TSS");
    gdt[S / 8] = descriptor((word)&tss, 0x67, 0x89);
    gdt[S / 8 + 1] = 0;
    load_case(load_task, load_task_at, S, DONE, 0, "ltr of another TSS");
    check(gdt[S / 8] >> 40 & 0xff, 0x8b, "ltr of another TSS marks it busy");
    check(gdt[TSS_SELECTOR / 8] >> 40 & 0xff, 0x8b, "ltr leaves the old TSS busy");
    gdt[S / 8] = descriptor((word)&tss, 0x67, 0x09);
    load_case(load_task, load_task_at, S, NP, S, "ltr not present");
    load_case(load_task, load_task_at, KERNEL_DS, GP, KERNEL_DS, "ltr of data");
    load_case(load_task, load_task_at, 0xfff8, GP, 0xfff8, "ltr beyond the GDT");
    load_case(load_task, load_task_at, S | 4, GP, S | 4, "ltr from the LDT");
    gdt[TSS_SELECTOR / 8] = descriptor((word)&tss, 0x67, 0x89);
    load_case(load_task, load_task_at, TSS_SELECTOR, DONE, 0, "ltr of the first TSS");
    user = true;
    load_case(load_task, load_task_at, TSS_SELECTOR, GP, 0, "ltr");
    user = false;
}

static void wide_descriptor(unsigned selector, word base, unsigned attributes)
{
    gdt[selector / 8] = descriptor(base, 0xfff, attributes);
    gdt[selector / 8 + 1] = base >> 32;
}

/* The 64-bit bases of LDT and TSS must be canonical (SDM 3A 3.5.2; APM 2 4.8.3). */
static void wide_bases(void)
{
    static const word refused[] = {0xffaaaaaaaaaaaaaa, 0xaaaaaaaaaaaaaaaa, 1ul << 47};
    for (unsigned i = 0; i < 3; i++) {
        wide_descriptor(LDT_SELECTOR, refused[i], 0x82);
        run_kernel(load_ldt, LDT_SELECTOR, 0);
        check_event(GP, LDT_SELECTOR, (word)load_ldt_at, "lldt with base %x", refused[i]);
        run_kernel(store_ldt, 0, 0);
        check(last.rax, 0, "lldt with base %x leaves LDTR", refused[i]);
        wide_descriptor(S, refused[i], 0x89);
        run_kernel(load_task, S, 0);
        check_event(GP, S, (word)load_task_at, "ltr with base %x", refused[i]);
        run_kernel(store_task, 0, 0);
        check(last.rax, TSS_SELECTOR, "ltr with base %x leaves TR", refused[i]);
        check(gdt[S / 8] >> 40 & 0xff, 0x89, "ltr with base %x leaves the TSS free", refused[i]);
    }
    wide_descriptor(LDT_SELECTOR, 0xffffaaaaaaaaaaaa, 0x82);
    load_case(load_ldt, load_ldt_at, LDT_SELECTOR, DONE, 0, "lldt with a base in the upper half");
    load_case(load_ldt, load_ldt_at, 0, DONE, 0, "lldt null again");
    wide_descriptor(S, 0xffffaaaaaaaaaaaa, 0x89);
    load_case(load_task, load_task_at, S, DONE, 0, "ltr with a base in the upper half");
    gdt[TSS_SELECTOR / 8] = descriptor((word)&tss, 0x67, 0x89);
    load_case(load_task, load_task_at, TSS_SELECTOR, DONE, 0, "ltr of the first TSS again");
}

static void far_pointers(void)
{
    static struct {
        u32 offset;
        u16 selector;
    } __attribute__((packed)) pointer = {0x87654321, KERNEL_DS};
    run_kernel(load_far, (word)&pointer, 0);
    check_done("lss");
    check(last.rax, 0x87654321, "lss: offset");
    check(last.rbx, KERNEL_DS, "lss: selector");
    pointer.selector = USER_DS;
    run_kernel(load_far, (word)&pointer, 0);
    check_event(GP, USER_DS & ~3, (word)load_far_at, "lss of user data");
    check(last.rax, 0, "lss that faults leaves the register");
}

struct table_register {
    u16 limit;
    u64 base;
} __attribute__((packed));

/* UMIP takes sgdt, sidt, sldt, smsw and str from ring 3 (SDM 3A 2.5). */
static void tables(void)
{
    static struct table_register stored;
    static const void *const code[] = {store_gdt, store_idt, store_ldt, store_task, store_word};
    static const void *const at[] = {store_gdt_at, store_idt_at, store_ldt_at, store_task_at,
                                     store_word_at};
    static const char *const names[] = {"sgdt", "sidt", "sldt", "str", "smsw"};
    for (unsigned umip = 0; umip <= has_umip(); umip++) {
        if (umip)
            write_cr4(read_cr4() | CR4_UMIP);
        for (unsigned i = 0; i < 5; i++) {
            run_kernel(code[i], (word)&stored, 0);
            check_done("%s in ring 0, UMIP %d", names[i], umip);
            run_user(code[i], USER(&stored), 0);
            if (umip)
                check_event(GP, 0, USER(at[i]), "%s in ring 3, UMIP", names[i]);
            else
                check_done("%s in ring 3", names[i]);
        }
    }
    if (has_umip())
        write_cr4(read_cr4() & ~CR4_UMIP);
    else
        skip("UMIP", "not announced");
    run_kernel(store_gdt, (word)&stored, 0);
    check(stored.base, (word)gdt, "sgdt: base");
    check(stored.limit, sizeof(gdt) - 1, "sgdt: limit");
    run_kernel(store_task, 0, 0);
    check(last.rax, TSS_SELECTOR, "str");
    run_kernel(store_word, 0, 0);
    check(last.rax, read_cr0(), "smsw of 64 bits is all of CR0");
    if (is_tcg()) {
        skip("lgdt of a non-canonical base", "TCG takes it, and nothing works after that");
        return;
    }
    struct table_register bad = stored;
    bad.base = 0x800000000000;
    run_kernel(load_gdt, (word)&bad, 0);
    check_event(GP, 0, (word)load_gdt_at, "lgdt of a non-canonical base");
}

static void no_segmentation(void)
{
    static u64 value = 0x77;
    gdt[S / 8] = descriptor(0, 0, 0x40f1);
    user = false;
    run_kernel(load_fs_value, S, (word)&value);
    check(last.rax, 0x77, "FS has no limit in 64-bit mode");
    struct event start = user_state(adjust);
    start.rdi = 0x80000000;
    run(&start);
    check_done("63 is movsxd, not arpl");
    asm volatile("mov %0, %%fs" ::"r"(0));
}

int main(void)
{
    null_selectors();
    bases_over_return();
    for (unsigned i = 0; i < 2; i++) {
        user = i;
        data_segments();
        stack_segment();
        look();
    }
    user = false;
    local_table();
    task_register();
    wide_bases();
    far_pointers();
    tables();
    no_segmentation();
    return 0;
}
