//! gdb's way to a machine: where it connects, the thread that serves it, and what its requests do to the processors.
//!
//! The socket listens before the machine starts; the thread begins before the process is confined, and opens nothing
//! afterwards. It waits in poll(2) while nobody is attached, or whoever is does nothing.

use std::io;
use std::net::TcpListener;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use debugger::registers::EXTENDED_BYTES;
use debugger::{
    Debuggee, Going, Listener, Places, Refused, RegisterFile, Space, Stop, Watch, Watched,
};
use spec::{Gdb, GdbAddress};
use vmm::{SegmentRegister, Stopped, Stops, Vcpu, WatchKind, Watchpoint, XSAVE_BYTES, rflags};

use crate::domain::Domain;
use crate::server::Machine;
use session::say;

/// The socket in a domain's directory.
const SOCKET: &str = "gdb";

/// Lets gdb connect, if it is to; whether the machine is to wait for it.
///
/// # Errors
///
/// The place cannot be had, or there is no thread.
pub fn offer(watch: &spec::Watch, domain: &Domain) -> io::Result<bool> {
    let Some(gdb) = &watch.gdb else { return Ok(false) };
    start(listen(gdb, domain)?, Arc::clone(&domain.machine))?;
    Ok(gdb.freeze)
}

/// Listens where the description says, or else in the domain's directory, and says where.
fn listen(gdb: &Gdb, domain: &Domain) -> io::Result<Listener> {
    let owner = rustix::process::geteuid();
    let (listener, place) = match &gdb.at {
        Some(GdbAddress::Tcp(address)) => {
            let listener = TcpListener::bind(address)?;
            // The connections have it, too; a confined process cannot set it.
            rustix::net::sockopt::set_tcp_nodelay(&listener, true)?;
            listener.set_nonblocking(true)?;
            (Listener::Tcp(listener), address.to_string())
        }
        Some(GdbAddress::Unix(path)) => {
            let listener = listen_at(path)?;
            listener.set_nonblocking(true)?;
            (Listener::Unix(listener, owner), path.display().to_string())
        }
        None => {
            let (directory, path) = domain.place().ok_or(io::ErrorKind::NotFound)?;
            let listener = api::files::listen(directory, SOCKET)?;
            listener.set_nonblocking(true)?;
            (Listener::Unix(listener, owner), path.join(SOCKET).display().to_string())
        }
    };
    say::say(&format!("gdb can connect: target remote {place}"));
    Ok(listener)
}

/// Listens at a path, for this user. A socket that a machine has left there, which cannot remove it, is replaced.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let is_left = || {
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
            && UnixStream::connect(path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left() => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Starts the thread that serves gdb, once there is a machine.
fn start(listener: Listener, machine: Machine) -> io::Result<()> {
    let (unprivileged, told) = mpsc::channel::<()>();
    std::thread::Builder::new().name("gdb".into()).spawn(move || {
        // As the domain's other threads; what it needs is open.
        let _ = host::privileges::drop_all();
        drop(unprivileged);
        match machine.wait().debugger() {
            Ok(debugger) => debugger::serve(&listener, &mut Debugged(debugger)),
            Err(error) => say::say(&format!("gdb cannot debug the machine: {error}")),
        }
    })?;
    let _ = told.recv();
    Ok(())
}

/// A machine, for the protocol.
struct Debugged(vmm::Debugger);

impl Debugged {
    fn on<T: Send + 'static>(
        &self,
        processor: usize,
        act: impl FnOnce(&mut Vcpu) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        self.0.on(processor, act).map_err(|_| Refused)
    }

    /// Have each processor stop there, and step if it is to.
    fn set(&self, stops: Stops, going: &[Going]) -> Result<(), Refused> {
        let stops = Arc::new(stops);
        for processor in 0..self.0.processors() {
            let (stops, steps) = (Arc::clone(&stops), going.get(processor) == Some(&Going::Step));
            self.on(processor, move |cpu| {
                cpu.set_stops(&stops);
                cpu.set_step(steps);
            })?;
        }
        Ok(())
    }
}

fn theirs(kind: Watch) -> WatchKind {
    match kind {
        Watch::Write => WatchKind::Write,
        Watch::Read => WatchKind::Read,
        Watch::Access => WatchKind::Access,
    }
}

fn ours(kind: WatchKind) -> Watch {
    match kind {
        WatchKind::Write => Watch::Write,
        WatchKind::Read => Watch::Read,
        WatchKind::Access => Watch::Access,
    }
}

impl Debuggee for Debugged {
    fn processors(&self) -> usize {
        self.0.processors()
    }

    fn hold(&mut self) -> bool {
        self.0.hold()
    }

