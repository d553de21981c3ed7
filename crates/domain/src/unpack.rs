//! Unpacks kernels in a process of their own: the program starts itself again for that. The process
//! confines itself to reading its input and writing its output before it looks at its input,
//! because a kernel may come from anywhere, and several of the decompressors are C.
//!
//! 1. Its input is a memory file that is complete before it starts, so its parent never waits for
//!    it to read.
//! 2. Its answer is a byte that tells the outcome, and then the unpacked kernel or the reason. The
//!    parent reads no more than the payload's length announces.
//! 3. Memory and processor time are limited, and the process ends with its parent.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::process::{Child, Stdio};
use std::sync::Arc;

use provision::UnpackedKernels;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::Resource;
use vmm::{KernelCache, Unpacker};

use crate::helper::{bound, helper};
use serde::{Deserialize, Serialize};
use spec::shown;

/// The kind of process that unpacks.
pub const KIND: &str = "unpack";

/// What it is started with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unpacking {
    /// It may make the system calls only that it needs.
    pub confined: bool,
}

/// What the answer begins with.
const UNPACKED: u8 = 0;
const REFUSED: u8 = 1;

/// Longest reason that is taken.
const MAX_REASON_BYTES: u64 = 1024;

/// Address space of the process: the largest payload and kernel, a dictionary, and the program.
const MAX_ADDRESS_SPACE_BYTES: u64 = 4 << 30;

/// Processor time of the process: more than the slowest method needs for the largest kernel.
const MAX_PROCESSOR_SECONDS: u64 = 600;

/// The user's cache of unpacked kernels, unless another user may write there.
pub fn cache() -> Option<Arc<dyn KernelCache>> {
    UnpackedKernels::of_user().map(|kernels| Arc::new(kernels) as _)
}

/// One that has such a process unpack, which is confined if it is to be.
pub fn unpacker(confine: bool) -> Unpacker {
    let unpack = move |payload: &[u8]| unpack(payload, confine);
    Unpacker(Some(Arc::new(unpack)))
}

fn unpack(payload: &[u8], confine: bool) -> Result<Vec<u8>, String> {
    let limit = vmm::unpacked_bytes(payload).map_err(|error| error.to_string())?;
    let failed = |error: io::Error| format!("cannot unpack the kernel: {error}");
    let mut child = start(payload, confine).map_err(failed)?;
    let answer = child.stdout.take().map(|output| receive(output, limit));
    // It has said everything, or too much.
    let _ = child.kill();
    let status = child.wait().map_err(failed)?;
    match answer {
        Some(Ok(Some(answer))) => answer,
        Some(Err(error)) => Err(failed(error)),
        _ => Err(format!(
            "the process that unpacks the kernel failed ({status}); get the kernel anew"
        )),
    }
}

fn start(payload: &[u8], confine: bool) -> io::Result<Child> {
    let mut input = File::from(memfd_create("payload", MemfdFlags::CLOEXEC)?);
    input.write_all(payload)?;
    input.rewind()?;
    let mut command = helper(KIND, &Unpacking { confined: confine })?;
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
}

/// The answer, if there is one: the kernel, of `limit` bytes, or why there is none.
fn receive(mut output: impl Read, limit: u64) -> io::Result<Option<Result<Vec<u8>, String>>> {
    let mut kind = [0];
    if output.read(&mut kind)? == 0 {
        return Ok(None);
    }
    if kind != [UNPACKED] {
        let mut reason = Vec::new();
        output.take(MAX_REASON_BYTES).read_to_end(&mut reason)?;
        return Ok(Some(Err(shown::line(&String::from_utf8_lossy(&reason)))));
    }
    let mut kernel = Vec::new();
    let room = usize::try_from(limit + 1).map_err(io::Error::other)?;
    kernel.try_reserve_exact(room).map_err(io::Error::other)?;
    output.take(limit + 1).read_to_end(&mut kernel)?;
    Ok((kernel.len() as u64 == limit).then_some(Ok(kernel)))
}

/// What that process does.
///
/// # Errors
///
/// The process cannot be confined, or its parent has ended.
pub fn serve(confine: bool) -> io::Result<()> {
    bound(&[(Resource::As, MAX_ADDRESS_SPACE_BYTES), (Resource::Cpu, MAX_PROCESSOR_SECONDS)])?;
    if confine {
        host::confine::confine_unpacker().map_err(io::Error::other)?;
    }
    let mut payload = Vec::new();
    io::stdin().lock().read_to_end(&mut payload)?;
    let answer = vmm::unpack_payload(&payload).map_err(|error| error.to_string());
    let (kind, bytes) = match &answer {
        Ok(kernel) => (UNPACKED, &kernel[..]),
        Err(reason) => (REFUSED, reason.as_bytes()),
    };
    let mut output = io::stdout().lock();
    output.write_all(&[kind])?;
    output.write_all(bytes)?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &[u8], limit: u64, expected: Option<Result<&[u8], &str>>) {
        let expected = expected.map(|it| it.map(<[u8]>::to_vec).map_err(str::to_owned));
        assert_eq!(receive(output, limit).unwrap(), expected, "{output:?}");
    }

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        check(b"\0kernel", 6, Some(Ok(b"kernel")));
        check(b"\0kernel", 7, None);
        check(b"\0kernels", 6, None);
        check(b"\0", 0, Some(Ok(b"")));
        check(b"", 6, None);
        check(b"\x01it is damaged", 6, Some(Err("it is damaged")));
        check(b"\x01a\x1b[2Jb\n", 6, Some(Err("a\\u{1b}[2Jb\\n")));
    }

    #[test]
    fn what_does_not_end_is_cut_off() {
        let zeros = io::repeat(UNPACKED);
        assert_eq!(receive(zeros, 1000).unwrap(), None);
        let reason = receive(io::repeat(REFUSED), 1000).unwrap().unwrap().unwrap_err();
        assert_eq!(reason.matches("\\u{1}").count() as u64, MAX_REASON_BYTES);
    }
}
