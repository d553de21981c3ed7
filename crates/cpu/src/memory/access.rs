//! Access to linear addresses from Rust: checked, split at pages, through the same software TLB
//! that translated code uses.
//!
//! A write first makes sure that every page can be written, and only then changes a byte. A write
//! into a page that has translations drops those that it overlaps.

use std::sync::atomic::Ordering;

use super::paging::{Accessor, Translation, walk};
use super::tlb::{Entry, View, index_of};
use super::{Access, Flush, Linear, PAGE_SIZE, Physical, Place, Privilege};
use crate::architectural::Architectural;
use crate::exception::{Exception, Trap};
use crate::exit::Exit;
use crate::state::{cr0, cr4, rflags};

impl Architectural {
    fn accessor(&self, privilege: Privilege) -> Accessor {
        let regs = &self.context.regs;
        let user = privilege == Privilege::Current && regs.mode().is_user();
        Accessor {
            user,
            smap_override: privilege == Privilege::Current && regs.alignment_flag != 0,
        }
    }

    /// The index of the `SpaceTlb` that translated code uses in the current mode.
    pub(crate) fn current_tlb(&mut self) -> usize {
        let accessor = self.accessor(Privilege::Current);
        self.tlb_for(accessor)
    }

    /// Tell translated code which `SpaceTlb`s to use.
    pub(crate) fn select_tlbs(&mut self) {
        let number = self.current_tlb();
        let [user, kernel, access] = self.views.tlbs;
        self.context.tlb = self.tlb_address(number);
        self.context.user_tlb = self.tlb_address(user);
        self.context.kernel_tlb = self.tlb_address(kernel);
        self.context.access_tlb = self.tlb_address(access);
        let mirrored = !self.context.regs.mode().is_user() && self.uses_mirror();
        self.context.gs_base = if mirrored { super::place::BASE } else { self.context.tlb };
        self.context.after_system_call = !self.context.regs.sfmask & !rflags::RF | rflags::FIXED;
    }

    fn tlb_address(&mut self, number: usize) -> u64 {
        self.tlb.space_tlb(number).address()
    }

    #[inline]
    fn tlb_for(&mut self, accessor: Accessor) -> usize {
        let regs = &self.context.regs;
        let mode = (self.views_root(), regs.cr4 & (cr4::PCIDE | cr4::SMAP), regs.cr0 & cr0::PG);
        if self.views.mode != Some(mode) {
            self.find_views(mode);
        }
        let [user, kernel, access] = self.views.tlbs;
        match accessor {
            Accessor { user: true, .. } => user,
            Accessor { smap_override: true, .. } => access,
            _ => kernel,
        }
    }

    /// Find the `SpaceTlb`s for the current address space.
    fn find_views(&mut self, mode: (u64, u64, u64)) {
        match self.paravirtual {
            Some(_) => self.context.forget_returns_of_users(),
            None => self.context.forget_returns(),
        }
        let regs = &self.context.regs;
        let pcid = self.current_pcid();
        let cr3 = if regs.cr0 & cr0::PG == 0 { 0 } else { self.views_root() };
        let user = self.tlb.activate(cr3, pcid, View::User);
        let kernel = self.tlb.activate(cr3, pcid, View::Kernel);
        let access = if mode.1 & cr4::SMAP != 0 {
            self.tlb.activate(cr3, pcid, View::KernelUserAccess)
        } else {
            kernel
        };
        self.views.mode = Some(mode);
        self.views.tlbs = [user, kernel, access];
        if self.views.root != self.mirror_root() {
            self.flush_local_mirror();
        }
        self.look_at_roots();
    }

    /// The CR3 under which this vCPU uses the mirror, if it does.
    fn mirror_root(&self) -> Option<u64> {
        // A paravirtual vCPU tells of the roots that it loads itself.
        let is_told = self.paravirtual.is_none() && self.uses_mirror();
        is_told.then_some(self.context.regs.cr3)
    }

    /// CR3 was loaded, or what is not global was flushed: tell the mirror.
    pub(crate) fn flush_local_mirror(&mut self) {
        self.views.root = self.mirror_root();
        if let Some(mirror) = &self.group.mirror {
            mirror.flush_local(self.vcpu_index, self.views.root, &self.ram);
        }
    }

