/* An instruction that faults has not happened: every register and flag is as before, RSP included,
 * and memory too, whatever the instruction does before it touches the page that is not there
 * (SDM 3A 6.5). */
#include "paging.h"

/* Each: the instruction on (%rdi), and whether it writes there only, for the page that is
 * read-only. */
#define INSTRUCTIONS(X)                                                                                               \
    X(load_8, "movb (%rdi), %al")                                                                                     \
    X(load_16, "movw (%rdi), %ax") X(load_32, "movl (%rdi), %eax") X(                                                 \
        load_64,                                                                                                      \
        "movq (%rdi), %rax") X(zero_extend,                                                                           \
                               "movzbl (%rdi), %eax") X(sign_extend,                                                  \
                                                        "movslq (%rdi), %rax") X(store_8,                             \
                                                                                 "movb %al, (%rdi)")                  \
        X(store_64, "movq %rax, (%rdi)") X(store_constant, "movl $5, (%rdi)") X(                                      \
            add_load,                                                                                                 \
            "add (%rdi), %rax") X(add_store,                                                                          \
                                  "add %rax, (%rdi)") X(adc_store,                                                    \
                                                        "adc %rax, (%rdi)") X(sbb_load,                               \
                                                                              "sbb (%rdi), %rax")                     \
            X(compare, "cmp %rax, (%rdi)") X(test_memory, "test %rax, (%rdi)") X(                                     \
                increment, "incl (%rdi)") X(negate,                                                                   \
                                            "negq (%rdi)") X(complement,                                              \
                                                             "notb (%rdi)") X(shift,                                  \
                                                                              "shlq $3, (%rdi)")                      \
                X(rotate, "rclq $3, (%rdi)") X(double_shift, "shldq $3, %rax, (%rdi)") X(                             \
                    exchange,                                                                                         \
                    "xchg %rax, (%rdi)") X(exchange_add,                                                              \
                                           "lock xadd %rax, (%rdi)") X(compare_exchange,                              \
                                                                       "lock cmpxchg %rbx, (%rdi)")                   \
                    X(compare_exchange_8, "lock cmpxchg8b (%rdi)") X(                                                 \
                        lock_or,                                                                                      \
                        "lock orl $1, (%rdi)") X(bit_test,                                                            \
                                                 "bt %eax, (%rdi)") X(bit_set,                                        \
                                                                      "lock btsl $3, (%rdi)")                          \
                        X(bit_scan, "bsf (%rdi), %rax") X(count_bits, "popcnt (%rdi), %rax") X(                       \
                            multiply,                                                                                 \
                            "mulq (%rdi)") X(multiply_signed,                                                         \
                                             "imul (%rdi), %rax") X(multiply_3,                                       \
                                                                    "imul $7, (%rdi), %rax")                          \
                            X(divide, "divq (%rdi)") X(set_byte, "setc (%rdi)") X(                                    \
                                move_if,                                                                              \
                                "cmovc (%rdi), %rax") X(move_if_not,                                                  \
                                                        "cmovnc (%rdi), %rax") X(swap_bytes,                          \
                                                                                 "movbe (%rdi), %rax")                \
                                X(checksum, "crc32q (%rdi), %rax") X(                                                 \
                                    push_memory,                                                                      \
                                    "pushq (%rdi)") X(pop_memory, "popq (%rdi)") X(call_memory,                       \
                                                                                   "call *(%rdi)")                    \
                                    X(jump_memory, "jmp *(%rdi)") X(far_call, "lcall *(%rdi)") X(                     \
                                        far_jump,                                                                     \
                                        "ljmp *(%rdi)") X(string_store,                                               \
                                                          "stosq") X(string_scan,                                     \
                                                                     "scasb") X(string_move_to,                       \
                                                                                "movsq")                              \
                                        X(string_compare, "cmpsb") X(string_in, "insb") X(                            \
                                            vector_load,                                                              \
                                            "movups (%rdi), %xmm1") X(vector_store,                                   \
                                                                      "movups %xmm1, (%rdi)")                         \
                                            X(vector_add, "paddd (%rdi), %xmm1") X(                                   \
                                                vector_convert,                                                       \
                                                "cvtsi2sdq (%rdi), %xmm1") X(vector_compare,                          \
                                                                             "ucomiss (%rdi), %xmm1")                 \
                                                X(vector_half, "movhps %xmm1, (%rdi)") X(                             \
                                                    nontemporal,                                                      \
                                                    "movnti %rax, (%rdi)") X(vector_strings,                          \
                                                                             "pcmpestri $0, (%rdi), %xmm1")           \
                                                    X(x87_load, "fldl (%rdi)") X(                                     \
                                                        x87_store,                                                    \
                                                        "fstpl (%rdi)") X(x87_integer, "fistpll (%rdi)")              \
                                                        X(x87_decimal, "fbstp (%rdi)") X(                             \
                                                            x87_add, "faddl (%rdi)") X(x87_control,                   \
                                                                                       "fldcw (%rdi)")                \
                                                            X(x87_environment, "fnstenv (%rdi)") X(                   \
                                                                x87_load_environment,                                 \
                                                                "fldenv (%rdi)") X(x87_save,                          \
                                                                                   "fnsave (%rdi)")                   \
                                                                X(x87_restore, "frstor (%rdi)") X(                    \
                                                                    save_all,                                         \
                                                                    "fxsave (%rdi)") X(restore_all,                   \
                                                                                       "fxrstor (%rdi)")              \
                                                                    X(load_control, "ldmxcsr (%rdi)") X(              \
                                                                        store_control,                                \
                                                                        "stmxcsr (%rdi)") X(store_gdt, "sgdt (%rdi)") \
                                                                        X(load_gdt, "lgdt (%rdi)") X(                 \
                                                                            load_idt_memory,                          \
                                                                            "lidt (%rdi)") X(store_ldt,               \
                                                                                             "sldt (%rdi)")           \
                                                                            X(store_task, "str (%rdi)") X(            \
                                                                                store_word,                           \
                                                                                "smsw (%rdi)") X(load_word,           \
                                                                                                 "lmsw (%rdi)")       \
                                                                                X(load_ldt, "lldt (%rdi)") X(         \
                                                                                    load_task,                        \
                                                                                    "ltr (%rdi)")                     \
                                                                                    X(verify, "verr (%rdi)") X(       \
                                                                                        rights,                       \
                                                                                        "lar (%rdi), %eax")           \
                                                                                        X(load_es,                    \
                                                                                          "movw (%rdi), %es")         \
                                                                                            X(store_ss,               \
                                                                                              "movw %ss, (%rdi)")     \
                                                                                                X(load_far,           \
                                                                                                  "lss (%rdi), %eax")

