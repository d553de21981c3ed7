//! Versions, attaching, walking, giving up.

use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::super::answer::Answer;
use super::super::directory::entry;
use super::super::dispatch::end;
use super::fids::{Fid, State};
use super::wire::{Fields, NO_USER, NOBODY, Out, Qid, TREES, UNKNOWN_VERSION, VERSION};
use super::{Call, done};
use crate::limits::{MAX_NINE_MESSAGE_BYTES, MAX_WALK_NAMES, MIN_NINE_MESSAGE_BYTES};
use crate::wire::{Attr, ROOT};

impl Call<'_, '_> {
    /// `Tversion`: a kernel mounts the share, and knows nothing yet.
    pub fn agree(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (size, version) = (fields.u32()?, fields.string()?);
        end(self.share);
        self.fids.clear();
        if size < MIN_NINE_MESSAGE_BYTES {
            return Err(Errno::MSGSIZE);
        }
        let out = Out::default().u32(size.min(MAX_NINE_MESSAGE_BYTES));
        if version != VERSION {
            return done(out.string(UNKNOWN_VERSION));
        }
        self.share.agreed.set(0);
        self.share.is_started.store(true, Ordering::Relaxed);
        done(out.string(VERSION))
    }

    /// `Tattach`: the root, for a user. There is nothing that a user could prove who he is with, and one tree.
    pub fn attach(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (number, _, _) = (fields.u32()?, fields.u32()?, fields.string()?);
        let (tree, user) = (fields.string()?, fields.u32()?);
        let (_, tree) = TREES.iter().find(|(name, _)| *name == tree).ok_or(Errno::NOENT)?;
        self.fids.set_tree(*tree);
        let user = if user == NO_USER { NOBODY } else { user };
        let qid = self.qid_of(ROOT)?;
        self.fids.add(self.counted(), number, Fid::named(ROOT, user))?;
        done(Out::default().qid(&qid))
    }

    /// What the guest knows a file with these attributes by.
    pub fn qid(&self, node: u64, attr: &Attr) -> Result<Qid, Errno> {
        let inodes = &self.share.inodes;
        Ok(Qid::of(attr, inodes.get(node)?.apart(inodes)))
    }

    /// What the guest knows a file by.
    pub fn qid_of(&self, node: u64) -> Result<Qid, Errno> {
        let inodes = &self.share.inodes;
        let inode = inodes.get(node)?;
        let status = super::super::inodes::attributes(&*inode.descriptor(inodes)?)?;
        Ok(Qid::of(&self.share.attributes(&inode, &status), inode.apart(inodes)))
    }

    /// `Twalk`. If it leads only part of the way, that is answered, and there is no new fid.
    pub fn walk(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (number, new, count) = (fields.u32()?, fields.u32()?, fields.u16()?);
        if count > MAX_WALK_NAMES {
            return Err(Errno::INVAL);
        }
        let names = (0..count).map(|_| fields.name()).collect::<Result<Vec<_>, _>>()?;
        let (share, from) = (self.share, self.fids.get(number)?);
        share.inodes.know_again(from.node)?;
        let mut at = Fid::named(from.node, from.user);
        let mut out = Out::default();
        let mut walked = 0;
        for name in &names {
            let directory = share.inodes.get(at.node);
            match directory.and_then(|directory| share.inodes.look_up(&directory, name)) {
                Ok((inode, status)) => {
                    let attr = entry(share, &inode, &status).attr;
                    out = out.qid(&Qid::of(&attr, inode.apart(&share.inodes)));
                    let above = std::mem::replace(&mut at, Fid::named(inode.number, from.user));
                    above.release(self.counted());
                    walked += 1;
                }
                Err(errno) if walked == 0 => {
                    at.release(self.counted());
                    return Err(errno);
                }
                Err(_) => break,
            }
        }
        match () {
            () if walked < count => at.release(self.counted()),
            () if new != number => self.fids.add(self.counted(), new, at)?,
            () if count == 0 => at.release(self.counted()),
            () => self.fids.replace(self.counted(), number, &from, at)?,
        }
        let qids = Out::default().u16(walked);
        done(Out([qids.0, out.0].concat()))
    }

    /// `Tclunk`. An attribute that has been written is set now.
    pub fn give_up(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let fid = self.fids.remove(fields.u32()?)?;
        let set = match &fid.state {
            State::Written(attribute) => self.set_attribute(&fid, attribute),
            _ => Ok(()),
        };
        fid.release(self.counted());
        set.map(|()| Answer::Bytes(Vec::new()))
    }

    /// `Tflush`: answered when the other request is. It is carried out, as all are.
    pub fn flush(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        self.fids.await_landing(fields.u16()?);
        Answer::done()
    }
}
