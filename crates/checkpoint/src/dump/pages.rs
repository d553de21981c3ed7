//! Where the pages go that a dump finds.

use std::io;
use std::ops::Range;

use crate::error::Error;
use crate::limits::PAGE_BYTES;
use crate::state::Owner;

/// A page that nobody has written to.
const ZERO: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

/// Who takes the pages, in the order in which they are found.
pub trait Pages {
    /// These bytes, whole pages, are at `address`.
    ///
    /// # Errors
    ///
    /// Where they cannot be kept.
    fn put(&mut self, owner: Owner, address: u64, bytes: &[u8]) -> io::Result<()>;

    /// What was put or inherited of these addresses is there no more. Who dumps processes that have not been copied
    /// while they ran asks for nothing that matters.
    ///
    /// # Errors
    ///
    /// Where that cannot be noted.
    fn forget(&mut self, owner: Owner, range: Range<u64>) -> io::Result<()>;

    /// At these addresses is what was put when the same was dumped last.
    fn inherit(&mut self, owner: Owner, range: Range<u64>);
}

/// Keep what of these bytes, whole pages, is not zero: memory without content is zero anyway.
pub(crate) fn put_written(
    bytes: &[u8],
    owner: Owner,
    at: u64,
    pages: &mut impl Pages,
) -> Result<(), Error> {
    let mut start = 0;
    while start < bytes.len() {
        let written = bytes[start..].chunks(ZERO.len()).take_while(|page| **page != ZERO);
        let end = start + written.map(<[u8]>::len).sum::<usize>();
        if end > start {
            let kept = pages.put(owner, at + start as u64, &bytes[start..end]);
            kept.map_err(Error::io("keep pages"))?;
        }
        start = end.max(start + ZERO.len());
    }
    Ok(())
}
