/* What the loader hands over: the Multiboot information (Multiboot Specification 0.6.96, section
 * 3.3), or the start information of PVH (Xen, include/public/arch-x86/hvm/start_info.h). */
#include "harness.h"

struct multiboot {
    u32 flags, memory_lower, memory_upper, boot_device, command_line, modules, module_list;
    u32 symbols[4];
    u32 map_length, map;
};
struct multiboot_module {
    u32 start, end, name, reserved;
};
struct multiboot_range {
    u32 size;
    u64 address, length;
    u32 type;
} __attribute__((packed));
struct start_info {
    u32 magic, version, flags, modules;
    u64 module_list, command_line, rsdp, map;
    u32 map_entries, reserved;
};
struct start_module {
    u64 address, size, command_line, reserved;
};
struct start_range {
    u64 address, size;
    u32 type, reserved;
};

extern char image_end[];
static const char command_line[] = "colour=green size=7";
static const char module_text[] = "a module for the boot test\n";

static bool contains(const char *text, const char *part)
{
    for (; *text; text++) {
        unsigned i = 0;
        while (part[i] && text[i] == part[i])
            i++;
        if (!part[i])
            return true;
    }
    return false;
}

static bool same(const char *one, const char *other, size_t size)
{
    while (size--)
        if (*one++ != *other++)
            return false;
    return true;
}

static u64 usable;
static bool image_in_memory, overlap;
static u64 seen[64][2];
static unsigned ranges;

static void note_range(u64 address, u64 length, u32 type)
{
    for (unsigned i = 0; i < ranges; i++)
        overlap |= address < seen[i][1] && seen[i][0] < address + length;
    if (ranges < 64) {
        seen[ranges][0] = address;
        seen[ranges++][1] = address + length;
    }
    if (type != 1)
        return;
    usable += length;
    image_in_memory |= address <= 0x100000 && address + length >= (word)image_end;
}

static void check_ranges(void)
{
    check(ranges > 1, true, "the map has more than one range");
    check(overlap, false, "no ranges overlap");
    check(image_in_memory, true, "the program lies in usable memory");
    check(usable > (250ul << 20) && usable <= (256ul << 20), true, "about 256 MiB are usable");
}

static void check_module(u64 start, u64 size)
{
    check(size, sizeof(module_text) - 1, "size of the module");
    check(same((char *)start, module_text, sizeof(module_text) - 1), true,
          "contents of the module");
    check(start >= (word)image_end || start + size <= 0x100000, true,
          "the module is not upon the program");
    check(start & 4095, 0, "the module is page aligned");
}

/* What the BIOS has left in its data area (PC/AT technical reference). */
static void bios_data(u32 memory_lower)
{
    word area = 0x400;
    asm("" : "+r"(area));
    check(*(u16 *)(area + 0x13), memory_lower, "KiB of conventional memory");
    check(*(u16 *)(area + 0xe) >> 6, memory_lower, "the extended data area follows it");
}

static void multiboot(void)
{
    const struct multiboot *info = (void *)boot_info;
    check(boot_magic, 0x2badb002, "EAX is Multiboot's");
    check(info->flags & 0x4d, 0x4d, "memory, command line, modules and map are there");
    check(info->memory_lower >= 512 && info->memory_lower <= 640, true, "lower memory");
    check(info->memory_upper > 250 << 10 && info->memory_upper < 256 << 10, true, "upper memory");
    const char *arguments = (char *)(word)info->command_line;
    while (*arguments && *arguments++ != ' ')
        ;
    check(same(arguments, command_line, sizeof(command_line) - 1), true,
          "the arguments follow the kernel's name");
    check(info->modules, 1, "one module");
    const struct multiboot_module *module = (void *)(word)info->module_list;
    check_module(module->start, module->end - module->start);
    for (word at = info->map; at < info->map + info->map_length;) {
        const struct multiboot_range *range = (void *)at;
        note_range(range->address, range->length, range->type);
        at += range->size + 4;
    }
    check_ranges();
    bios_data(info->memory_lower);
}

static void pvh(void)
{
    const struct start_info *info = (void *)boot_info;
    check(info->magic, 0x336ec578, "magic of the start information");
    check(info->version >= 1, true, "version with a memory map");
    check(contains((char *)info->command_line, command_line), true, "command line");
    check(info->modules, 1, "one module");
    const struct start_module *module = (void *)info->module_list;
    check_module(module->address, module->size);
    const struct start_range *map = (void *)info->map;
    for (unsigned i = 0; i < info->map_entries; i++)
        note_range(map[i].address, map[i].size, map[i].type);
    check_ranges();
    check(same((char *)info->rsdp, "RSD PTR ", 8), true, "ACPI's root pointer");
    u8 sum = 0;
    for (unsigned i = 0; i < 20; i++)
        sum += ((u8 *)info->rsdp)[i];
    check(sum, 0, "ACPI's root pointer: checksum");
}

int main(void)
{
    if (boot_kind == 1)
        multiboot();
    else
        pvh();
    return 0;
}
