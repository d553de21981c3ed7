/* The serial port, or the debug console where that is, and the checks that report on it. */
#include <stdarg.h>
#include "harness.h"

#define COM1 0x3f8
#define DEBUG_CONSOLE 0xe9
#define DEBUG_EXIT 0xf4

static unsigned passed, failed;
static bool grouped;
static unsigned group_passed, group_failed;
enum { FAILURES_SHOWN_PER_GROUP = 20 };

static void put(char c)
{
    /* It reads as its own number (Bochs); where nothing is, reads give ones. */
    if (in8(DEBUG_CONSOLE) == DEBUG_CONSOLE) {
        out8(DEBUG_CONSOLE, c);
        return;
    }
    while (!(in8(COM1 + 5) & 0x20))
        ;
    out8(COM1, c);
}

static void put_number(word value, unsigned base)
{
    char digits[24];
    unsigned n = 0;
    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value);
    while (n)
        put(digits[--n]);
}

static void print_list(const char *format, va_list list)
{
    for (; *format; format++) {
        if (*format != '%') {
            put(*format);
            continue;
        }
        switch (*++format) {
        case 's':
            for (const char *s = va_arg(list, const char *); *s; s++)
                put(*s);
            break;
        case 'd':
            put_number(va_arg(list, unsigned), 10);
            break;
        case 'x':
            put_number(va_arg(list, word), 16);
            break;
        default:
            put(*format);
        }
    }
}

void print(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    print_list(format, list);
    va_end(list);
}

/* Count one check; true when a line is to be printed for it, which has then been started. */
static bool report(bool good, const char *name, va_list list)
{
    if (grouped) {
        if (good)
            group_passed++;
        else
            group_failed++;
        if (good || group_failed > FAILURES_SHOWN_PER_GROUP)
            return false;
    } else if (good) {
        passed++;
    }
    if (!good)
        failed++;
    print(good ? "ok " : grouped ? "wrong " : "FAIL ");
    print_list(name, list);
    return true;
}

void check(word got, word expected, const char *name, ...)
{
    va_list list;
    va_start(list, name);
    if (report(got == expected, name, list)) {
        if (got != expected)
            print(": expected %x got %x", expected, got);
        print("\n");
    }
    va_end(list);
}

void check_event(unsigned vector, word error, word rip, const char *name, ...)
{
    va_list list;
    va_start(list, name);
    bool good = last.vector == vector && last.error == error && last.rip == rip;
    if (report(good, name, list)) {
        if (!good)
            print(": expected vector %d error %x rip %x got vector %d error %x rip %x cr2 %x",
                  vector, error, rip, (unsigned)last.vector, (word)last.error, (word)last.rip,
                  last_cr2);
        print("\n");
    }
    va_end(list);
}

void check_done(const char *name, ...)
{
    va_list list;
    va_start(list, name);
    bool good = last.vector == DONE;
    if (report(good, name, list)) {
        if (!good)
            print(": expected no exception got vector %d error %x rip %x cr2 %x",
                  (unsigned)last.vector, (word)last.error, (word)last.rip, last_cr2);
        print("\n");
    }
    va_end(list);
}

void skip(const char *name, const char *why) { print("skip %s: %s\n", name, why); }

void begin_group(void)
{
    grouped = true;
    group_passed = group_failed = 0;
}

void end_group(const char *name)
{
    grouped = false;
    if (group_failed) {
        print("FAIL %s: expected 0 wrong got %d of %d wrong\n", name, group_failed,
              group_failed + group_passed);
        failed++;
    } else {
        print("ok %s: %d cases\n", name, group_passed);
        passed++;
    }
}

void finish(void)
{
    print("end: %d ok, %d failed\n", passed, failed);
    out32(DEBUG_EXIT, failed ? 1 : 0);
    for (;;)
        asm volatile("cli; hlt");
}

void *memset(void *to, int value, size_t size)
{
    for (u8 *p = to; size--; p++)
        *p = value;
    return to;
}

void *memcpy(void *to, const void *from, size_t size)
{
    const u8 *q = from;
    for (u8 *p = to; size--; p++, q++)
        *p = *q;
    return to;
}
