/* What firmware and platform tell an operating system: ACPI's tables, fw_cfg, and clocks that agree
 * with each other (ACPI 6.5, chapter 5; QEMU, docs/specs/fw_cfg; Linux, Documentation/virt/kvm/x86/
 * msr). */
#include "apic.h"

struct table {
    char signature[4];
    u32 length;
    u8 revision, checksum;
    char owner[6], owner_table[8];
    u32 owner_revision, creator, creator_revision;
} __attribute__((packed));

struct fixed {
    struct table header;
    u32 facs, dsdt;
    u8 reserved, profile;
    u16 sci;
    u32 smi_command;
    u8 enable, disable, s4, performance;
    u32 pm1a_event, pm1b_event, pm1a_control, pm1b_control, pm2_control, pm_timer;
} __attribute__((packed));

struct controller {
    u8 type, length, processor, id;
    u32 flags;
} __attribute__((packed));

static bool sums_to_zero(const void *bytes, size_t size)
{
    u8 sum = 0;
    for (const u8 *p = bytes; size--; p++)
        sum += *p;
    return sum == 0;
}

static bool same(const char *one, const char *other, size_t size)
{
    while (size--)
        if (*one++ != *other++)
            return false;
    return true;
}

static const u8 *find_root(void)
{
    word start = 0xe0000;
    asm("" : "+r"(start));
    for (word at = start; at < 0x100000; at += 16)
        if (same((char *)at, "RSD PTR ", 8) && sums_to_zero((void *)at, 20))
            return (u8 *)at;
    return 0;
}

static const struct table *fixed_table, *interrupt_table;

static void note_table(const struct table *table)
{
    if (same(table->signature, "FACP", 4))
        fixed_table = table;
    if (same(table->signature, "APIC", 4))
        interrupt_table = table;
    if (!sums_to_zero(table, table->length))
        check(0, 1, "checksum of table %x", (word) * (u32 *)table->signature);
}

static void tables(void)
{
    const u8 *root = find_root();
    check(root != 0, true, "ACPI's root pointer lies where kernels look for it");
    if (!root)
        return;
    const struct table *list = (void *)(word) * (u32 *)(root + 16);
    unsigned width = 4;
    if (root[15] >= 2) {
        check(sums_to_zero(root, 36), true, "extended checksum of the root pointer");
        list = (void *)*(u64 *)(root + 24);
        width = 8;
    }
    check(sums_to_zero(list, list->length), true, "checksum of the list of tables");
    for (u32 at = sizeof(struct table); at + width <= list->length; at += width)
        note_table((void *)(width == 8 ? *(u64 *)((word)list + at) : *(u32 *)((word)list + at)));
    check(fixed_table != 0, true, "FADT");
    check(interrupt_table != 0, true, "MADT");
}

/* What CPUID says of the machine as a whole (leaf 1, EBX[23:16]). */
static unsigned processor_count(void) { return (cpuid(1, 0).ebx >> 16 & 0xff) ?: 1; }

static void controllers(void)
{
    unsigned processors = 0, io_apics = 0;
    if (!interrupt_table)
        return;
    check(*(u32 *)(interrupt_table + 1), 0xfee00000, "MADT: address of the local APIC");
    word end = (word)interrupt_table + interrupt_table->length;
    for (word at = (word)(interrupt_table + 1) + 8; at < end;) {
        const struct controller *entry = (void *)at;
        if (entry->type == 0 && entry->flags & 1)
            processors++;
        if (entry->type == 1) {
            io_apics++;
            check(entry->flags, 0xfec00000, "MADT: address of the I/O APIC");
        }
        if (!entry->length)
            break;
        at += entry->length;
    }
    check(processors, processor_count(), "MADT: the processors");
    check(io_apics, 1, "MADT: one I/O APIC");
}

