//! Large structures of zeroes, page aligned, that cost memory only where they are touched.

use std::ops::Deref;

/// Types that zero bytes are a value of, and that threads may share.
///
/// # Safety
///
/// All-zero bytes must be a valid value, and the type must have no destructor.
pub(crate) unsafe trait Zero: Sync {}

// SAFETY: integers in cells that may be shared.
unsafe impl Zero for std::sync::atomic::AtomicU64 {}
// SAFETY: an array of zeroes is zero bytes.
unsafe impl<T: Zero, const N: usize> Zero for [T; N] {}

/// A `T` of zeroes in a mapping of its own.
pub(crate) struct Zeroed<T: Zero> {
    place: *const T,
}

// SAFETY: the mapping is owned, and `T` may be shared between threads.
unsafe impl<T: Zero> Send for Zeroed<T> {}
// SAFETY: as above.
unsafe impl<T: Zero> Sync for Zeroed<T> {}

impl<T: Zero> Zeroed<T> {
    /// Map it. If the host has no address space left, the process ends, as for every failed
    /// allocation.
    pub(crate) fn new() -> Self {
        // SAFETY: a fresh anonymous mapping.
        let place = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if place == libc::MAP_FAILED {
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<T>());
        }
        Self { place: place.cast() }
    }

    /// Make it zeroes again, and give its memory back.
    pub(crate) fn clear(&self) {
        let place = self.place.cast_mut().cast();
        // SAFETY: the mapping is private and anonymous, so that its bytes become zero (madvise(2)),
        // which is a valid value that shared references may come to see.
        let result = unsafe { libc::madvise(place, size_of::<T>(), libc::MADV_DONTNEED) };
        assert_eq!(result, 0, "the range is mapped");
    }

    /// Where it is.
    pub(crate) fn address(&self) -> u64 {
        self.place as u64
    }
}

impl<T: Zero> Deref for Zeroed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping has the size of a `T`, is page aligned, holds zeroes or what shared
        // references have stored, and lives as long as `self`.
        unsafe { &*self.place }
    }
}

impl<T: Zero> Drop for Zeroed<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to `self`, and there is no reference to it any more.
        unsafe { libc::munmap(self.place.cast_mut().cast(), size_of::<T>()) };
    }
}
