//! What an image may say of the pod that its processes were.

use super::words::require;
use crate::error::Error;
use crate::pod::Pod;
use crate::state::State;

/// Bytes of a host name, at the most (the kernel's limit).
const MAX_HOSTNAME_BYTES: usize = 64;
/// Bytes of the name of a network, and of a lease.
const MAX_JOINED_BYTES: usize = 64;
/// Words of a command, at the most.
const MAX_WORDS: usize = 65_536;
/// Bytes of a path.
const MAX_PATH_BYTES: usize = 4096;
/// Nanoseconds that a clock may show, and one more: what the kernel allows (`KTIME_MAX / 2`).
const MAX_CLOCK: u64 = i64::MAX as u64 / 2;

/// The highest number of a terminal, and one more (`NR_UNIX98_PTY_MAX`).
const MAX_TERMINALS: u32 = 1 << 20;

/// Check what an image says of a pod.
pub(crate) fn check(pod: &Pod, state: &State) -> Result<(), Error> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let is_name = (1..=MAX_HOSTNAME_BYTES).contains(&pod.hostname.len())
        && pod.hostname.chars().all(is_letter);
    require(is_name, "its host name is wrong")?;
    require(pod.command.len() <= MAX_WORDS, "its command is too long")?;
    require(pod.root.len() <= MAX_PATH_BYTES, "the path of its root is too long")?;
    require(pod.clocks.iter().all(|clock| *clock < MAX_CLOCK), "its clocks are wrong")?;
    let is_word =
        |text: &str| (1..=MAX_JOINED_BYTES).contains(&text.len()) && text.chars().all(is_letter);
    let is_joined = |it: &crate::pod::Joined| is_word(&it.network) && is_word(&it.lease);
    require(pod.joined.as_ref().is_none_or(is_joined), "its network is wrong")?;
    let leads = |process: &&crate::state::Process| process.pid == pod.first;
    let first = state.processes.iter().find(leads);
    let lives = first.is_some_and(|first| first.ended.is_none() && first.parent == 0);
    let is_terminal = pod.terminal.is_none_or(|terminal| terminal < MAX_TERMINALS);
    require(is_terminal, "its terminal is wrong")?;
    require(lives, "its first command is missing")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::Joined;

    #[test]
    fn a_pod_needs_its_first_command() {
        let pod = Pod {
            hostname: "web-1".to_owned(),
            command: vec!["sleep".to_owned()],
            first: 2,
            root: "/".to_owned(),
            is_writable: false,
            terminal: None,
            clocks: [1, 2],
            joined: None,
        };
        let nothing = State::default();
        let why = |pod: &Pod| check(pod, &nothing).unwrap_err().to_string();
        assert!(why(&pod).contains("its first command is missing"));
        assert!(why(&Pod { hostname: "a\n".to_owned(), ..pod.clone() }).contains("host name"));
        let joined = Joined { network: "a\n".into(), address: [1; 4].into(), lease: "1".into() };
        assert!(why(&Pod { joined: Some(joined), ..pod.clone() }).contains("network"));
        assert!(why(&Pod { clocks: [1, u64::MAX], ..pod }).contains("clocks"));
    }
}
