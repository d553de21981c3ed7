//! A guest's physical memory: one `memfd`, mapped region by region.
//!
//! 1. The file is sealed against growing, shrinking and further sealing before any other process
//!    can see it. So no process that has the descriptor can remove pages of it while we access them
//!    (SIGBUS).
//! 2. A region starts in the file at an offset that is congruent to its guest-physical address
//!    modulo 2 MiB; then the kernel aligns the mapping alike, and a huge page of the host can back
//!    a huge page of the guest.
//! 3. Nothing is reserved (`MAP_NORESERVE`): the kernel allocates a page when the guest touches it.
//!    A guest that wants more than the host can give at all is refused before it starts, because
//!    the alternative is the out-of-memory killer at a time of its choosing.
//! 4. Behind the regions the file has some *spare* pages, which are not the guest's memory: the
//!    engine writes there what helper processes are to see in place of a page of the guest's.
//! 5. A clone of the [`GuestMemoryMmap`] keeps the mappings: they go away with the last one.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap, GuestMemoryRegion as _,
    GuestRegionMmap, MmapRegion,
};

use crate::available::Available;
use crate::backing::{Backing, Source};
use crate::limits::{CHUNK_BYTES, MAX_REGIONS, SPARE_PAGES};

/// What a huge page of the host is aligned to.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// The unit of mapping.
const PAGE_BYTES: u64 = 4096;

/// Why a guest cannot have its memory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host, or a control group, has less.
    #[error(
        "the machine wants {} MiB of memory but {} MiB are available (limited by {limited_by}); \
         give a smaller --mem",
        wanted >> 20, available >> 20
    )]
    TooLittle {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes that there are.
        available: u64,
        /// Who says so.
        limited_by: String,
    },
    /// The list of regions makes no sense.
    #[error("memory region {start:#x} of {size:#x} bytes {complaint}")]
    Region {
        /// Guest-physical address.
        start: u64,
        /// Bytes.
        size: u64,
        /// What is wrong with it.
        complaint: &'static str,
    },
    /// Linux refused something.
    #[error("cannot {action} for the machine's memory: {source}")]
    Host {
        /// What was tried.
        action: &'static str,
        /// The operating system's answer.
        source: io::Error,
    },
}

/// A region as the processor wants it: numbers and a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRegion {
    /// Guest-physical address of the first byte.
    pub guest: u64,
    /// Bytes.
    pub size: u64,
    /// Where it is mapped, readable and writable; valid as long as the [`GuestMemory`] or a clone of
    /// its [`GuestMemoryMmap`] is.
    pub host: *mut u8,
    /// Where it starts in the file.
    pub file_offset: u64,
}

/// A guest's physical memory.
#[derive(Debug, Clone)]
pub struct GuestMemory {
    file: Arc<File>,
    map: GuestMemoryMmap,
    /// Where the spare pages start in the file.
    spare: u64,
    /// Where it comes from, if it does not start as zeroes.
    backing: Option<Arc<Backing>>,
}

impl GuestMemory {
    /// Memory at the given guest-physical ranges: (start, bytes), in rising order, page aligned.
    ///
    /// # Errors
    ///
    /// [`Error`] when the host lacks the memory or will not map it.
    pub fn new(ranges: &[(u64, u64)]) -> Result<Self, Error> {
        Self::new_within(ranges, &Available::now())
    }

    /// The same, whose contents are fetched from `source` when they are needed. Who reads or writes
    /// through [`Self::map`] or a pointer asks for it first ([`Self::require`]).
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn from_source(ranges: &[(u64, u64)], source: Box<dyn Source>) -> Result<Self, Error> {
        let mut memory = Self::new(ranges)?;
        memory.backing = Some(Arc::new(Backing::new(source, &memory.file, memory.spare)));
        Ok(memory)
    }

    fn new_within(ranges: &[(u64, u64)], available: &Available) -> Result<Self, Error> {
        let wanted = check_ranges(ranges)?;
        if wanted > available.bytes {
            let (available, limited_by) = (available.bytes, available.limited_by.clone());
            return Err(Error::TooLittle { wanted, available, limited_by });
        }
        let (offsets, length) = place(ranges);
        let file = Arc::new(sealed_file(length + SPARE_PAGES as u64 * PAGE_BYTES)?);
        let regions = ranges.iter().zip(offsets);
        let regions: Result<Vec<_>, _> =
            regions.map(|(&range, offset)| map_region(&file, range, offset)).collect();
        let map = GuestMemoryMmap::from_regions(regions?)
            .map_err(|error| host("arrange the regions", io::Error::other(error)))?;
        Ok(Self { file, map, spare: length, backing: None })
    }

