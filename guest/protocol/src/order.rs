//! What to run in the guest, and its encoding: a flag byte (bit 0: on a terminal), the terminal's
//! rows and columns (2 bytes each), then three lists of byte strings (arguments, environment, and
//! the working directory with the user), each as a count and length-prefixed items, all 4-byte
//! little-endian.

use crate::ORDER_MAX_BYTES;

/// What to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// The program and its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// The environment, each item `NAME=VALUE`. Nothing is inherited.
    pub environment: Vec<Vec<u8>>,
    /// The working directory.
    pub directory: Vec<u8>,
    /// Whom to run it as, `USER` or `USER:GROUP`, by name or number; empty for the superuser.
    pub user: Vec<u8>,
    /// Rows and columns of the terminal to run it on, if it is to have one.
    pub terminal: Option<(u16, u16)>,
}

/// Why bytes are not an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// It ends before it is complete.
    #[error("the order is cut short")]
    Short,
    /// It goes on after its end.
    #[error("the order has bytes after its end")]
    Long,
    /// More than [`ORDER_MAX_BYTES`].
    #[error("the command and its environment are longer than {ORDER_MAX_BYTES} bytes")]
    TooLarge,
    /// No program to run, or a string with a NUL in it.
    #[error("the order names no program that could be run")]
    NoProgram,
}

impl Order {
    /// The order as bytes, to be sent in parts.
    pub fn encode(&self) -> Result<Vec<u8>, OrderError> {
        let mut out = Vec::new();
        let (rows, columns) = self.terminal.unwrap_or_default();
        out.push(u8::from(self.terminal.is_some()));
        out.extend_from_slice(&rows.to_le_bytes());
        out.extend_from_slice(&columns.to_le_bytes());
        put_list(&mut out, &self.arguments)?;
        put_list(&mut out, &self.environment)?;
        put_list(&mut out, &[self.directory.clone(), self.user.clone()])?;
        if out.len() > ORDER_MAX_BYTES {
            return Err(OrderError::TooLarge);
        }
        Ok(out)
    }

    /// The inverse of [`Order::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Order, OrderError> {
        if bytes.len() > ORDER_MAX_BYTES {
            return Err(OrderError::TooLarge);
        }
        let mut reader = Reader(bytes);
        let [flags, r0, r1, c0, c1] = *reader.array::<5>()?;
        let size = (u16::from_le_bytes([r0, r1]), u16::from_le_bytes([c0, c1]));
        let (arguments, environment, place) = (reader.list()?, reader.list()?, reader.list()?);
        let [directory, user] = <[Vec<u8>; 2]>::try_from(place).map_err(|_| OrderError::Short)?;
        let terminal = (flags & 1 != 0).then_some(size);
        let order = Order { arguments, environment, directory, user, terminal };
        if !reader.0.is_empty() {
            return Err(OrderError::Long);
        }
        let strings =
            order.arguments.iter().chain(&order.environment).chain([&order.directory, &order.user]);
        let has_nul = strings.into_iter().any(|string| string.contains(&0));
        if order.arguments.is_empty() || has_nul { Err(OrderError::NoProgram) } else { Ok(order) }
    }
}

fn put_list(out: &mut Vec<u8>, items: &[Vec<u8>]) -> Result<(), OrderError> {
    let length = |n: usize| u32::try_from(n).map_err(|_| OrderError::TooLarge);
    out.extend_from_slice(&length(items.len())?.to_le_bytes());
    for item in items {
        out.extend_from_slice(&length(item.len())?.to_le_bytes());
        out.extend_from_slice(item);
    }
    Ok(())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], OrderError> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(OrderError::Short)?;
        self.0 = tail;
        Ok(head)
    }

    fn length(&mut self) -> Result<usize, OrderError> {
        Ok(u32::from_le_bytes(*self.array()?) as usize)
    }

    fn list(&mut self) -> Result<Vec<Vec<u8>>, OrderError> {
        let count = self.length()?;
        // Each item has a length of four bytes, so a count that could not be true reserves nothing.
        if count > self.0.len() / 4 {
            return Err(OrderError::Short);
        }
        let mut items = Vec::new();
        for _ in 0..count {
            let length = self.length()?;
            let (item, tail) = self.0.split_at_checked(length).ok_or(OrderError::Short)?;
            items.push(item.to_vec());
            self.0 = tail;
        }
        Ok(items)
    }
}
