//! A machine whose process 1 is the user's own (`biv run --init PATH`), such as systemd.
//!
//! Init prepares the system as for any command. Then it starts an [agent](crate::agent), which serves the host from
//! there on, and executes the program. What rules it:
//!
//! 1. *The program is process 1*, with the kernel's console as its streams, as if the kernel had started it. It
//!    inherits nothing else: no thread, and no descriptor.
//! 2. *The agent has nothing open of the new root* but its working directory, so that the root can be mounted
//!    read-only in the end. Its program lies in what the kernel unpacked.
//! 3. *The host hears whether the program runs*: the agent reads from a pipe whose other end closes when the program
//!    is executed. What comes through it instead is why it cannot be.
//! 4. *What a system mounts itself is left to it*: `/tmp`, and the control groups, whose options are its own choice.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use protocol::{ORDER_MAX_BYTES, Order, OrderError};
use rustix::fs::{Access, access};
use service::error::Error;
use service::reaper;

use crate::{agent, modules};

/// The order for process 1.
#[derive(Debug, Default)]
pub struct Ordered {
    /// What has come of it.
    bytes: Vec<u8>,
    /// All of it, once it is to be carried out.
    order: Option<Order>,
}

impl Ordered {
    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Takes the next part.
    pub fn add(&mut self, part: &[u8]) -> Result<(), Error> {
        if self.bytes.len() + part.len() > ORDER_MAX_BYTES {
            return Err(OrderError::TooLarge.into());
        }
        self.bytes.extend(part);
        Ok(())
    }

    /// The order is complete, and the root is there; why its program cannot be process 1, if that is known.
    pub fn complete(&mut self) -> Result<Option<String>, Error> {
        let order = Order::decode(&self.bytes)?;
        let program = Path::new(OsStr::from_bytes(&order.arguments[0]));
        let why_not = why_not(program).map(|why| cannot_run(program, &why));
        self.order = why_not.is_none().then_some(order);
        Ok(why_not)
    }

    /// The order, if it was complete and can be carried out.
    pub fn into_order(self) -> Option<Order> {
        self.order
    }
}

/// What is wrong with a program that is to be executed.
fn why_not(program: &Path) -> Option<String> {
    match fs::metadata(program) {
        Err(error) => Some(error.to_string()),
        Ok(found) if !found.is_file() => Some("it is no file".to_owned()),
        Ok(_) => Some(io::Error::from(access(program, Access::EXEC_OK).err()?).to_string()),
    }
}

/// What the host is told of that.
fn cannot_run(program: &Path, why: &str) -> String {
    format!("the guest cannot execute {} as its process 1 (--init): {why}", program.display())
}

/// Has the agent serve the host over this device, and becomes the program. Returns only if it cannot, after the host
/// has been told so.
pub fn become_ordered(device: OwnedFd, order: &Order) -> io::Error {
    let (reader, mut writer) = match io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => return error,
    };
    let held = reaper::hold();
    let agent = Command::new("/proc/self/exe")
        .arg0(agent::NAME)
        .env_clear()
        .stdin(Stdio::from(device))
        .stdout(Stdio::from(reader))
        .stderr(Stdio::null())
        .spawn();
    let mut agent = match agent {
        Ok(agent) => agent,
        Err(error) => return error,
    };
    modules::leave_to(agent.id());
    let mut words = order.arguments.iter().map(|word| OsStr::from_bytes(word));
    let program = Path::new(words.next().unwrap_or_default());
    let mut command = Command::new(program);
    command.args(words).env_clear().current_dir("/");
    for item in &order.environment {
        if let Some(at) = item.iter().position(|byte| *byte == b'=').filter(|at| *at > 0) {
            command.env(OsStr::from_bytes(&item[..at]), OsStr::from_bytes(&item[at + 1..]));
        }
    }
    let error = command.exec();
    let why = cannot_run(program, &error.to_string());
    let _ = writer.write_all(why.as_bytes());
    drop((writer, held));
    // It ends when the host has heard that; somebody else may have reaped it.
    let _ = agent.wait();
    io::Error::other(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(program: &str) -> Ordered {
        let arguments = vec![program.as_bytes().to_vec()];
        let order = Order { arguments, directory: b"/".to_vec(), ..Order::default() };
        let mut ordered = Ordered::default();
        let bytes = order.encode().unwrap();
        let (front, back) = bytes.split_at(bytes.len() / 2);
        ordered.add(front).unwrap();
        assert!(ordered.is_some());
        ordered.add(back).unwrap();
        ordered
    }

    #[test]
    fn what_cannot_be_executed_is_said_before_it_is_tried() {
        let check = |program: &str, expected: Option<&str>| {
            let mut ordered = ordered(program);
            let why = ordered.complete().unwrap();
            match expected {
                None => assert_eq!(why, None),
                Some(text) => {
                    assert!(why.as_ref().is_some_and(|why| why.contains(text)), "{why:?}")
                }
            }
            assert_eq!(ordered.into_order().is_some(), expected.is_none());
        };
        check("/bin/sh", None);
        check("/no/such/init", Some("No such file"));
        check("/etc", Some("it is no file"));
        check("/etc/passwd", Some("Permission denied"));
    }

    #[test]
    fn what_is_no_order_is_refused() {
        let mut none = Ordered::default();
        assert!(!none.is_some());
        assert!(none.complete().is_err());
        let mut long = Ordered::default();
        long.add(&vec![0; ORDER_MAX_BYTES]).unwrap();
        assert!(long.add(&[0]).is_err());
    }
}
