//! A virtual block device: a list of extents of images, each with rights. Together they are the disk that the guest
//! sees, one behind the other; no request reaches an image but through this table.

use xen_abi::block::SECTOR_BYTES;

use crate::limits::MAX_EXTENTS;

/// Sectors of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The image's number, which is the embedding's.
    pub image: usize,
    /// The first sector.
    pub start: u64,
    /// How many sectors.
    pub sectors: u64,
    /// The guest may change them.
    pub is_writable: bool,
}

/// Why extents are no device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VbdError {
    /// None, or too many.
    #[error("a virtual block device has 1 to {MAX_EXTENTS} extents, not {0}")]
    Count(usize),
    /// It has no sectors, or ends behind what bytes can be counted to.
    #[error("extent {0} is empty or too long")]
    Extent(usize),
}

/// What a request does with sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// It reads.
    Read,
    /// It changes.
    Write,
}

/// The sectors are not the device's, or may not be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied;

/// Bytes of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The image's number.
    pub image: usize,
    /// Bytes from its start.
    pub at: u64,
    /// How many.
    pub bytes: u64,
}

/// See above.
#[derive(Debug, Clone)]
pub struct Vbd {
    /// Each with its first sector of the device.
    extents: Vec<(u64, Extent)>,
    sectors: u64,
}

impl Vbd {
    /// A device of extents in their order.
    ///
    /// # Errors
    ///
    /// [`VbdError`].
    pub fn new(list: &[Extent]) -> Result<Self, VbdError> {
        if list.is_empty() || list.len() > MAX_EXTENTS {
            return Err(VbdError::Count(list.len()));
        }
        const MOST: u64 = u64::MAX / SECTOR_BYTES;
        let (mut extents, mut sectors) = (Vec::new(), 0_u64);
        for (number, extent) in list.iter().enumerate() {
            let end = extent.start.checked_add(extent.sectors).filter(|end| *end <= MOST);
            let first = sectors;
            let total = sectors.checked_add(extent.sectors).filter(|total| *total <= MOST);
            let (Some(total), Some(_), true) = (total, end, extent.sectors > 0) else {
                return Err(VbdError::Extent(number));
            };
            extents.push((first, *extent));
            sectors = total;
        }
        Ok(Self { extents, sectors })
    }

    /// Its length.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Nothing of it may be changed.
    pub fn is_read_only(&self) -> bool {
        !self.extents.iter().any(|(_, extent)| extent.is_writable)
    }

    /// The images that it has parts of, each once.
    pub fn images(&self) -> Vec<usize> {
        let mut images: Vec<_> = self.extents.iter().map(|(_, extent)| extent.image).collect();
        images.sort_unstable();
        images.dedup();
        images
    }

    /// Where sectors of the device are.
    ///
    /// # Errors
    ///
    /// [`Denied`] if one of them is not there, or may not be used like this.
    pub fn locate(&self, sector: u64, count: u64, right: Right) -> Result<Vec<Place>, Denied> {
        let end = sector.checked_add(count).filter(|end| *end <= self.sectors).ok_or(Denied)?;
        let first =
            self.extents.partition_point(|(start, extent)| start + extent.sectors <= sector);
        let mut places: Vec<Place> = Vec::new();
        for (start, extent) in self.extents[first..].iter().take_while(|(start, _)| *start < end) {
            if right == Right::Write && !extent.is_writable {
                return Err(Denied);
            }
            let from = sector.max(*start);
            let sectors = end.min(start + extent.sectors) - from;
            let at = (extent.start + (from - start)) * SECTOR_BYTES;
            let place = Place { image: extent.image, at, bytes: sectors * SECTOR_BYTES };
            match places.last_mut().filter(|it| it.image == place.image && it.at + it.bytes == at) {
                Some(last) => last.bytes += place.bytes,
                None if place.bytes > 0 => places.push(place),
                None => (),
            }
        }
        Ok(places)
    }
}