    /// CR3 was loaded: check whether the guest has memory where this process lies.
    fn look_at_roots(&mut self) {
        if !self.uses_mirror() {
            return;
        }
        let roots = super::place::roots(self.context.regs.cr3, &self.ram);
        if std::mem::replace(&mut self.views.roots, roots) != roots {
            self.make_way();
        }
    }

    /// Stop the use of the mirror, on all vCPUs, if the guest has memory where this process lies.
    fn make_way(&self) {
        let group = &self.group;
        let Some(mirror) = &group.mirror else { return };
        if mirror.make_way(self.context.regs.cr3, &self.ram) {
            group.peers.remove_all_jumps();
        }
    }

    /// Stop the use of the mirror if it has been given up. In the run loop only: the parts of a block
    /// rely on the same state.
    pub(crate) fn heed_mirror(&mut self) {
        if self.must_heed_mirror()
            && let Some(mirror) = &self.group.mirror
        {
            self.without_mirror = true;
            mirror.clear();
        }
    }

    /// Whether the mirror has been given up since the run loop last checked.
    pub(crate) fn must_heed_mirror(&self) -> bool {
        let mirror = self.group.mirror.as_ref();
        !self.without_mirror && mirror.is_some_and(|mirror| mirror.is_given_up())
    }

    /// The current PCID, 0 when they are off.
    pub(crate) fn current_pcid(&self) -> u16 {
        if let Some(state) = &self.paravirtual {
            return state.space_number();
        }
        let regs = &self.context.regs;
        if regs.cr4 & cr4::PCIDE != 0 { (regs.cr3 & 0xfff) as u16 } else { 0 }
    }

    /// Flush cached translations.
    pub(crate) fn flush_tlb(&mut self, what: Flush) {
        self.statistics.tlb_flushes += 1;
        self.context.forget_returns();
        self.tlb.flush(what);
        let pcid = self.current_pcid();
        if let Some(spaces) = &mut self.spaces {
            spaces.flush(what, pcid);
        }
        self.flush_cross_page_links(what);
        self.look_at_roots();
        let Some(mirror) = &self.group.mirror else { return };
        if self.paravirtual.is_some() {
            // What is mirrored of its memory is exact.
            return;
        }
        match what {
            Flush::All if self.uses_mirror() => {
                mirror.flush_all(self.context.regs.cr3, &self.ram);
                self.make_way();
            }
            Flush::All => mirror.clear(),
            Flush::Pcid(_) | Flush::AllPcids => self.flush_local_mirror(),
            Flush::Page(at) | Flush::PagePcid(at, _) => mirror.flush_page(at),
        }
    }

    /// Whether translated kernel code reaches memory through the mirror in the current mode.
    pub(crate) fn uses_mirror(&self) -> bool {
        let regs = &self.context.regs;
        self.group.mirror.is_some()
            && !self.without_mirror
            && regs.cr0 & cr0::PG != 0
            && regs.long_mode()
    }

    /// Whether the kernel may mean memory of its users: with SMAP, if it says so by EFLAGS.AC; without,
    /// always, once there are users. (What it means otherwise is above all of theirs, or nothing.)
    pub(crate) fn is_user_open(&self) -> bool {
        let regs = &self.context.regs;
        if regs.cr4 & cr4::SMAP == 0 {
            return self.group.has_users.load(Ordering::Relaxed);
        }
        regs.mode().is_kernel() && regs.alignment_flag != 0
    }

    /// Take note of user code in a machine whose kernel does without SMAP.
    pub(crate) fn note_users(&self) {
        let regs = &self.context.regs;
        let has_users = &self.group.has_users;
        if regs.mode().is_user() && regs.cr4 & cr4::SMAP == 0 && !has_users.load(Ordering::Relaxed)
        {
            has_users.store(true, Ordering::Relaxed);
        }
    }

    /// Enter what translated kernel code missed at host address `address` into the mirror; whether
    /// the access can be repeated.
    pub(crate) fn fill_mirror(&mut self, address: u64, access: Access) -> bool {
        self.make_way();
        let at = super::window::linear_of(address);
        if self.paravirtual.is_some() {
            return self.fill_paravirtual_mirror(at, access);
        }
        let (group, ram) = (&self.group, &self.ram);
        let Some(mirror) = &group.mirror else { return false };
        let regs = &self.context.regs;
        let by = Accessor { user: false, smap_override: false };
        let walk = || {
            let found = walk(ram, regs, at, access, by)?;
            // The mirror maps what is there.
            ram.host(found.physical);
            ram.make_present(found.physical);
            Ok::<_, Exception>(found)
        };
        let entered = mirror.enter(at, access, self.vcpu_index, ram, walk);
        entered == Ok(super::mirror::Entered::Mapped)
    }

