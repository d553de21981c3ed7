/* A 32-bit program that needs no library: each part prints its name and what it found, a number. What it should find
 * is in main.rs. */

typedef unsigned int u32;
typedef unsigned char u8;

enum {
    SYS_EXIT = 1,
    SYS_FORK = 2,
    SYS_WRITE = 4,
    SYS_WAITPID = 7,
    SYS_GETPID = 20,
    SYS_MUNMAP = 91,
    SYS_MPROTECT = 125,
    SYS_RT_SIGACTION = 174,
    SYS_MMAP2 = 192,
    SYS_SET_THREAD_AREA = 243,
};

static int call(int number, u32 a, u32 b, u32 c, u32 d, u32 e)
{
    int answer;
    __asm__ volatile("int $0x80"
                     : "=a"(answer)
                     : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
                     : "memory");
    return answer;
}

static void say(const char *name, u32 value)
{
    char line[80];
    u32 length = 0, digits = 0;
    char reversed[10];
    while (*name)
        line[length++] = *name++;
    line[length++] = ' ';
    do
        reversed[digits++] = '0' + value % 10;
    while (value /= 10);
    while (digits)
        line[length++] = reversed[--digits];
    line[length++] = '\n';
    call(SYS_WRITE, 1, (u32)line, length, 0, 0);
}

static void *map(u32 bytes, u32 rights)
{
    /* The sixth argument, the offset, is in EBP. */
    u32 answer;
    __asm__ volatile("push %%ebp\n\txor %%ebp, %%ebp\n\tint $0x80\n\tpop %%ebp"
                     : "=a"(answer)
                     : "a"(SYS_MMAP2), "b"(0), "c"(bytes), "d"(rights), "S"(0x22), "D"(-1)
                     : "memory");
    return (void *)answer;
}

