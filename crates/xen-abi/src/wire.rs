//! Structures and their bytes in a guest's memory, which are little-endian.

/// What has a fixed number of bytes in memory, of which no pattern is invalid.
pub trait Wire: Sized {
    /// How many.
    const BYTES: usize;

    /// What the first [`Self::BYTES`] of `bytes` say.
    ///
    /// # Panics
    ///
    /// If there are fewer: [`Self::read`] is for lengths that are not known.
    fn decode(bytes: &[u8]) -> Self;

    /// Put it into the first [`Self::BYTES`] of `bytes`; padding becomes zero.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    fn encode(&self, bytes: &mut [u8]);

    /// What is at `offset` of `bytes`, if all of it is there.
    fn read(bytes: &[u8], offset: usize) -> Option<Self> {
        let end = offset.checked_add(Self::BYTES)?;
        bytes.get(offset..end).map(Self::decode)
    }

    /// Put it at `offset` of `bytes`, if there is room for all of it.
    #[must_use]
    fn write(&self, bytes: &mut [u8], offset: usize) -> Option<()> {
        let end = offset.checked_add(Self::BYTES)?;
        bytes.get_mut(offset..end).map(|place| self.encode(place))
    }
}

macro_rules! integers {
    ($($kind:ty),*) => {
        $(
            impl Wire for $kind {
                const BYTES: usize = size_of::<$kind>();

                fn decode(bytes: &[u8]) -> Self {
                    let mut own = [0; size_of::<$kind>()];
                    own.copy_from_slice(&bytes[..size_of::<$kind>()]);
                    Self::from_le_bytes(own)
                }

                fn encode(&self, bytes: &mut [u8]) {
                    bytes[..size_of::<$kind>()].copy_from_slice(&self.to_le_bytes());
                }
            }
        )*
    };
}

integers!(u8, i8, u16, i16, u32, i32, u64);

impl<T: Wire, const N: usize> Wire for [T; N] {
    const BYTES: usize = T::BYTES * N;

    fn decode(bytes: &[u8]) -> Self {
        core::array::from_fn(|index| T::decode(&bytes[index * T::BYTES..]))
    }

    fn encode(&self, bytes: &mut [u8]) {
        for (index, element) in self.iter().enumerate() {
            element.encode(&mut bytes[index * T::BYTES..]);
        }
    }
}