#define DEFINE(name, code) SNIPPET(name, "nop", code, "");
INSTRUCTIONS(DEFINE)

/* The same with the page at RSP. */
#define STACK_INSTRUCTIONS(X)                                                                      \
    X(push_register, "push %rax")                                                                  \
    X(push_constant, "push $5") X(push_16, "pushw %ax") X(pop_register, "pop %rax")                \
        X(pop_16, "popw %ax") X(pop_rsp, "pop %rsp") X(push_flags, "pushfq") X(pop_flags, "popfq") \
            X(call_near, "call . + 5") X(return_near, "ret") X(return_drop, "ret $8")              \
                X(return_far, "lretq") X(return_iret, "iretq") X(call_register, "call *%rax")      \
                    X(push_fs, "push %fs") X(pop_fs, "pop %fs") X(enter_plain, "enter $16, $0")    \
                        X(enter_display, "enter $16, $1") X(far_call_stack, "lcall *(%rsi)")       \
                            X(push_from, "pushq (%rsi)") X(pop_to, "popq (%rsi)")
STACK_INSTRUCTIONS(DEFINE)
SNIPPET(leave_frame, "nop", "leave", "");
SNIPPET(enter_from_frame, "nop", "enter $16, $2", "");
SNIPPET(string_load, "nop", "lodsq", "");
SNIPPET(string_move_from, "nop", "movsq", "");
SNIPPET(string_out, "nop", "outsb", "");
SNIPPET(translate, "nop", "xlat", "");