    /// Where `at` leads for an access; this fills the TLB.
    pub(crate) fn translate_linear(
        &mut self,
        at: Linear,
        access: Access,
        privilege: Privilege,
    ) -> Result<Place, Exception> {
        let accessor = self.accessor(privilege);
        let walk = |cpu: &Self| match cpu.paravirtual {
            Some(_) => cpu.paravirtual_walk(at, access, accessor, privilege),
            None => walk(&cpu.ram, &cpu.context.regs, at, access, accessor),
        };
        if access == Access::Execute {
            let found = walk(self)?;
            self.note_source(at, found.table, accessor.user);
            return Ok(self.place(found.physical));
        }
        let number = self.tlb_for(accessor);
        loop {
            let taken_away = self.taken_away();
            let found = walk(self)?;
            self.note_source(at, found.table, accessor.user);
            let place = match access {
                // What the board makes of it, the board decides.
                Access::Write if self.ram.is_rom(found.physical) => Place::Device(found.physical),
                _ => self.place(found.physical),
            };
            let Place::Ram(host, physical) = place else { return Ok(place) };
            self.fill(number, at, host, physical, found);
            if !found.writable_now || self.taken_away() == taken_away {
                return Ok(place);
            }
            // The page may be no memory to write any more (paravirtual/revoke.rs).
            self.tlb.space_tlb(number).revoke(index_of(at));
        }
    }

    fn place(&self, physical: Physical) -> Place {
        match self.ram.host(physical) {
            Some(host) => Place::Ram(host, physical),
            None => Place::Device(physical),
        }
    }

    fn fill(
        &mut self,
        number: usize,
        at: Linear,
        host: *mut u8,
        physical: Physical,
        found: Translation,
    ) {
        let index = index_of(at);
        let write = found.writable_now && !self.ram.has_code(physical);
        self.ram.make_present(physical);
        if write {
            self.ram.note_writer(physical, self.vcpu_index, index);
        }
        let host = host.wrapping_sub(at.offset() as usize);
        self.statistics.tlb_fills += 1;
        let global = found.global || (number != self.views.tlbs[0] && self.is_common(at));
        let entry = Entry { host, read: true, write, global, size: found.size };
        self.tlb.space_tlb(number).insert(at, entry);
        // Another processor may have begun to translate the page since (memory/ram.rs).
        if write && self.ram.has_code(physical) {
            self.tlb.space_tlb(number).revoke(index);
        }
    }

    /// Host address for an access that stays in a page, if the TLB has it.
    #[inline]
    fn cached(&mut self, at: Linear, access: Access, privilege: Privilege) -> Option<*mut u8> {
        let accessor = self.accessor(privilege);
        let number = self.tlb_for(accessor);
        let index = index_of(at);
        let entries = self.tlb.space_tlb(number).entries();
        let tags = if access == Access::Write { &entries.write } else { &entries.read };
        let offset = at.0.wrapping_add(tags[index].load(Ordering::Relaxed));
        let host = entries.host[index].load(Ordering::Relaxed);
        (offset < PAGE_SIZE).then(|| (host + offset) as *mut u8)
    }

    /// Whether translated code would find `at` in the TLB.
    pub(crate) fn is_cached(&mut self, at: Linear, access: Access) -> bool {
        self.cached(at, access, Privilege::Current).is_some()
    }

    /// Where `at` leads, through the TLB where possible.
    fn locate(
        &mut self,
        at: Linear,
        access: Access,
        privilege: Privilege,
    ) -> Result<(Place, bool), Exception> {
        if let Some(host) = self.cached(at, access, privilege) {
            return Ok((Place::Ram(host, Physical(0)), true));
        }
        self.translate_linear(at, access, privilege).map(|place| (place, false))
    }

    /// Whether an access to one byte reaches RAM, and not a device.
    ///
    /// # Errors
    ///
    /// The page fault of the access.
    pub(crate) fn reaches_memory(
        &mut self,
        at: Linear,
        access: Access,
        privilege: Privilege,
    ) -> Result<bool, Exception> {
        Ok(matches!(self.locate(at, access, privilege)?.0, Place::Ram(..)))
    }