    fn event(&self) -> BorrowedFd<'_> {
        self.0.event()
    }

    fn take_stop(&mut self) -> Option<(usize, Stop)> {
        self.0.take_stop().map(|(processor, stop)| {
            let stop = match stop {
                Stopped::Step => Stop::Step,
                Stopped::Breakpoint => Stop::Breakpoint,
                Stopped::Watchpoint(kind, at) => Stop::Watchpoint(ours(kind), at),
            };
            (processor, stop)
        })
    }

    fn go_on(&mut self, places: &Places, going: &[Going]) -> Result<(), Refused> {
        let watchpoint = |&Watched { start, length, kind }: &Watched| Watchpoint {
            start,
            length,
            kind: theirs(kind),
        };
        let watchpoints = places.watchpoints.iter().map(watchpoint).collect();
        self.set(Stops::new(places.breakpoints.clone(), watchpoints), going)?;
        let goes = going.iter().enumerate().filter(|(_, going)| **going != Going::Held);
        self.0.release(goes.map(|(processor, _)| processor));
        Ok(())
    }

    fn leave(&mut self) {
        // One that does not stand still in time has its stops until it is held again.
        let is_held = self.0.hold();
        if self.set(Stops::default(), &[]).is_err() || !is_held {
            tracing::warn!("not all processors have forgotten what a debugger wanted");
        }
        while self.0.take_stop().is_some() {}
        self.0.release(0..self.0.processors());
    }

    fn registers(&mut self, processor: usize) -> Result<RegisterFile, Refused> {
        self.on(processor, |cpu| {
            let regs = cpu.registers();
            let base = |which| regs.segment(which).base;
            let mut file = RegisterFile {
                general: regs.gpr,
                rip: regs.rip,
                rflags: regs.rflags(),
                selectors: regs.segments.map(|segment| segment.selector),
                bases: [base(SegmentRegister::Fs), base(SegmentRegister::Gs), regs.kernel_gs_base],
                control: [regs.cr0, regs.cr2, regs.cr3, regs.cr4, regs.efer],
                ..RegisterFile::default()
            };
            file.extended.copy_from_slice(&cpu.extended_state()[..EXTENDED_BYTES]);
            file
        })
    }

    fn set_registers(&mut self, processor: usize, file: &RegisterFile) -> Result<(), Refused> {
        let is_canonical = |base: &u64| (*base << 16).cast_signed() >> 16 == base.cast_signed();
        if !file.bases.iter().all(is_canonical) {
            return Err(Refused);
        }
        let file = file.clone();
        self.on(processor, move |cpu| {
            let (mut regs, mut extended) = (*cpu.registers(), *cpu.extended_state());
            (regs.gpr, regs.rip) = (file.general, file.rip);
            let mode = regs.rflags() & rflags::VM;
            regs.set_rflags(file.rflags & !rflags::VM | mode);
            regs.segment_mut(SegmentRegister::Fs).base = file.bases[0];
            regs.segment_mut(SegmentRegister::Gs).base = file.bases[1];
            regs.kernel_gs_base = file.bases[2];
            extended[..EXTENDED_BYTES].copy_from_slice(&file.extended);
            cpu.set_state(&regs, Some(&extended)).map_err(|_| Refused)
        })?
    }

    fn read(
        &mut self,
        processor: usize,
        space: Space,
        at: u64,
        bytes: &mut [u8],
    ) -> Result<usize, Refused> {
        let length = bytes.len();
        let read = self.on(processor, move |cpu| {
            let mut buffer = vec![0; length];
            let read = |buffer: &mut [u8]| match space {
                Space::Linear => cpu.read_linear(at, buffer),
                Space::Physical => cpu.read_physical_memory(at, buffer),
            };
            if let Err(vmm::Unmapped(hole)) = read(&mut buffer) {
                let there = usize::try_from(hole.wrapping_sub(at)).unwrap_or(0).min(length);
                buffer.truncate(there);
                read(&mut buffer).map_err(|_| Refused)?;
            }
            Ok(buffer)
        })??;
        if read.is_empty() && length > 0 {
            return Err(Refused);
        }
        bytes[..read.len()].copy_from_slice(&read);
        Ok(read.len())
    }

    fn write(
        &mut self,
        processor: usize,
        space: Space,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let bytes = bytes.to_vec();
        let written = self.on(processor, move |cpu| match space {
            Space::Linear => cpu.write_linear(at, &bytes),
            Space::Physical => cpu.write_physical_memory(at, &bytes),
        })?;
        written.map_err(|_| Refused)
    }

    fn physical_of(&mut self, processor: usize, at: u64) -> Result<u64, Refused> {
        self.on(processor, move |cpu| cpu.physical_of(at))?.map_err(|_| Refused)
    }

    fn kill(&mut self) {
        self.0.kill();
    }
}

const _: () = assert!(EXTENDED_BYTES <= XSAVE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_nobody_listens_at_is_replaced_and_others_are_not() {
        let directory = std::env::temp_dir().join(format!("biv-gdb-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("socket");
        let first = listen_at(&path).unwrap();
        assert_eq!(listen_at(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        drop(listen_at(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a file").unwrap();
        assert_eq!(listen_at(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
