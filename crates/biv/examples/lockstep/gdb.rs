//! QEMU, and the part of GDB's remote protocol that it takes to lead it (GDB manual, appendix E).

use std::fs;
use std::io::{BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::state::{Field, State};
use crate::{Failure, Options};

/// Bytes of memory in one packet; QEMU takes some 4096 characters.
const PIECE_BYTES: usize = 1024;

/// QEMU, which does nothing unless it is told to. It ends with this.
pub struct Qemu {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    dump: PathBuf,
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // It has ended already, or does now.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.dump);
    }
}

impl Qemu {
    /// Starts it with the kernel, before its first instruction.
    pub fn start(options: &Options) -> Result<Qemu, Failure> {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg", "-cpu", "max", "-nodefaults", "-no-reboot", "-S"]);
        command.args(["-display", "none", "-serial", "null", "-gdb", "stdio"]);
        command.args(["-m", &options.mem.to_string(), "-append", &options.append]);
        command.arg("-kernel").arg(options.qemu_kernel.as_ref().unwrap_or(&options.kernel));
        if let Some(initrd) = &options.initrd {
            command.arg("-initrd").arg(initrd);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("qemu-system-x86_64: {error}"))?;
        let input = child.stdin.take().ok_or("no standard input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let name = format!("biv-lockstep-{}", std::process::id());
        let mut qemu = Qemu { child, input, output, dump: std::env::temp_dir().join(name) };
        qemu.ask("?")?;
        // Who has not read the description of the registers may not write them.
        qemu.ask("qXfer:features:read:target.xml:0,ff0")?;
        Ok(qemu)
    }

    /// Lets it run up to an address for the first time.
    pub fn run_to(&mut self, address: u64) -> Result<(), Failure> {
        self.expect_ok(&format!("Z1,{address:x},1"))?;
        let stopped = self.ask("c")?;
        if !stopped.starts_with('T') && !stopped.starts_with('S') {
            return Err(format!("QEMU did not come to {address:#x}: {stopped}").into());
        }
        self.expect_ok(&format!("z1,{address:x},1"))
    }

    /// One instruction, or one repetition of one.
    pub fn step(&mut self) -> Result<(), Failure> {
        self.ask("s").map(drop)
    }

    /// Its registers.
    pub fn state(&mut self) -> Result<State, Failure> {
        let reply = self.ask("g")?;
        State::from_packet(&bytes(&reply)?)
    }

    /// Gives it a register.
    pub fn set(&mut self, field: Field, value: u64) -> Result<(), Failure> {
        let digits: String = field.bytes(value).iter().map(|byte| format!("{byte:02x}")).collect();
        self.expect_ok(&format!("P{:x}={digits}", field.number()))
    }

    /// Up to 15 bytes at a linear address, as many as there are.
    pub fn read_code(&mut self, linear: u64) -> Result<Vec<u8>, Failure> {
        for length in [15, 1 + (!linear & 0xfff).min(14)] {
            let reply = self.ask(&format!("m{linear:x},{length:x}"))?;
            if !reply.starts_with('E') {
                return bytes(&reply);
            }
        }
        Ok(Vec::new())
    }

    /// All of its memory below `size`.
    pub fn memory(&mut self, size: u64) -> Result<Vec<u8>, Failure> {
        let command = format!("pmemsave 0 {size} \"{}\"", self.dump.display());
        let hex: String = command.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.expect_ok(&format!("qRcmd,{hex}"))?;
        Ok(fs::read(&self.dump)?)
    }

    /// Puts bytes into its memory.
    pub fn write_memory(&mut self, physical: u64, contents: &[u8]) -> Result<(), Failure> {
        self.expect_ok("Qqemu.PhyMemMode:1")?;
        for (number, piece) in contents.chunks(PIECE_BYTES).enumerate() {
            let at = physical + (number * PIECE_BYTES) as u64;
            let digits: String = piece.iter().map(|byte| format!("{byte:02x}")).collect();
            self.expect_ok(&format!("M{at:x},{:x}:{digits}", piece.len()))?;
        }
        self.expect_ok("Qqemu.PhyMemMode:0")
    }

    fn expect_ok(&mut self, packet: &str) -> Result<(), Failure> {
        // What the monitor says comes before, in packets of its own.
        let mut reply = self.ask(packet)?;
        while reply.starts_with('O') && reply != "OK" {
            reply = self.receive()?;
        }
        if reply == "OK" {
            return Ok(());
        }
        let start: String = packet.chars().take(40).collect();
        Err(format!("QEMU does not like {start}: {reply}").into())
    }

    fn ask(&mut self, packet: &str) -> Result<String, Failure> {
        let sum = packet.bytes().fold(0u8, u8::wrapping_add);
        write!(self.input, "${packet}#{sum:02x}")?;
        self.input.flush()?;
        self.receive()
    }

    /// The next packet; acknowledgements in front of it are passed over.
    fn receive(&mut self) -> Result<String, Failure> {
        while self.byte()? != b'$' {}
        let mut text = Vec::new();
        loop {
            match self.byte()? {
                b'#' => break,
                byte => text.push(byte),
            }
        }
        self.byte()?;
        self.byte()?;
        self.input.write_all(b"+")?;
        self.input.flush()?;
        Ok(String::from_utf8(text)?)
    }

    fn byte(&mut self) -> Result<u8, Failure> {
        let mut byte = [0];
        self.output.read_exact(&mut byte).map_err(|error| format!("QEMU has ended: {error}"))?;
        Ok(byte[0])
    }
}

fn bytes(hex: &str) -> Result<Vec<u8>, Failure> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            let digits = std::str::from_utf8(pair)?;
            u8::from_str_radix(digits, 16)
                .map_err(|_| Failure::from(format!("QEMU said {digits:?} for a byte")))
        })
        .collect()
}
