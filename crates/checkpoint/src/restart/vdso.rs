//! Processes go on with a kernel that has another vDSO than theirs.
//!
//! Programs have looked up once where its functions are. So the pages of the old one stay, as private memory at their
//! place, and where each of its functions began there is a jump to that of the new one, which is mapped elsewhere. The
//! old one's data is not mapped any more: nothing of the old one is executed but the jumps. Where the new one lacks a
//! function there is the system call that it stands for.
//!
//! In a later image the old one is memory like any other, and the new one is its vDSO: so that may go on elsewhere too,
//! over a chain of jumps.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::hole;
use crate::error::Error;
use crate::functions::{Function, functions};
use crate::image::Image;
use crate::limits::MAX_VDSO_BYTES;
use crate::proc::maps;
use crate::state::{Mapping, Memory, Source};

/// Functions begin at multiples of that.
const ALIGNMENT: u64 = 16;
/// The place of `rip` among the registers of an image.
const INSTRUCTION: usize = 16;

/// Another vDSO than that of the image.
#[derive(Debug)]
pub(super) struct Other {
    /// Where its data and it itself begin, in each process, and end.
    pub start: u64,
    pub end: u64,
    /// Where it begins.
    pub code: u64,
    /// Its digest.
    pub digest: [u8; 32],
    /// The old one's pages, with the jumps.
    pub old: Vec<u8>,
}

/// Look whether the kernel has another vDSO than the processes had; `task` is one of the kernel's.
pub(super) fn find(task: u32, image: &Image) -> Result<Option<Other>, Error> {
    let state = image.state();
    let all = state.processes.iter().flat_map(|process| &process.memory.mappings);
    let old: Vec<&Mapping> = all.filter(|mapping| mapping.source == Source::Vdso).collect();
    if old.is_empty() {
        return Ok(None);
    }
    let lines = maps::read(task)?;
    let is_special = |line: &&maps::Line| line.name == "[vdso]" || line.name.starts_with("[vvar");
    let specials: Vec<&maps::Line> = lines.iter().filter(is_special).collect();
    let line = specials.iter().find(|line| line.name == "[vdso]");
    let (Some(first), Some(line)) = (specials.first(), line) else {
        return Err(Error::Host("there is no vDSO where it is to go on".to_owned()));
    };
    let mut new = vec![0; (line.end - line.start).min(MAX_VDSO_BYTES as u64) as usize];
    let memory = File::open(format!("/proc/{task}/mem")).map_err(Error::io("open memory"))?;
    memory.read_exact_at(&mut new, line.start).map_err(Error::io("read the vDSO"))?;
    let digest = *blake3::hash(&new).as_bytes();
    if digest.as_slice() == &*state.vdso {
        return Ok(None);
    }
    let code = &state.vdso_code;
    if old.iter().any(|old| old.end - old.start != code.len() as u64) {
        let what = "its kernel had another vDSO than this one, and the image does not have it";
        return Err(Error::Host(what.to_owned()));
    }
    if state.processes.iter().any(|process| is_inside(process, &process.memory)) {
        let what = "its kernel had another vDSO than this one, and a thread was in it";
        return Err(Error::Host(what.to_owned()));
    }
    let bytes = line.end - first.start;
    if bytes > inject::AREA_BYTES {
        return Err(Error::Host("the vDSO is too large where it is to go on".to_owned()));
    }
    // The seed's area is mapped, so this is another place.
    let start = hole::find(task, state)?;
    let at = start + (line.start - first.start);
    let old = join((code, image.functions()), &new, at)?;
    Ok(Some(Other { start, end: start + bytes, code: at, digest, old }))
}

/// Whether a thread is in the vDSO of its process.
fn is_inside(process: &crate::state::Process, memory: &Memory) -> bool {
    let vdso = memory.mappings.iter().find(|mapping| mapping.source == Source::Vdso);
    let is_there = |at: u64| vdso.is_some_and(|vdso| (vdso.start..vdso.end).contains(&at));
    process.threads.iter().any(|thread| is_there(thread.registers[INSTRUCTION]))
}

/// The old one, which has these functions, with jumps to the new one, which is at `at`.
fn join((old, from): (&[u8], &[Function]), new: &[u8], at: u64) -> Result<Vec<u8>, Error> {
    if from.is_empty() {
        return Err(Error::Image("a vDSO is no ELF file, or has no function".to_owned()));
    }
    let to = functions(new)?;
    let to: BTreeMap<&str, u64> = to.iter().map(|it| (it.name.as_str(), it.offset)).collect();
    let mut joined = old.to_vec();
    for Function { name, offset, bytes } in from {
        let code = match to.get(name.as_str()) {
            Some(found) => jump(at.wrapping_add(*found)),
            None => substitute(name),
        };
        let room = bytes.checked_next_multiple_of(ALIGNMENT);
        let is_room = room.is_some_and(|room| code.len() as u64 <= room);
        let place = usize::try_from(*offset)
            .ok()
            .and_then(|offset| joined.get_mut(offset..offset.checked_add(code.len())?));
        let place = place.filter(|_| is_room).ok_or_else(|| {
            Error::Image(format!("the function {name} of a vDSO has no room for a jump"))
        })?;
        place.copy_from_slice(&code);
    }
    Ok(joined)
}