struct instruction {
    const char *name;
    char *code, *at;
};
#define ROW(name, code) {#name, name, name##_at},
static const struct instruction instructions[] = {INSTRUCTIONS(ROW)};
static const struct instruction stack_instructions[] = {STACK_INSTRUCTIONS(ROW)};

#define ADDRESS (HIGH_BASE + (70ul << 30))
#define FRAME (52ul << 20)
static struct {
    u32 offset;
    u16 selector;
} __attribute__((packed)) far_target;

static struct event seeded(const void *code)
{
    struct event start = kernel_state(code);
    start.rax = 0x1111111111111111, start.rbx = 0x2222222222222222, start.rcx = 0x3333333333333333;
    start.rdx = 0x80, start.rbp = 0x5555555555555555, start.r8 = 0x6666666666666666;
    start.r12 = 0x7777777777777777, start.rsi = (word)&far_target;
    start.rflags |= F_CF | F_ZF | 0x894;
    return start;
}

static bool same_registers(const struct event *start)
{
    const u64 *before = (const u64 *)start, *now = (const u64 *)&last;
    for (unsigned i = 0; i < 15; i++)
        if (before[i] != now[i]) {
            print("word %d: %x became %x\n", i, before[i], now[i]);
            return false;
        }
    return last.rsp == start->rsp && (last.rflags & ~F_RF) == start->rflags;
}

static void try_one(const struct instruction *instruction, const struct event *start, word fault,
                    const char *how)
{
    run(start);
    check(last.vector, PF, "%s faults, %s", instruction->name, how);
    check(last.rip, (word)instruction->at, "RIP of %s, %s", instruction->name, how);
    /* The order in which the bytes of a decimal are stored is nobody's business. */
    check(instruction->code == x87_decimal ? last_cr2 & ~4095ul : last_cr2,
          fault & ~(instruction->code == x87_decimal ? 4095ul : 0), "CR2 of %s, %s",
          instruction->name, how);
    check(same_registers(start), true, "%s leaves all registers, %s", instruction->name, how);
}

static void absent(void)
{
    begin_group();
    for (unsigned i = 0; i < sizeof(instructions) / sizeof(instructions[0]); i++) {
        struct event start = seeded(instructions[i].code);
        start.rdi = ADDRESS + 4096;
        word fault = start.rdi;
        if (instructions[i].code == bit_test)
            fault = start.rdi + ((int)0x11111111 >> 5) * 4;
        if (instructions[i].code == string_compare)
            start.rsi = (word)&far_target;
        try_one(&instructions[i], &start, fault, "absent");
    }
    end_group("operand in an absent page");
}

/* The operand's last bytes are in the absent page; what is in the present one stays. */
static void straddling(void)
{
    static const void *const wide[] = {
        load_64,      store_64,      add_load,    add_store,    adc_store,   increment,
        negate,       shift,         exchange,    exchange_add, compare,     compare_exchange,
        multiply,     move_if,       push_memory, pop_memory,   call_memory, string_store,
        vector_load,  vector_store,  x87_load,    x87_store,    nontemporal, store_constant,
        load_control, store_control, store_gdt,   load_gdt,     x87_integer, x87_decimal,
    };
    begin_group();
    for (unsigned i = 0; i < sizeof(instructions) / sizeof(instructions[0]); i++) {
        bool is_wide = false;
        for (unsigned j = 0; j < sizeof(wide) / sizeof(wide[0]); j++)
            is_wide |= wide[j] == instructions[i].code;
        if (!is_wide)
            continue;
        *(u64 *)(FRAME + 4088) = 0x0102030405060708;
        struct event start = seeded(instructions[i].code);
        start.rdi = ADDRESS + 4096 - 2;
        try_one(&instructions[i], &start, ADDRESS + 4096, "straddling");
        /* sgdt and fbstp store in pieces. */
        if (instructions[i].code != store_gdt && instructions[i].code != x87_decimal)
            check(*(u64 *)(FRAME + 4088), 0x0102030405060708, "%s leaves memory",
                  instructions[i].name);
    }
    end_group("operand across into an absent page");
}

