//! Kernels are unpacked by a process that is confined before it reads anything: by every method, within
//! limits, and only when they are not in the cache.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use boot::Format;

#[path = "../../boot/src/unpack/tests/pack.rs"]
mod pack;

use pack::{FORMATS, pack};

/// Longer than any of this takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const SETUP_BYTES: usize = 1024;

/// Where the kernels are linked.
const BASE: u64 = 16 << 20;

/// Prints `R` and does nothing for ever.
const CODE: &[u8] = &[
    0x66, 0xba, 0xf8, 0x03, // mov dx, 0x3f8
    0xb0, b'R', // mov al, 'R'
    0xee, // out dx, al
    0xb0, b'\n', // mov al, '\n'
    0xee,  // out dx, al
    0xf4,  // halt: hlt
    0xeb, 0xfd, // jmp halt
];

/// A 64-bit ELF file of one segment, as large as a kernel may be.
fn vmlinux() -> Vec<u8> {
    const HEADERS_BYTES: u16 = 64 + 56;
    let mut segment = CODE.to_vec();
    segment.resize(4 << 20, 0x90);
    let length = segment.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]); // executable, x86-64, version
    for word in [BASE, 64, 0] {
        file.extend(word.to_le_bytes()); // entry, program headers, sections
    }
    file.extend([0; 4]); // flags
    for half in [64_u16, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    file.extend([1, 0, 0, 0, 7, 0, 0, 0]); // PT_LOAD
    for word in [u64::from(HEADERS_BYTES), BASE, BASE, length, length, 4096] {
        file.extend(word.to_le_bytes());
    }
    file.extend(segment);
    file
}

/// A bzImage of one setup sector with this payload (Documentation/arch/x86/boot.rst), of a version that has no
/// checksum.
fn bzimage(payload: &[u8]) -> Vec<u8> {
    let mut file = vec![0; SETUP_BYTES];
    file.extend_from_slice(payload);
    file.resize(file.len().next_multiple_of(16), 0);
    let paragraphs = ((file.len() - SETUP_BYTES) / 16) as u32;
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x1f1, &[1]);
    put(0x1f4, &paragraphs.to_le_bytes());
    put(0x201, &[0x6a]);
    put(0x202, b"HdrS\x0f\x02");
    put(0x20e, &0x100_u16.to_le_bytes());
    put(0x236, &[1]);
    put(0x24c, &(payload.len() as u32).to_le_bytes());
    put(0x300, b"6.18.0\0");
    file
}

/// A place for a kernel and a cache of its own.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("biv-unpack-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Place(path)
    }

    fn run(&self, payload: &[u8]) -> Command {
        let kernel = self.0.join("kernel");
        fs::write(&kernel, bzimage(payload)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_biv"));
        // An initial RAM disk of the user's makes it a plain machine.
        command.args(["run", "--mem", "64M", "--kernel"]).arg(&kernel).arg("--initrd").arg(&kernel);
        command.env("XDG_CACHE_HOME", &self.0).stdin(Stdio::null());
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Page faults of the processes that a process has started and waited for (proc(5), `cminflt`).
fn faults_of_children(process: &Child) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1;
    fields.split(' ').nth(8).unwrap().parse().unwrap()
}

/// Boots until the kernel says that it runs.
fn boot(place: &Place, payload: &[u8]) -> u64 {
    let mut command = place.run(payload);
    let mut machine = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(machine.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let faults = faults_of_children(&machine);
    machine.kill().unwrap();
    let output = machine.wait_with_output().unwrap();
    assert_eq!(line, "R\n", "{output:?}");
    faults
}

#[test]
fn a_kernel_of_every_format_boots_and_is_unpacked_once() {
    let place = Place::new("formats");
    let kernel = vmlinux();
    for format in FORMATS {
        let payload = pack(format, &kernel);
        let (first, second) = (boot(&place, &payload), boot(&place, &payload));
        assert!(first > second, "{format:?}: {first} faults in who unpacks, and {second}");
    }
}

/// The process that unpacks, by itself.
fn unpacker() -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_biv"));
    command.args(["--bivouac-process=unpack", r#"{"confined":true}"#]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn unpack(payload: &[u8]) -> Output {
    let mut child = unpacker();
    child.stdin.take().unwrap().write_all(payload).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn it_is_confined_before_it_reads() {
    let mut child = unpacker();
    let status = Path::new("/proc").join(child.id().to_string()).join("status");
    let start = Instant::now();
    while !fs::read_to_string(&status).unwrap().contains("Seccomp:\t2") {
        assert!(start.elapsed() < PATIENCE, "it is not confined");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.stdin.take().unwrap().write_all(&pack(Format::Zstd, b"kernel")).unwrap();
    let mut answer = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"\0kernel");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_bomb_does_not_go_off() {
    let place = Place::new("bomb");
    let zeros = vec![0; 16 << 20];
    for format in FORMATS {
        let mut payload = pack(format, &zeros);
        let trailer = payload.len() - 4;
        for (claimed, words) in
            [(4096_u32, "does not unpack"), (u32::MAX, "claims to unpack to 4294967295 bytes")]
        {
            payload[trailer..].copy_from_slice(&claimed.to_le_bytes());
            let answer = unpack(&payload).stdout;
            assert_eq!(answer.first(), Some(&1), "{format:?}");
            assert!(answer.len() < 1000, "{format:?}: {} bytes", answer.len());
            let output = place.run(&payload).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains(words), "{format:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(!output.status.success());
        }
    }
}
