//! What who packs and unpacks files may ask of the kernel, once it is in the pod: to read and make files, and nothing
//! else. It has what the pod's superuser has there, and reads an archive that may be anybody's.
//!
//! What is not in the list is its end (seccomp(2)). The keeper's list holds for it besides (`host::confine`).

use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Compare,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

/// Calls that are made, whatever their arguments are.
const ALLOWED: &[c_long] = &[
    // The archive, and what is open.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_fadvise64,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    // Files.
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_mkdirat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_fsetxattr,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_getrandom,
    // Time, its own signals, and its end.
    libc::SYS_clock_gettime,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tkill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// What makes memory executable.
const EXECUTABLE: u64 = libc::PROT_EXEC as u64;

/// Has no other calls made than these, for the rest of its life.
pub fn confine() -> io::Result<()> {
    let program = program().map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)
}

fn program() -> Result<BpfProgram, Error> {
    let mut calls: std::collections::BTreeMap<_, _> =
        ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    // No memory becomes code.
    let data = Compare::MaskedEq(EXECUTABLE);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let condition = SeccompCondition::new(2, Length::Qword, data.clone(), 0)?;
        calls.insert(call, vec![SeccompRule::new(vec![condition])?]);
    }
    // A node is a named pipe.
    let kind = Compare::MaskedEq(libc::S_IFMT.into());
    let condition = SeccompCondition::new(2, Length::Dword, kind, libc::S_IFIFO.into())?;
    calls.insert(libc::SYS_mknodat, vec![SeccompRule::new(vec![condition])?]);
    let (otherwise, here) = (SeccompAction::KillProcess, SeccompAction::Allow);
    Ok(SeccompFilter::new(calls, otherwise, here, TargetArch::x86_64)?.try_into()?)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use rustix::fs::AtFlags;

    use super::*;

    /// Names the attempt to the program that is started again.
    const ATTEMPT: &str = "FILES_CONFINED_ATTEMPT";

    fn attempt(name: &str) {
        match name {
            "socket" => {
                let _ = UdpSocket::bind("127.0.0.1:0");
            }
            "process" => {
                let _ = Command::new("true").status();
            }
            "thread" => {
                let _ = std::thread::spawn(|| ()).join();
            }
            "namespace" => {
                let own = std::fs::File::open("/proc/self/ns/user").unwrap();
                let _ = rustix::thread::move_into_link_name_space(own.as_fd(), None);
            }
            "signal" => {
                let _ = rustix::process::test_kill_process(rustix::process::getpid());
            }
            "device" => {
                let kind = rustix::fs::FileType::CharacterDevice;
                let _ = rustix::fs::mknodat(rustix::fs::CWD, "", kind, 0o600.into(), 0);
            }
            _ => {
                // What it is for.
                let path = std::env::temp_dir().join(format!("biv-files-{}", std::process::id()));
                std::fs::write(&path, "content").unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), b"content");
                rustix::fs::unlinkat(rustix::fs::CWD, &path, AtFlags::empty()).unwrap();
            }
        }
        println!("through");
    }

    #[test]
    fn who_has_the_files_may_do_nothing_else() {
        if let Ok(name) = std::env::var(ATTEMPT) {
            confine().unwrap();
            return attempt(&name);
        }
        let run = |name: &str| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["who_has_the_files_may_do_nothing_else", "--nocapture"]);
            command.env(ATTEMPT, name).output().unwrap()
        };
        for name in ["socket", "process", "thread", "namespace", "signal", "device"] {
            let output = run(name);
            assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{name}: {output:?}");
            assert!(!String::from_utf8_lossy(&output.stdout).contains("through"), "{name}");
        }
        let output = run("files");
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("through"), "{output:?}");
    }
}
