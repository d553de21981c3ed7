//! The exit statuses of `biv`: one scheme for every verb, after `timeout(1)`, `env(1)` and shells.

/// A machine that was told to by `--debug-exit`, a command in the guest: their own status.
/// What follows is `biv`'s.
pub const SUCCESS: u8 = 0;
/// `biv doctor`: no machine can run on this host.
pub const UNFIT: u8 = 1;
/// The command line makes no sense (as clap and most programs have it).
pub const USAGE: u8 = 2;
/// The guest ended without saying how its command ended: it panicked, rebooted or switched itself
/// off.
pub const GUEST_LOST: u8 = 122;
/// Triple fault: the guest's processor shut down.
pub const TRIPLE_FAULT: u8 = 123;
/// `--timeout` expired.
pub const TIMEOUT: u8 = 124;
/// `biv` could not do its part: a file, memory, the network, the host.
pub const FAILURE: u8 = 125;
/// The command in the guest was found but could not be run.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command in the guest was not found.
pub const NOT_FOUND: u8 = 127;

/// The status for an end by signal `number`, of the command or of `biv` itself.
#[must_use]
pub fn of_signal(number: u8) -> u8 {
    128u8.wrapping_add(number)
}

/// The table for the help text and the man page.
pub const HELP: &str = "\
Exit status:
  N        the status of COMMAND; 128+S if signal S ended it
  0        a plain machine powered off (or rebooted, with --no-reboot)
  1        biv doctor: no machine can run on this host
  2        usage error
  122      the guest ended without reporting a status (panic, reboot, power-off)
  123      the guest's processor shut down on a triple fault
  124      --timeout expired
  125      biv failed (a file, memory, the network, the host), or the guest lacks a device or mount
  126      COMMAND could not be executed in the guest, or its working directory does not exist
  127      COMMAND was not found in the guest
  128+S    biv was ended by signal S; 130 also after Ctrl-] three times
  (V<<1)|1 the guest wrote V to the port of --debug-exit";
