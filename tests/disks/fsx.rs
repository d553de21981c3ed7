//! fsx on a file system on a disk: what it has written, mapped, cut and punched holes into, it reads again.
//!
//! With `BIVOUAC_POSIX=DIRECTORY` only, where `cargo install --root DIRECTORY fsx` has put it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::paravirtual::root_with;
use super::{Image, MIB, qcow2};
use whole_machine::modes::{Mode, PARAVIRTUAL, UserExecution};

/// Two at once, each on a file of its own; then the file system must be in order.
const SCRIPT: &str = r#"
mount -t ext4 $1 /mnt || exit 1
printf 'flen = 1048576\n[opsize]\nmax = 65536\n' > /tmp/fsx.toml
for seed in 1 2; do
    $2 -f /tmp/fsx.toml -N 4000 -S $seed -P /tmp /mnt/file$seed > /tmp/said$seed 2>&1 &
done
wait; cat /tmp/said1 /tmp/said2
umount /mnt
"#;

fn check(options: &[&str], device: &str) {
    let Ok(directory) = std::env::var("BIVOUAC_POSIX") else { return };
    let program = PathBuf::from(directory).join("bin/fsx");
    let root = root_with(&format!("fsx-root-{}", &device[5..]), std::slice::from_ref(&program));
    let (root, program) = (root.0.to_str().expect("it is text"), program.display().to_string());
    let raw = Image::new(&format!("fsx-{}", &device[5..]), 128 * MIB);
    let made = Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", raw.path()]).status();
    assert!(made.expect("`mke2fs` is installed").success());
    // Its backing image has the file system.
    let name = raw.0.file_name().and_then(|name| name.to_str()).expect("it has a name");
    let above = Image::new(&format!("fsx-qcow2-{}", &device[5..]), 0);
    fs::write(&above.0, qcow2::empty(128 * MIB, Some((name, "raw")))).expect("there is room");
    let above = above.with(&format!(",backing={}", raw.path()));
    for disk in [above.as_str(), raw.path()] {
        for (execution, processors) in [(UserExecution::Auto, 4), (UserExecution::Translate, 1)] {
            let mode = Mode { execution, processors };
            let machine = ["--mem", "512M", "--root", root, "--disk", disk];
            let words = ["sh", "-c", SCRIPT, "fsx", device, &program];
            let output = mode.in_machine(&[options, &machine].concat(), &words);
            let said = format!("{}{}", super::text(&output.stdout), super::text(&output.stderr));
            assert!(output.status.success(), "{mode:?} {disk}: {said}");
            let done = said.matches("All operations completed A-OK!").count();
            assert_eq!(done, 2, "{mode:?} {disk}: {said}");
        }
    }
    let checked = Command::new("e2fsck").args(["-f", "-n", raw.path()]).status();
    assert!(checked.expect("e2fsprogs is installed").success());
}

#[test]
fn fsx_reads_what_it_has_written() {
    check(&[], "/dev/vda");
}

#[test]
fn fsx_does_in_paravirtual_machines() {
    check(&PARAVIRTUAL, "/dev/xvda");
}