static void stacks(void)
{
    begin_group();
    for (unsigned i = 0; i < sizeof(stack_instructions) / sizeof(stack_instructions[0]); i++) {
        struct event start = seeded(stack_instructions[i].code);
        start.rsp = ADDRESS + 8192;
        run(&start);
        check(last.vector, PF, "%s faults", stack_instructions[i].name);
        check(last.rip, (word)stack_instructions[i].at, "RIP of %s", stack_instructions[i].name);
        check(same_registers(&start), true, "%s leaves all registers", stack_instructions[i].name);
    }
    static const struct instruction by_register[] = {
        {"leave", leave_frame, leave_frame_at},
        {"enter from a frame", enter_from_frame, enter_from_frame_at},
        {"lodsq", string_load, string_load_at},
        {"movsq", string_move_from, string_move_from_at},
        {"outsb", string_out, string_out_at},
        {"xlat", translate, translate_at},
    };
    for (unsigned i = 0; i < sizeof(by_register) / sizeof(by_register[0]); i++) {
        struct event start = seeded(by_register[i].code);
        start.rbp = start.rsi = start.rbx = ADDRESS + 4096 + 64;
        start.rdi = (word)&far_target;
        run(&start);
        check(last.vector, PF, "%s faults", by_register[i].name);
        check(same_registers(&start), true, "%s leaves all registers", by_register[i].name);
    }
    end_group("stack and other pointers into an absent page");
}

/* A read-only page: what writes faults, with nothing changed. */
static void read_only(void)
{
    map_at(ADDRESS + 4096, FRAME + 4096, 1, P_P);
    begin_group();
    static const struct instruction writers[] = {
        {"add", add_store, add_store_at},
        {"xadd", exchange_add, exchange_add_at},
        {"xchg", exchange, exchange_at},
        {"cmpxchg", compare_exchange, compare_exchange_at},
        {"cmpxchg8b", compare_exchange_8, compare_exchange_8_at},
        {"inc", increment, increment_at},
        {"rcl", rotate, rotate_at},
        {"shld", double_shift, double_shift_at},
        {"pop", pop_memory, pop_memory_at},
        {"stos", string_store, string_store_at},
        {"movs", string_move_to, string_move_to_at},
        {"setc", set_byte, set_byte_at},
        {"movups", vector_store, vector_store_at},
        {"fstp", x87_store, x87_store_at},
        {"sgdt", store_gdt, store_gdt_at},
        {"ins", string_in, string_in_at},
    };
    for (unsigned i = 0; i < sizeof(writers) / sizeof(writers[0]); i++) {
        struct event start = seeded(writers[i].code);
        start.rdi = ADDRESS + 4096 + 16;
        memset((void *)(FRAME + 4096), 0xa5, 64);
        try_one(&writers[i], &start, start.rdi, "read-only");
        check(last.error, E_P | E_W, "error code of %s", writers[i].name);
        check(*(u64 *)(FRAME + 4096 + 16), 0xa5a5a5a5a5a5a5a5, "%s leaves memory", writers[i].name);
    }
    end_group("operand in a read-only page");
}

int main(void)
{
    set_gate(PF, (word)vector_stubs + 16 * PF, KERNEL_CS, GATE_INTERRUPT, 2);
    far_target.offset = (word)load_8;
    far_target.selector = KERNEL_CS;
    map_at(ADDRESS, FRAME, 1, P_ALL);
    absent();
    straddling();
    stacks();
    read_only();
    return 0;
}
