//! General registers, as an image and as ptrace have them.

use host::processes::trace::Registers;

/// Defines both ways, for registers in the order in which an image has them.
macro_rules! registers {
    ($($name:ident)*) => {
        pub(crate) fn to_image(registers: &Registers) -> [u64; 27] {
            [$(registers.$name),*]
        }

        /// The same back.
        pub(crate) fn from_image(image: &[u64; 27]) -> Registers {
            let [$($name),*] = *image;
            Registers { $($name),* }
        }
    };
}

// In the order of `struct user_regs_struct`.
registers! {
    r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss
    fs_base gs_base ds es fs gs
}