    /// Whether all of so many bytes are RAM that may be accessed.
    pub(crate) fn reaches_all(&mut self, at: u64, size: usize, access: Access) -> bool {
        let reaches =
            |(at, _)| matches!(self.reaches_memory(at, access, Privilege::Current), Ok(true));
        Linear(at).is_canonical() && pieces(Linear(at), size).all(reaches)
    }

    /// Check that `size` bytes may be accessed.
    ///
    /// # Errors
    ///
    /// The page fault of the first byte that may not.
    pub(crate) fn probe_linear(
        &mut self,
        at: Linear,
        size: usize,
        access: Access,
        privilege: Privilege,
    ) -> Result<(), Trap> {
        for (at, _) in pieces(at, size) {
            self.locate(at, access, privilege)?;
        }
        Ok(())
    }

    /// Read guest memory.
    ///
    /// # Errors
    ///
    /// A page fault; or an exit for device memory, which is answered and tried again.
    pub(crate) fn read_linear(
        &mut self,
        at: Linear,
        buffer: &mut [u8],
        privilege: Privilege,
    ) -> Result<(), Trap> {
        let size = buffer.len();
        let mut rest = buffer;
        self.watch(at, size, Access::Read, privilege);
        for (at, length) in pieces(at, size) {
            let (piece, after) = rest.split_at_mut(length);
            rest = after;
            match self.locate(at, Access::Read, privilege)?.0 {
                // SAFETY: `host` is RAM up to the end of its page, and the piece does not leave
                // the page. The guest may write them meanwhile; the bytes are plain data.
                Place::Ram(host, _) => unsafe {
                    std::ptr::copy_nonoverlapping(host, piece.as_mut_ptr(), length);
                },
                Place::Device(physical) => self.read_device(physical, piece)?,
            }
        }
        Ok(())
    }

    /// Write guest memory, all of it or nothing.
    ///
    /// # Errors
    ///
    /// A page fault. Writes to device memory are queued and leave after the instruction.
    pub(crate) fn write_linear(
        &mut self,
        at: Linear,
        data: &[u8],
        privilege: Privilege,
    ) -> Result<(), Trap> {
        let several = at.offset() + data.len() as u64 > PAGE_SIZE;
        if several {
            self.probe_linear(at, data.len(), Access::Write, privilege)?;
        }
        self.watch(at, data.len(), Access::Write, privilege);
        let mut rest = data;
        for (at, length) in pieces(at, data.len()) {
            let (piece, after) = rest.split_at(length);
            rest = after;
            match self.locate(at, Access::Write, privilege)? {
                (Place::Ram(host, _), true) => store(host, piece),
                (Place::Ram(host, physical), false) => {
                    self.write_beside_code(physical, length, || store(host, piece));
                }
                (Place::Device(physical), _) => self.write_device(physical, piece),
            }
        }
        Ok(())
    }

    /// Drop the translations that overlap `length` bytes at `physical`, which do not leave the
    /// page, and write the bytes, before another vCPU can translate them again. Under the lock also where there is no
    /// code: without a write tag, a vCPU that translates from the page would not wait for this one.
    pub(crate) fn write_beside_code<T>(
        &mut self,
        physical: Physical,
        length: usize,
        write: impl FnOnce() -> T,
    ) -> T {
        let mut translator = self.group.translator();
        if self.ram.has_code(physical) {
            let dropped = translator.invalidate(physical, length, &self.group.peers);
            self.statistics.invalidated_blocks += dropped;
        }
        write()
    }

    /// Read device memory through the replay log.
    fn read_device(&mut self, physical: Physical, piece: &mut [u8]) -> Result<(), Trap> {
        let mut done = 0;
        while done < piece.len() {
            let size = natural_size(physical.0 + done as u64, piece.len() - done);
            let exit = Exit::MmioRead { address: physical.0 + done as u64, size: size as u8 };
            let value = self.replay.answer(exit)?;
            piece[done..done + size].copy_from_slice(&value.to_le_bytes()[..size]);
            done += size;
        }
        Ok(())
    }