    /// Where a spare page is in the file.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub fn spare_offset(&self, page: usize) -> u64 {
        assert!(page < SPARE_PAGES, "spare page {page}");
        self.spare + page as u64 * PAGE_BYTES
    }

    /// Fill a spare page.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when there is no memory for it.
    pub fn write_spare(&self, page: usize, bytes: &[u8; PAGE_BYTES as usize]) -> Result<(), Error> {
        let written = self.file.write_all_at(bytes, self.spare_offset(page));
        written.map_err(|error| host("fill a spare page", error))
    }

    /// Make sure that `length` bytes at guest-physical address `guest` are there, as far as they are
    /// memory, and can be looked at or written through [`Self::map`]; whether something was fetched.
    #[inline]
    pub fn require(&self, guest: u64, length: u64) -> bool {
        self.backing.as_ref().is_some_and(|backing| {
            let fetched = |any, (offset, bytes)| backing.require(offset, bytes) | any;
            self.in_file(guest, length).fold(false, fetched)
        })
    }

    /// Whether something of it has not been fetched yet.
    #[inline]
    pub fn is_absent(&self, guest: u64, length: u64) -> bool {
        self.backing.as_ref().is_some_and(|backing| {
            self.in_file(guest, length).any(|(offset, bytes)| backing.is_absent(offset, bytes))
        })
    }

    /// Whether all of it was here from the start.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.backing.is_none()
    }

    /// Where a range is in the file: (offset, bytes) for each region that it touches.
    fn in_file(&self, guest: u64, length: u64) -> impl Iterator<Item = (u64, u64)> {
        let end = guest.saturating_add(length);
        self.map.iter().filter_map(move |region| {
            let first = region.start_addr().0;
            let (start, end) = (guest.max(first), end.min(first + region.len()));
            let offset = region.file_offset().map_or(0, |offset| offset.start());
            (start < end).then(|| (offset + (start - first), end - start))
        })
    }

    /// The chunks ([`CHUNK_BYTES`]) of the file that may be anything but zeroes, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when Linux does not say.
    pub fn chunks(&self) -> Result<Vec<usize>, Error> {
        let mut chunks = std::collections::BTreeSet::new();
        if let Some(backing) = &self.backing {
            chunks.extend(backing.absent());
        }
        let seek = |from| match rustix::fs::seek(&*self.file, from) {
            Ok(at) => Ok(Some(at)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(errno) => Err(host("look for pages", errno)),
        };
        let mut at = 0;
        while let Some(data) = seek(SeekFrom::Data(at))?.filter(|&data| data < self.spare) {
            let end = seek(SeekFrom::Hole(data))?.unwrap_or(self.spare).min(self.spare);
            chunks.extend((data / CHUNK_BYTES) as usize..end.div_ceil(CHUNK_BYTES) as usize);
            at = end;
        }
        Ok(chunks.into_iter().collect())
    }

    /// Whether a chunk of the file has still to be fetched. Once it has been, this is never so again.
    pub fn is_chunk_absent(&self, chunk: usize) -> bool {
        let start = chunk as u64 * CHUNK_BYTES;
        self.backing.as_ref().is_some_and(|backing| backing.is_absent(start, CHUNK_BYTES))
    }

    /// What a chunk of the file holds, wherever it is; its bytes, which are as many as a chunk has unless
    /// it is the last.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when it cannot be read.
    pub fn read_chunk(&self, chunk: usize, bytes: &mut [u8]) -> Result<usize, Error> {
        let start = chunk as u64 * CHUNK_BYTES;
        let length = CHUNK_BYTES.min(self.spare.saturating_sub(start)) as usize;
        let bytes = &mut bytes[..length];
        let read = match &self.backing {
            Some(backing) => backing.read(chunk, bytes),
            None => self.file.read_exact_at(bytes, start),
        };
        read.map_err(|error| host("read pages", error))?;
        Ok(length)
    }

    /// Copy chunks of the file that follow each other to another file, from wherever they are.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when they cannot be read or written.
    pub fn copy_chunks(&self, chunks: Range<usize>, to: &File, at: u64) -> Result<(), Error> {
        let start = chunks.start as u64 * CHUNK_BYTES;
        let length = (chunks.end as u64 * CHUNK_BYTES).min(self.spare).saturating_sub(start);
        let is_here = self.backing.as_ref().is_none_or(|it| !it.is_absent(start, length));
        let place = |region: &RawRegion| {
            let within = start.wrapping_sub(region.file_offset);
            let is_inside = within < region.size && length <= region.size - within;
            is_inside.then(|| region.host.wrapping_add(within as usize))
        };
        if let Some(pointer) = self.regions().iter().find_map(place).filter(|_| is_here) {
            let written = write_from(pointer, length as usize, to, at);
            return written.map_err(|error| host("copy pages", error));
        }
        let mut bytes = vec![0; CHUNK_BYTES as usize];
        for (place, chunk) in chunks.enumerate() {
            let length = self.read_chunk(chunk, &mut bytes)?;
            let written = to.write_all_at(&bytes[..length], at + place as u64 * CHUNK_BYTES);
            written.map_err(|error| host("copy pages", error))?;
        }
        Ok(())
    }

    /// Bytes of the file that are the guest's, or between its regions.
    pub fn file_bytes(&self) -> u64 {
        self.spare
    }

    /// The memory for devices and loaders. Clones share it.
    pub fn map(&self) -> &GuestMemoryMmap {
        &self.map
    }

    /// The memory for the processor, in rising order.
    pub fn regions(&self) -> Vec<RawRegion> {
        self.map
            .iter()
            .map(|region| RawRegion {
                guest: region.start_addr().0,
                size: region.len(),
                host: region.as_ptr(),
                file_offset: region.file_offset().map_or(0, |offset| offset.start()),
            })
            .collect()
    }

    /// Where `length` bytes at guest-physical address `guest` are in the file, if they are there
    /// together.
    pub fn file_offset(&self, guest: u64, length: u64) -> Option<u64> {
        self.map.iter().find_map(|region| {
            let at = guest.wrapping_sub(region.start_addr().0);
            let inside = at < region.len() && length <= region.len() - at;
            let start = region.file_offset().map_or(0, |offset| offset.start());
            inside.then(|| start + at)
        })
    }

    /// Make `size` bytes from guest-physical address `guest` zero again, giving their memory back
    /// to the host. Ranges that are not memory are left alone.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when Linux will not punch the hole.
    pub fn discard(&self, guest: u64, size: u64) -> Result<(), Error> {
        for (offset, bytes) in self.in_file(guest, size) {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let discard = || rustix::fs::fallocate(&*self.file, mode, offset, bytes);
            let discarded = match &self.backing {
                Some(backing) => backing.forget(offset, bytes, discard),
                None => discard(),
            };
            discarded.map_err(|errno| host("discard pages", errno))?;
        }
        Ok(())
    }

    /// The file, to be shared with other processes.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Bytes of guest memory.
    pub fn size(&self) -> u64 {
        self.map.iter().map(vm_memory::GuestMemoryRegion::len).sum()
    }
}

