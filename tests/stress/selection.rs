//! Which stressors run, how, and which are left out, each with its reason.

/// The classes of stress-ng that need no disk, no network and no device.
pub const CLASSES: [&str; 6] = ["cpu", "memory", "vm", "scheduler", "interrupt", "os"];

/// Stressors that are not run at all.
pub const EXCLUDED: [(&str, &str); 14] = [
    ("bad-ioctl", "stress-ng asks for --pathological: it may hang or reboot the machine"),
    ("bind-mount", "stress-ng asks for --pathological: it may hang or reboot the machine"),
    ("binderfs", "the guest's kernel has no binder"),
    ("efivar", "there is no EFI"),
    ("io-uring", "expects a file on a disk; fails on tmpfs, also under QEMU"),
    ("iomix", "needs a file system with FIEMAP; tmpfs has none, also under QEMU"),
    ("mlockmany", "stress-ng asks for --pathological: it may hang or reboot the machine"),
    ("oom-pipe", "stress-ng asks for --pathological: it may hang or reboot the machine"),
    ("smi", "stress-ng asks for --pathological: it may hang or reboot the machine"),
    ("swap", "needs a file system that can swap; tmpfs cannot"),
    ("sysinval", "stress-ng asks for --pathological: it may hang or reboot the machine"),
    ("uprobe", "the guest mounts no tracefs"),
    ("watchdog", "stress-ng asks for --pathological: it may hang or reboot the machine"),
    ("xattr", "needs a file system with extended attributes; this tmpfs has none"),
];

/// Stressors that refuse to run as root, and one to which a kernel with memory failures (Debian's 6.12) gives them
/// if it is root (MADV_HWPOISON): it dies of what it has asked for.
pub const AS_USER: [&str; 3] = ["exec", "madvise", "spawn"];

/// Options without which a stressor does nothing, or does not come to an end in time.
pub const OPTIONS: [(&str, &str); 2] = [
    // It switches processors off and on, which it takes for dangerous.
    ("cpu-online", "--pathological"),
    // It takes the host's last-level cache for its own and fills four times as much.
    ("stream", "--stream-l3-size=1m"),
];

/// What runs when not everything is asked for: what has to do with the processor, its memory and
/// interrupts, one or two of each kind.
pub const SELECTED: [&str; 78] = [
    "affinity",
    "alarm",
    "atomic",
    "bad-altstack",
    "bigheap",
    "branch",
    "bsearch",
    "clock",
    "clone",
    "context",
    "cpu",
    "daemon",
    "enosys",
    "eventfd",
    "exec",
    "exit-group",
    "fault",
    "fork",
    "fp",
    "fp-error",
    "funccall",
    "funcret",
    "futex",
    "goto",
    "hrtimers",
    "ioport",
    "itimer",
    "lockbus",
    "longjmp",
    "madvise",
    "malloc",
    "mcontend",
    "membarrier",
    "memcpy",
    "memthrash",
    "misaligned",
    "mmap",
    "mmapfork",
    "mmaphuge",
    "mprotect",
    "mremap",
    "msync",
    "munmap",
    "mutex",
    "nanosleep",
    "null",
    "opcode",
    "pagemove",
    "pipe",
    "pkey",
    "poll",
    "prefetch",
    "priv-instr",
    "pthread",
    "ptrace",
    "randlist",
    "regs",
    "remap",
    "sigabrt",
    "sigfpe",
    "sigsegv",
    "sigsuspend",
    "sigtrap",
    "stack",
    "stackmmap",
    "switch",
    "sysbadaddr",
    "timer",
    "timerfd",
    "tlb-shootdown",
    "userfaultfd",
    "vdso",
    "vecmath",
    "vfork",
    "vm",
    "vm-segv",
    "x86cpuid",
    "zombie",
];