    /// Queue stores to device memory.
    fn write_device(&mut self, physical: Physical, piece: &[u8]) {
        let mut done = 0;
        while done < piece.len() {
            let size = natural_size(physical.0 + done as u64, piece.len() - done);
            let mut value = [0; 8];
            value[..size].copy_from_slice(&piece[done..done + size]);
            self.replay.queue(Exit::MmioWrite {
                address: physical.0 + done as u64,
                size: size as u8,
                value: u64::from_le_bytes(value),
            });
            done += size;
        }
    }
}

/// Store bytes that do not leave a page; aligned ones in one go, as the hardware does. `host` is
/// writable RAM for the length of the piece.
pub(crate) fn store(host: *mut u8, piece: &[u8]) {
    // SAFETY: the callers have found `host` in RAM; see `read_linear`.
    unsafe {
        match (piece.len(), host as usize % 8) {
            (8, 0) => host
                .cast::<u64>()
                .write_volatile(u64::from_le_bytes(piece.try_into().expect("eight bytes"))),
            (4, 0 | 4) => host
                .cast::<u32>()
                .write_volatile(u32::from_le_bytes(piece.try_into().expect("four bytes"))),
            _ => std::ptr::copy_nonoverlapping(piece.as_ptr(), host, piece.len()),
        }
    }
}

/// The largest naturally aligned access of at most 8 bytes.
fn natural_size(at: u64, left: usize) -> usize {
    let mut size = 8;
    while size > left || !at.is_multiple_of(size as u64) {
        size /= 2;
    }
    size
}

/// Cut a range at page boundaries.
pub(crate) fn pieces(at: Linear, size: usize) -> impl Iterator<Item = (Linear, usize)> {
    let mut next = at;
    let mut left = size;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let length = left.min((PAGE_SIZE - next.offset()) as usize);
        let piece = (next, length);
        next = Linear(next.0.wrapping_add(length as u64));
        left -= length;
        Some(piece)
    })
}

/// A read of one size.
macro_rules! reader {
    ($read:ident, $type:ty) => {
        impl Architectural {
            #[doc = concat!("Read a `", stringify!($type), "`; errors as `read_linear`.")]
            pub(crate) fn $read(&mut self, at: Linear, by: Privilege) -> Result<$type, Trap> {
                let mut bytes = [0; size_of::<$type>()];
                self.read_linear(at, &mut bytes, by)?;
                Ok(<$type>::from_le_bytes(bytes))
            }
        }
    };
}

/// A write of one size.
macro_rules! writer {
    ($write:ident, $type:ty) => {
        impl Architectural {
            #[doc = concat!("Write a `", stringify!($type), "`; errors as `write_linear`.")]
            pub(crate) fn $write(
                &mut self,
                at: Linear,
                value: $type,
                by: Privilege,
            ) -> Result<(), Trap> {
                self.write_linear(at, &value.to_le_bytes(), by)
            }
        }
    };
}

reader!(read_u8, u8);
reader!(read_u16, u16);
reader!(read_u32, u32);
reader!(read_u64, u64);
writer!(write_u8, u8);
writer!(write_u16, u16);

impl Architectural {
    /// Fetch up to 15 bytes at CS:RIP; fewer where the second page cannot be fetched.
    ///
    /// # Errors
    ///
    /// The fault of the first byte.
    pub(crate) fn fetch(&mut self, bytes: &mut [u8; 15]) -> Result<usize, Trap> {
        let start = self.code_linear(self.context.regs.rip)?;
        let mut done = 0;
        for (at, length) in pieces(start, bytes.len()) {
            match self.translate_linear(at, Access::Execute, Privilege::Current) {
                // SAFETY: as in `read_linear`.
                Ok(Place::Ram(host, _)) => unsafe {
                    std::ptr::copy_nonoverlapping(host, bytes[done..].as_mut_ptr(), length);
                },
                Ok(Place::Device(_)) if done == 0 => {
                    return Err(Exception::general_protection(0).into());
                }
                Err(fault) if done == 0 => return Err(fault.into()),
                _ => return Ok(done),
            }
            done += length;
        }
        Ok(done)
    }

    /// The linear address of an offset in the code segment.
    pub(crate) fn code_linear(&self, rip: u64) -> Result<Linear, Exception> {
        use crate::state::SegmentRegister::Cs;
        self.segmented(Cs, rip, 1, Access::Execute)
    }
}