/// Map the memory of another process's guest, whose file this is: (guest-physical address, bytes, offset in
/// the file), in rising order.
///
/// # Errors
///
/// [`Error`] when the regions make no sense, the file has not all of them or could shrink, or it
/// cannot be mapped.
pub fn attach(file: File, regions: &[(u64, u64, u64)]) -> Result<GuestMemoryMmap, Error> {
    let ranges: Vec<_> = regions.iter().map(|&(start, size, _)| (start, size)).collect();
    check_ranges(&ranges)?;
    let seals = rustix::fs::fcntl_get_seals(&file);
    // A confined process may ask for its length by no other call.
    let length = rustix::fs::seek(&file, SeekFrom::End(0))
        .map_err(|error| host("look at the memory file", error))?;
    let is_sealed = seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    let file = Arc::new(file);
    let map = |&(start, size, offset): &(u64, u64, u64)| {
        let is_there = offset.checked_add(size).is_some_and(|end| end <= length);
        if !is_sealed || !is_there {
            let complaint = "is not in the file, or may not stay there";
            return Err(Error::Region { start, size, complaint });
        }
        map_region(&file, (start, size), offset)
    };
    let regions: Result<Vec<_>, _> = regions.iter().map(map).collect();
    GuestMemoryMmap::from_regions(regions?)
        .map_err(|error| host("arrange the regions", io::Error::other(error)))
}