/* Calls, returns, branches and the stack. */
static __attribute__((noinline)) u32 fibonacci(u32 n)
{
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

/* Memory, bytes, and computed jumps. */
static u32 interpret(const u8 *program, u32 rounds)
{
    u32 value = 1;
    while (rounds--) {
        for (const u8 *at = program; *at; at++) {
            switch (*at) {
            case 1: value += 3; break;
            case 2: value ^= value << 5; break;
            case 3: value = value >> 7 | value << 25; break;
            case 4: value *= 2654435761u; break;
            case 5: value = -value; break;
            case 6: value += value % 1000; break;
            }
        }
    }
    return value;
}

/* x87 and SSE, and conversions. */
static u32 floats(void)
{
    double sum = 0;
    float product = 1;
    for (int i = 1; i <= 100000; i++) {
        sum += 1.0 / i;
        product *= 1.0f + 1.0f / (i * i);
    }
    return (u32)(sum * 1000000) + (u32)(product * 1000);
}

/* Strings, of which the last bytes cross a page; and unaligned words. */
static u32 strings(void)
{
    u8 *from = map(16384, 3), *to = map(16384, 3);
    u32 sum = 0;
    for (u32 i = 0; i < 16384; i++)
        from[i] = i * 7;
    for (u32 i = 0; i < 100; i++) {
        u32 count = 2900 + i;
        void *source = from + 4090 + i, *target = to + 1 + i;
        __asm__ volatile("rep movsl" : "+S"(source), "+D"(target), "+c"(count) : : "memory");
    }
    for (u32 i = 0; i < 16380; i++)
        sum = sum * 31 + *(volatile u32 *)(to + i);
    return sum;
}

/* Thread-local storage, at negative offsets too, which wrap at 4 GiB. */
static u32 thread_local(void)
{
    static u32 block[16];
    struct {
        u32 entry, base, limit, flags;
    } area = { -1u, (u32)&block[8], 0xfffff, 0x51 };
    u32 before, after;
    block[7] = 70, block[9] = 9;
    if (call(SYS_SET_THREAD_AREA, (u32)&area, 0, 0, 0, 0) != 0)
        return 0;
    __asm__ volatile("mov %w0, %%gs" : : "r"(area.entry * 8 + 3));
    for (int i = 0; i < 1000; i++) {
        __asm__ volatile("incl %%gs:(%0)" : : "r"(-4) : "memory");
        __asm__ volatile("incl %%gs:4" : : : "memory");
    }
    __asm__ volatile("mov %%gs:0xfffffffc, %0" : "=r"(before));
    __asm__ volatile("mov %%gs:4, %0" : "=r"(after));
    return before + after * 10000;
}

/* Faults, which are precise: the handler sees the instruction, and goes on behind it. */
static volatile u32 faults;
static u32 *hole;

static void on_fault(int number, void *information, u32 *context)
{
    /* In a ucontext, after five words and the segments: EAX is word 16, EIP 19 (asm/sigcontext.h). */
    (void)information;
    faults += number;
    context[19] += number == 8 ? 2 : 6;
}

__asm__("restore:\n\tmov $173, %eax\n\tint $0x80\n");
extern void restore(void);

static u32 precise(void)
{
    struct {
        void *handler;
        u32 flags;
        void *restorer;
        u32 mask[2];
    } action = { (void *)on_fault, 0x04000004, (void *)restore, { 0, 0 } };
    u32 kept = 5;
    hole = map(4096, 0);
    call(SYS_RT_SIGACTION, 8, (u32)&action, 0, 8, 0);
    call(SYS_RT_SIGACTION, 11, (u32)&action, 0, 8, 0);
    for (int i = 0; i < 50; i++) {
        u32 low = 1, high = 0;
        __asm__ volatile("div %2" : "+a"(low), "+d"(high) : "r"(0) : "cc");
        kept += low + high;
        __asm__ volatile("mov %0, %%ecx\n\tmovl $7, (%%ecx)" : : "m"(hole) : "ecx", "memory");
    }
    return faults * 1000 + kept;
}

/* Code that is written while it is in use. */
static u32 written(void)
{
    u8 *code = map(4096, 7);
    u32 sum = 0;
    for (u32 i = 0; i < 300; i++) {
        code[0] = 0xb8; /* mov $i, %eax; ret */
        *(u32 *)(code + 1) = i;
        code[5] = 0xc3;
        sum += ((u32(*)(void))code)();
    }
    return sum;
}

/* The same bytes as code of both kinds: `inc %eax; ret`, which to 64-bit code is a prefix before `ret`. */
__asm__(".balign 64\n"
        "both:\n\t.byte 0x40, 0xc3\n"
        "as_32:\n\tcall both\n\tret\n"
        "as_64:\n"
        "\tljmp $0x33, $1f\n"
        "1:\t.byte 0xe8\n\t.long both - 2f\n" /* call both */
        "2:\t.byte 0xff, 0x2d\n\t.long 3f - 4f\n" /* ljmp *3f(%rip) */
        "4:\n"
        "3:\t.long 5f\n\t.word 0x23\n"
        "5:\tret\n");

static u32 both_kinds(void)
{
    u32 value = 0;
    for (int i = 0; i < 2000; i++) {
        __asm__ volatile("call as_32" : "+a"(value) : : "memory");
        __asm__ volatile("call as_64" : "+a"(value) : : "memory");
        if (i % 3 == 0)
            __asm__ volatile("call as_32" : "+a"(value) : : "memory");
    }
    return value;
}

/* Processes that write what they share. */
static u32 processes(void)
{
    static volatile u32 shared = 3;
    u32 sum = 0;
    for (u32 i = 0; i < 20; i++) {
        int status, child = call(SYS_FORK, 0, 0, 0, 0, 0);
        if (child == 0) {
            shared += i;
            call(SYS_EXIT, shared, 0, 0, 0, 0);
        }
        call(SYS_WAITPID, child, (u32)&status, 0, 0, 0);
        sum += status >> 8 & 255;
    }
    return sum * 100 + shared;
}

/* Where the kernel has its fast system calls, if it says so. */
static u32 gate;

static u32 fast(int number, u32 a, u32 b, u32 c, u32 d, u32 e)
{
    u32 answer;
    __asm__ volatile("push %%ebp\n\txor %%ebp, %%ebp\n\tcall *%7\n\tpop %%ebp"
                     : "=a"(answer)
                     : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e), "m"(gate)
                     : "memory");
    return answer;
}

__asm__("slow: int $0x80\n\tret\n");

/* They have all their arguments, whichever instruction makes them. */
static u32 fast_calls(const u32 *stack)
{
    extern char slow[];
    const u32 *word = stack + stack[0] + 2;
    u32 sum = 0;
    while (*word++)
        ;
    for (gate = (u32)slow; word[0]; word += 2)
        if (word[0] == 32) /* AT_SYSINFO */
            gate = word[1];
    for (u32 pages = 1; pages <= 50; pages++) {
        u32 bytes = pages << 12, at = fast(SYS_MMAP2, 0, bytes, 3, 0x22, -1);
        if (at > -4096u)
            continue;
        *(u8 *)(at + bytes - 1) = pages;
        sum += *(u8 *)(at + bytes - 1) + fast(SYS_MUNMAP, at, bytes, 0, 0, 0);
    }
    return sum + fast(SYS_GETPID, 0, 0, 0, 0, 0) - call(SYS_GETPID, 0, 0, 0, 0, 0);
}

__asm__(".globl _start\n_start:\n\tmov %esp, %eax\n\tand $-16, %esp\n\tsub $12, %esp\n"
        "\tpush %eax\n\tcall run\n");

__attribute__((used)) static void run(const u32 *stack)
{
    say("fibonacci", fibonacci(27));
    say("interpret", interpret((const u8 *)"\1\2\3\4\5\6\2\4\1", 200000));
    say("floats", floats());
    say("strings", strings());
    say("thread_local", thread_local());
    say("precise", precise());
    say("written", written());
    say("both_kinds", both_kinds());
    say("processes", processes());
    say("fast_calls", fast_calls(stack));
    call(SYS_EXIT, 0, 0, 0, 0, 0);
}
