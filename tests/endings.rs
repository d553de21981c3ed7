//! How a machine may end whose kernel does harm (`biv help run`).

/// What `timeout -s KILL` exits with when it had to.
pub const KILLED: i32 = 137;

/// Whether a machine has ended as its guest may make it end: quietly, by power-off, by its command or by
/// debug-exit with whatever value; or gone, by a panic, a triple fault or `--timeout`, and that is
/// said; or with nonsense on the channel to the guest's init, and that is said. A crash is a signal; a
/// panic and a refused system call are never quiet.
#[must_use]
pub fn is_an_end_of_the_guests(status: Option<i32>, complaint: &str) -> bool {
    let says = |start: &str| {
        !complaint.is_empty() && complaint.lines().all(|line| line.starts_with(start))
    };
    match status {
        None | Some(KILLED) => false,
        Some(122..=124) if !complaint.is_empty() => says("biv: the "),
        Some(125) => says("biv: guest channel ") || says("biv: the guest sent "),
        Some(_) => complaint.is_empty(),
    }
}