/// Write guest memory to a file.
fn write_from(pointer: *const u8, length: usize, to: &File, at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < length {
        let (start, left) = (pointer.wrapping_add(done).cast(), length - done);
        let offset = (at + done as u64) as libc::off_t;
        // SAFETY: the range is inside a region, which is mapped; the kernel reads it, whatever the guest does
        // to it meanwhile.
        let written = unsafe { libc::pwrite(to.as_raw_fd(), start, left, offset) };
        match usize::try_from(written) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

fn host(action: &'static str, source: impl Into<io::Error>) -> Error {
    Error::Host { action, source: source.into() }
}

/// Check order, alignment and overlap; returns the sum of the sizes.
fn check_ranges(ranges: &[(u64, u64)]) -> Result<u64, Error> {
    let mut end = 0_u64;
    let mut sum = 0_u64;
    if ranges.is_empty() || ranges.len() > MAX_REGIONS {
        let complaint = "is none, or one of too many";
        return Err(Error::Region { start: 0, size: 0, complaint });
    }
    for &(start, size) in ranges {
        let complain = |complaint| Error::Region { start, size, complaint };
        if size == 0 || start % PAGE_BYTES != 0 || size % PAGE_BYTES != 0 {
            return Err(complain("is empty or not page aligned"));
        }
        if start < end {
            return Err(complain("overlaps the one before or is out of order"));
        }
        end = start.checked_add(size).ok_or(complain("reaches beyond the address space"))?;
        sum += size;
    }
    Ok(sum)
}

/// Offset in the file for each range, and the file's length.
fn place(ranges: &[(u64, u64)]) -> (Vec<u64>, u64) {
    let mut length = 0_u64;
    let mut offsets = Vec::with_capacity(ranges.len());
    for &(start, size) in ranges {
        let phase = start % HUGE_PAGE_BYTES;
        let base = length - length % HUGE_PAGE_BYTES;
        let offset = if base + phase >= length { base } else { base + HUGE_PAGE_BYTES } + phase;
        offsets.push(offset);
        length = offset + size;
    }
    (offsets, length)
}

fn sealed_file(length: u64) -> Result<File, Error> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file: File = rustix::fs::memfd_create("bivouac-guest", flags)
        .map_err(|error| host("create a memory file", error))?
        .into();
    file.set_len(length).map_err(|error| host("size the memory file", error))?;
    let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)
        .map_err(|error| host("seal the memory file", error))?;
    Ok(file)
}

