//! Extended attributes: each is a fid of its own while it is read or written.

use std::sync::Arc;

use locks::Unpoisoned;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::super::answer::Answer;
use super::super::request::gather;
use super::fids::{Attribute, Fid, State};
use super::wire::{Fields, Out, WRITE_HEAD_BYTES};
use super::{Asker, Call, done};
use crate::limits::MAX_ATTRIBUTE_BYTES;
use crate::wire::{GetxattrIn, SetxattrIn, opcode};

/// Part of the value of an attribute.
pub fn read(attribute: &Attribute, offset: u64, size: u32) -> Result<Answer, Errno> {
    let value = attribute.value.lock().unpoisoned();
    let from = usize::try_from(offset).map_or(value.len(), |offset| offset.min(value.len()));
    let part = &value[from..from.saturating_add(size as usize).min(value.len())];
    done(Out([&(part.len() as u32).to_le_bytes()[..], part].concat()))
}

impl Call<'_, '_> {
    /// `Txattrwalk`: an attribute's value, or the list of their names.
    pub fn find_attribute(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (number, new, name) = (fields.u32()?, fields.u32()?, fields.text()?);
        let fid = self.fids.get(number)?;
        let asked = GetxattrIn { size: MAX_ATTRIBUTE_BYTES as u32, padding: 0 };
        let answer = match name.is_empty() {
            true => self.ask(opcode::LISTXATTR, Asker::of(&fid), &asked, &[]),
            false => self.ask(opcode::GETXATTR, Asker::of(&fid), &asked, &[&name]),
        };
        let Answer::Bytes(value) = answer? else { return Err(Errno::IO) };
        let size = value.len();
        let attribute = self.fids.attribute(name, size, 0, value)?;
        self.share.inodes.know_again(fid.node)?;
        let found = Fid { state: State::Read(attribute), ..fid };
        self.fids.add(self.counted(), new, found)?;
        done(Out::default().u64(size as u64))
    }

    /// `Txattrcreate`: what is written from now on is an attribute's value.
    pub fn begin_attribute(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (number, name) = (fields.u32()?, fields.text()?);
        let (size, flags) = (fields.u64()?, fields.u32()?);
        self.share.check_writable()?;
        let fid = self.fids.get(number)?;
        let State::Named = fid.state else { return Err(Errno::BADF) };
        let size = usize::try_from(size).ok().filter(|size| *size <= MAX_ATTRIBUTE_BYTES);
        let size = size.ok_or(Errno::TOOBIG)?;
        let attribute = self.fids.attribute(name, size, flags, Vec::new())?;
        let begun = Fid { state: State::Written(attribute), ..fid.clone() };
        self.fids.replace(self.counted(), number, &fid, begun)?;
        Answer::done()
    }

    /// More of an attribute's value, which comes from its beginning to its end.
    pub fn write_attribute(
        &mut self,
        attribute: &Arc<Attribute>,
        offset: u64,
        count: u32,
    ) -> Result<Answer, Errno> {
        let mut value = attribute.value.lock().unpoisoned();
        let has_room = value.len() + count as usize <= attribute.size;
        if offset != value.len() as u64 || !has_room {
            return Err(Errno::INVAL);
        }
        let wanted = WRITE_HEAD_BYTES as u64 + u64::from(count);
        let message = gather(self.message.memory, &self.message.readable, wanted);
        value.extend(&message.map_err(|_| Errno::FAULT)?[WRITE_HEAD_BYTES..]);
        done(Out::default().u32(count))
    }

    /// The value has been written. Of no bytes, and to replace another, it is none (Linux, `v9fs_xattr_set`).
    pub fn set_attribute(&mut self, fid: &Fid, attribute: &Arc<Attribute>) -> Result<(), Errno> {
        let value = attribute.value.lock().unpoisoned();
        let asker = Asker::of(fid);
        match () {
            () if value.len() != attribute.size => Err(Errno::INVAL),
            () if value.is_empty() && attribute.flags & XattrFlags::REPLACE.bits() != 0 => {
                self.ask(opcode::REMOVEXATTR, asker, &(), &[&attribute.name]).map(drop)
            }
            () => {
                let asked = SetxattrIn { size: value.len() as u32, flags: attribute.flags };
                let name = attribute.name.as_bytes_with_nul();
                let bytes = [zerocopy::IntoBytes::as_bytes(&asked), name, &value].concat();
                self.ask(opcode::SETXATTR, asker, &bytes[..], &[]).map(drop)
            }
        }
    }
}
