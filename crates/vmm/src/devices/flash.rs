//! The flash with the variables of a machine's own firmware: what is in it, and the file that keeps that.
//!
//! What the guest programs or erases is written to the file before the guest goes on, so that whatever becomes of this
//! process, the file has it. The host writes it to its disk when it likes, at the latest when the machine has ended.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;

use devices::flash::{self, Medium, Refused};

use super::disk::Complain;
use super::{Device, Slots};
use crate::firmware;
use crate::outcome::Error;

/// See above.
pub struct Flash {
    contents: Vec<u8>,
    keeper: Option<Keeper>,
}

/// A file that has what is in a machine's flash.
pub struct Keeper {
    file: File,
    name: String,
    complain: Complain,
    has_complained: bool,
    has_written: bool,
}

impl Flash {
    /// Flash that begins with these bytes; without a keeper, what is written to it is lost with the machine.
    #[must_use]
    pub fn new(contents: Vec<u8>, keeper: Option<Keeper>) -> Self {
        Self { contents, keeper }
    }
}

impl Keeper {
    /// A file that is open for writing, and that the user knows by this name. `complain` is called when the host fails.
    #[must_use]
    pub fn new(file: File, name: String, complain: Complain) -> Self {
        Self { file, name, complain, has_complained: false, has_written: false }
    }
}

impl Medium for Keeper {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        self.has_written = true;
        self.file.write_all_at(bytes, offset).map_err(|error| {
            if !std::mem::replace(&mut self.has_complained, true) {
                (self.complain)(&format!(
                    "cannot write the firmware's variables to {}: {error}; the guest is told",
                    self.name
                ));
            }
            Refused
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if !self.has_written {
            return;
        }
        if let Err(error) = self.file.sync_data() {
            (self.complain)(&format!(
                "the host may not have written all of the firmware's variables to {}: {error}",
                self.name
            ));
        }
    }
}

impl fmt::Debug for Flash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Flash").field("bytes", &self.contents.len()).finish_non_exhaustive()
    }
}

impl Device for Flash {
    fn kind(&self) -> &'static str {
        flash::KIND
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let firmware = slots.firmware_bytes.unwrap_or(0);
        firmware::check_variables(self.contents.len() as u64, firmware)?;
        let medium = self.keeper.map(|keeper| Box::new(keeper) as _);
        Ok(devices::Flash::new(self.contents, medium).plug_into(slots.board(), firmware)?)
    }
}
