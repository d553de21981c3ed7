//! The comparison with QEMU's TCG, block by block: it agrees where there is nothing to find, and finds
//! a difference of one instruction, in the guest or in a translation of it.

#![forbid(unsafe_code)]

use std::process::{Command, Output, Stdio};

use tiny_kernels::{self as kernels, Kernel};
use whole_machine::{PATIENCE_SECONDS, biv, example, text};

fn lockstep(kernel: &Kernel, options: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE_SECONDS).arg(example("lockstep")).arg("--kernel").arg(&kernel.0);
    command.args(options).stdin(Stdio::null()).output().expect("`timeout` can be started")
}

/// It finds a difference, and says these words about it.
#[track_caller]
fn check_difference(output: &Output, words: &[&str]) {
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    for word in words {
        assert!(said.contains(word), "{word:?} is missing:\n{said}");
    }
}

#[test]
fn both_do_the_same() {
    let kernel = Kernel::new("lockstep", kernels::LONG_MODE);
    for (options, end) in
        [(&[][..], "DebugExit(1)"), (&["--interpret", "--count", "3000"], "enough")]
    {
        let output = lockstep(&kernel, options);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
        let words = said.split_whitespace().collect::<Vec<_>>();
        let checkpoints = words.iter().position(|&word| word == "checkpoints").unwrap();
        // A thousand turns of two blocks and more.
        assert!(words[checkpoints - 1].parse::<u32>().unwrap() > 2000, "{said}");
        assert!(said.contains(end), "{said}");
    }
}

#[test]
fn one_other_instruction_is_found() {
    let kernel = Kernel::new("lockstep-one", kernels::LONG_MODE);
    let xor = kernels::LONG_MODE.windows(2).position(|bytes| bytes == [0x31, 0xc8]);
    let mut other = kernels::LONG_MODE.to_vec();
    other[xor.expect("it computes with xor eax, ecx")] = 0x09; // or eax, ecx
    let other = Kernel::new("lockstep-other", &other);
    let other = other.0.to_str().expect("a plain name");
    let output = lockstep(&kernel, &["--qemu-kernel", other]);
    check_difference(&output, &["the last one at 0x100081", "rax", "or %ecx,%eax"]);
}

#[test]
fn a_difference_in_memory_is_found() {
    let kernel = Kernel::new("lockstep-memory", kernels::LONG_MODE);
    let at = kernels::LONG_MODE.windows(4).position(|bytes| bytes == [0x04, 0x25, 0, 0]);
    let mut other = kernels::LONG_MODE.to_vec();
    other[at.expect("it stores at 0x180000") + 3] = 0x10; // at 0x181000
    let other = Kernel::new("lockstep-elsewhere", &other);
    let other = other.0.to_str().expect("a plain name");
    let output = lockstep(&kernel, &["--qemu-kernel", other, "--memory-every", "500"]);
    check_difference(&output, &["difference in memory after 500", "physical 0x180000"]);
}

#[test]
fn a_fault_of_translation_is_found() {
    let kernel = Kernel::new("lockstep-planted", kernels::LONG_MODE);
    let list = std::env::temp_dir().join(format!("lockstep-list-{}", std::process::id()));
    let name = list.to_str().expect("a plain name");
    let path = kernel.0.to_str().expect("a plain name");
    let options = ["run", "--mem", "64M", "--debug-exit", "--kernel", path, "--list-blocks", name];
    let output = biv(&options).output().expect("`timeout` can be started");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let blocks = std::fs::read_to_string(&list).expect("it has been written");
    let _ = std::fs::remove_file(&list);
    let mix = format!("at {:#018x}", kernels::LONG_MODE_MIX);
    let line = blocks.lines().find(|line| line.contains(&mix)).expect("it is a block");
    let guilty = line.split(' ').nth(1).expect("a block has a name");
    let output = lockstep(&kernel, &["--plant-fault", guilty]);
    check_difference(&output, &["the last one at 0x100081", "both come to 0x100070", "rax"]);
}