static u32 in32(u16 port)
{
    u32 value;
    asm volatile("inl %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static void select(u16 key) { asm volatile("outw %0, %1" ::"a"(key), "Nd"((u16)0x510)); }

static u64 read_configuration(u16 key, unsigned size)
{
    u64 value = 0;
    select(key);
    for (unsigned i = 0; i < size; i++)
        value |= (u64)in8(0x511) << 8 * i;
    return value;
}

static void configuration(void)
{
    check(read_configuration(0, 4), 0x554d4551, "fw_cfg: signature");
    check(read_configuration(5, 2), processor_count(), "fw_cfg: number of processors");
    check(read_configuration(5, 2), processor_count(), "fw_cfg: number of processors, again");
    check(read_configuration(0xf, 2), processor_count(), "fw_cfg: most processors");
    check(read_configuration(3, 8), 256ul << 20, "fw_cfg: size of memory");
    check(read_configuration(0x19, 1), 0, "fw_cfg: the directory is short");
}

/* Time-stamp ticks while channel 2 of the PIT counts 23864 (20 ms). */
static u64 ticks_in_20_ms(void)
{
    out8(0x61, (in8(0x61) & ~3) | 1);
    out8(0x43, 0xb0);
    out8(0x42, 23864 & 0xff);
    out8(0x42, 23864 >> 8);
    u64 start = rdtsc();
    while (!(in8(0x61) & 0x20) && rdtsc() - start < 10000000000)
        ;
    return rdtsc() - start;
}

/* The least of several, so that what the host does meanwhile counts least. */
static u64 calibrate(void)
{
    u64 least = ~0ul;
    for (unsigned i = 0; i < 5; i++) {
        u64 ticks = ticks_in_20_ms();
        if (ticks < least)
            least = ticks;
    }
    return least * 50;
}

static bool about(u64 one, u64 other) { return one > other - other / 4 && one < other + other / 4; }

/* A host that is busy stops the guest for a while now and then, between any two instructions: a
 * measurement counts when it comes out right within some attempts. */
enum { ATTEMPTS = 20 };

static bool acpi_timer_agrees(u16 port)
{
    u64 frequency = calibrate();
    u32 first = in32(port);
    for (u64 end = rdtsc() + frequency / 20; rdtsc() < end;)
        ;
    u32 ticks = (in32(port) - first) & 0xffffff;
    return about(ticks, 3579545 / 20);
}

static bool apic_timer_is_even(u64 frequency)
{
    u64 counts[2];
    for (unsigned i = 0; i < 2; i++) {
        apic_timer(0x50, LVT_MASKED, 0xffffffff);
        for (u64 end = rdtsc() + (frequency / 50 << i); rdtsc() < end;)
            ;
        counts[i] = 0xffffffff - apic_read(APIC_TIMER_CURRENT);
        apic_timer_off();
    }
    return about(counts[1], counts[0] * 2);
}

static void timers_agree(u64 frequency)
{
    bool is_acpi_right = !fixed_table, is_apic_right = false;
    apic_enable();
    for (unsigned i = 0; i < ATTEMPTS && !is_acpi_right; i++)
        is_acpi_right = acpi_timer_agrees(((const struct fixed *)fixed_table)->pm_timer);
    for (unsigned i = 0; i < ATTEMPTS && !is_apic_right; i++)
        is_apic_right = apic_timer_is_even(frequency);
    check(is_acpi_right, true, "the ACPI timer agrees with the PIT");
    check(is_apic_right, true, "the APIC's timer runs evenly");
}

struct time_info {
    u32 version, padding;
    u64 tsc, nanoseconds;
    u32 multiplier;
    int8_t shift;
    u8 flags, padding2[2];
};

static void paravirtual_clock(void)
{
    static volatile struct time_info info __attribute__((aligned(32)));
    struct cpuid id = cpuid(0x40000000, 0);
    if (id.ebx != 0x4b4d564b || !(cpuid(0x40000001, 0).eax & 8)) {
        skip("kvmclock", "not announced");
        return;
    }
    wrmsr(0x4b564d01, (word)&info | 1);
    check(info.version & 1, 0, "kvmclock: version is even");
    check(info.multiplier != 0, true, "kvmclock: multiplier");
    u64 computed = (1000000000ull << 32) / info.multiplier;
    computed = info.shift < 0 ? computed << -info.shift : computed >> info.shift;
    bool is_right = false;
    for (unsigned i = 0; i < ATTEMPTS && !is_right; i++)
        is_right = about(computed, calibrate());
    check(is_right, true, "kvmclock agrees with the PIT");
    check(info.tsc <= rdtsc(), true, "kvmclock: its time stamp is not of the future");
    wrmsr(0x4b564d01, 0);
}

int main(void)
{
    tables();
    controllers();
    configuration();
    u64 frequency = calibrate();
    check(frequency > 100000000 && frequency < 10000000000, true, "frequency of the TSC");
    timers_agree(frequency);
    paravirtual_clock();
    return 0;
}