fn map_region(
    file: &Arc<File>,
    (start, size): (u64, u64),
    offset: u64,
) -> Result<GuestRegionMmap, Error> {
    let bytes = usize::try_from(size).map_err(io::Error::other);
    let bytes = bytes.map_err(|error| host("map a region", error))?;
    let protection = (ProtFlags::READ | ProtFlags::WRITE).bits().cast_signed();
    let flags = (MapFlags::SHARED | MapFlags::NORESERVE).bits().cast_signed();
    let place = FileOffset::from_arc(Arc::clone(file), offset);
    let region = MmapRegion::build(Some(place), bytes, protection, flags)
        .map_err(|error| host("map a region", io::Error::other(error)))?;
    for advice in [Advice::LinuxHugepage, Advice::LinuxDontFork] {
        // SAFETY: the range is exactly the mapping that `region` owns, and neither advice changes
        // what it contains. A kernel without huge pages refuses the advice, which loses nothing.
        let _ = unsafe { rustix::mm::madvise(region.as_ptr().cast(), bytes, advice) };
    }
    GuestRegionMmap::new(region, GuestAddress(start)).ok_or(Error::Region {
        start,
        size,
        complaint: "reaches beyond the address space",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::Bytes;

    const LAYOUT: [(u64, u64); 3] =
        [(0, 0xa_0000), (0x10_0000, 0x70_0000), (0x1_0000_0000, 0x40_0000)];

    #[test]
    fn regions_are_where_they_were_asked_for() {
        let memory = GuestMemory::new(&LAYOUT).unwrap();
        let regions = memory.regions();
        let got: Vec<_> = regions.iter().map(|region| (region.guest, region.size)).collect();
        assert_eq!(got, LAYOUT);
        assert_eq!(memory.size(), 0xa_0000 + 0x70_0000 + 0x40_0000);
        for region in regions {
            assert_eq!(region.file_offset % HUGE_PAGE_BYTES, region.guest % HUGE_PAGE_BYTES);
        }
    }

    #[test]
    fn regions_do_not_share_bytes_of_the_file() {
        let (offsets, length) = place(&LAYOUT);
        let mut end = 0;
        for (offset, (_, size)) in offsets.iter().zip(LAYOUT) {
            assert!(*offset >= end);
            end = offset + size;
        }
        assert_eq!(end, length);
    }

    #[test]
    fn what_is_written_is_seen_through_the_file_and_the_pointer() {
        use std::os::unix::fs::FileExt;
        let memory = GuestMemory::new(&LAYOUT).unwrap();
        memory.map().write_obj(0x1234_5678_u32, GuestAddress(0x1_0000_0010)).unwrap();
        let region = memory.regions()[2];
        let mut bytes = [0; 4];
        memory.file().read_exact_at(&mut bytes, region.file_offset + 0x10).unwrap();
        assert_eq!(u32::from_le_bytes(bytes), 0x1234_5678);
        // SAFETY: offset 0x10 is inside the region, which `memory` keeps mapped.
        let seen = unsafe { region.host.add(0x10).cast::<u32>().read() };
        assert_eq!(seen, 0x1234_5678);
    }

    #[test]
    fn spare_pages_are_in_the_file_and_nowhere_else() {
        let memory = GuestMemory::new(&LAYOUT).unwrap();
        for page in [0, SPARE_PAGES - 1] {
            memory.write_spare(page, &[7; 4096]).unwrap();
            let offset = memory.spare_offset(page);
            let inside = |region: &RawRegion| offset < region.file_offset + region.size;
            assert!(!memory.regions().iter().any(inside));
            assert!(offset + 4096 <= memory.file().metadata().unwrap().len());
        }
    }

    #[test]
    fn the_file_cannot_be_resized() {
        let memory = GuestMemory::new(&LAYOUT).unwrap();
        assert!(memory.file().set_len(4096).is_err());
        assert!(memory.file().set_len(1 << 30).is_err());
    }

    #[test]
    fn memory_that_the_host_lacks_is_refused() {
        let available = Available { bytes: 3 << 20, limited_by: "control group /x".to_owned() };
        let error = GuestMemory::new_within(&[(0, 4 << 20)], &available).unwrap_err();
        let expected = "the machine wants 4 MiB of memory but 3 MiB are available \
                        (limited by control group /x); give a smaller --mem";
        assert_eq!(error.to_string(), expected);
        assert!(matches!(GuestMemory::new(&[(0, 1 << 46)]), Err(Error::TooLittle { .. })));
    }

    #[test]
    fn bad_regions_are_refused() {
        for ranges in [
            &[][..],
            &[(0, 0)],
            &[(1, 4096)],
            &[(0, 100)],
            &[(0, 8192), (4096, 4096)],
            &[(8192, 4096), (0, 4096)],
            &[(u64::MAX - 4095, 8192)],
        ] {
            assert!(matches!(GuestMemory::new(ranges), Err(Error::Region { .. })), "{ranges:?}");
        }
    }

    #[test]
    fn what_is_discarded_is_zero_and_nothing_else() {
        let memory = GuestMemory::new(&LAYOUT).unwrap();
        for address in [0x9_f000, 0x10_0000, 0x10_1000, 0x1_0000_0000] {
            memory.map().write_obj(7_u8, GuestAddress(address)).unwrap();
        }
        memory.discard(0x9_0000, 0x7_1000).unwrap();
        memory.discard(1 << 50, 4096).unwrap();
        let read = |address| memory.map().read_obj::<u8>(GuestAddress(address)).unwrap();
        assert_eq!([0x9_f000, 0x10_0000, 0x10_1000, 0x1_0000_0000].map(read), [0, 0, 7, 7]);
    }

    #[test]
    fn mappings_outlive_the_owner_while_a_clone_is_held() {
        let memory = GuestMemory::new(&LAYOUT).unwrap();
        let map = memory.map().clone();
        drop(memory);
        map.write_obj(7_u8, GuestAddress(0)).unwrap();
        assert_eq!(map.read_obj::<u8>(GuestAddress(0)).unwrap(), 7);
    }
}