/// `mov rax, address; jmp rax`: a function finds nothing in that register, and leaves its result there.
fn jump(address: u64) -> Vec<u8> {
    let mut code = vec![0x48, 0xb8];
    code.extend(address.to_le_bytes());
    code.extend([0xff, 0xe0]);
    code
}

/// `mov rax, -ENOSYS; ret`.
const NOT_THERE: [u8; 8] = [0x48, 0xc7, 0xc0, 0xda, 0xff, 0xff, 0xff, 0xc3];

/// What stands in place of a function that the new one lacks.
fn substitute(name: &str) -> Vec<u8> {
    let number = match name.strip_prefix("__vdso_").unwrap_or(name) {
        "clock_gettime" => libc::SYS_clock_gettime,
        "gettimeofday" => libc::SYS_gettimeofday,
        "clock_getres" => libc::SYS_clock_getres,
        "time" => libc::SYS_time,
        "getcpu" => libc::SYS_getcpu,
        "getrandom" => libc::SYS_getrandom,
        _ => return NOT_THERE.to_vec(),
    };
    // `mov eax, number; syscall; ret`.
    let mut call = vec![0xb8];
    call.extend(u32::try_from(number).unwrap_or(0).to_le_bytes());
    call.extend([0x0f, 0x05, 0xc3]);
    if number == libc::SYS_getrandom {
        // Its fifth argument says whether it is asked about itself instead: `cmp r8, -1; je` over the call.
        let mut code = vec![0x49, 0x83, 0xf8, 0xff, 0x74, 8];
        code.extend(call);
        code.extend(NOT_THERE);
        return code;
    }
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Our own.
    fn own() -> Vec<u8> {
        let lines = maps::read(std::process::id()).expect("we may read our own");
        let line = lines.iter().find(|line| line.name == "[vdso]").expect("there is one");
        let memory = File::open("/proc/self/mem").expect("we may read our own");
        let mut bytes = vec![0; (line.end - line.start) as usize];
        memory.read_exact_at(&mut bytes, line.start).expect("it is there");
        bytes
    }

    #[test]
    fn functions_lead_to_the_new_ones() {
        let vdso = own();
        let functions = functions(&vdso).expect("it is one");
        let joined = join((&vdso, &functions), &vdso, 0x7000_0000_0000).expect("it has room");
        for name in ["__vdso_clock_gettime", "__vdso_time", "__vdso_getcpu", "gettimeofday"] {
            let function = functions.iter().find(|function| function.name == name);
            let offset = function.expect("there is one").offset;
            let found = &joined[offset as usize..][..12];
            assert_eq!(found, jump(0x7000_0000_0000 + offset), "{name}");
        }
        // Its tables are as they were.
        assert_eq!(joined[..0x200], vdso[..0x200]);
    }

    #[test]
    fn what_is_missing_is_a_system_call() {
        assert_eq!(substitute("__vdso_time"), [0xb8, 201, 0, 0, 0, 0x0f, 0x05, 0xc3]);
        assert_eq!(substitute("__vdso_sgx_enter_enclave"), NOT_THERE);
        let code = substitute("getrandom");
        assert_eq!(code[6 + usize::from(code[5])..], NOT_THERE);
    }

    #[test]
    fn what_is_no_vdso_is_refused() {
        let vdso = own();
        let join = |old: &[u8], new: &[u8]| join((old, &functions(old)?), new, 0);
        for cut in 0..vdso.len().min(6000) {
            // Whatever is missing, nothing is written where it does not belong, and nothing panics.
            let _ = join(&vdso[..cut], &vdso);
            let _ = join(&vdso, &vdso[..cut]);
        }
        assert!(join(&[0; 4096], &vdso).is_err());
        assert!(super::join((&vdso, &[]), &vdso, 0).is_err());
        let beyond = |offset, bytes| Function { name: "time".to_owned(), offset, bytes };
        for function in [beyond(vdso.len() as u64, 64), beyond(u64::MAX, 64), beyond(0, u64::MAX)] {
            assert!(super::join((&vdso, &[function]), &vdso, 0).is_err());
        }
    }
}
