//! What to run in the guest, and its encoding: a flag byte (bit 0: on a terminal; bit 1: with groups; bit 2: of init's
//! own; bits 3 to 5: standard input, output and error are closed; bit 6: with one pipe for both outputs; bit 7:
//! adopted), the terminal's rows and columns (2 bytes each), then three lists of byte strings (arguments, environment,
//! and the working directory with the user), each as a count and length-prefixed items, and the groups as a count and
//! numbers, all 4-byte little-endian.

use crate::ORDER_MAX_BYTES;

/// Bits of the flag byte.
const ON_TERMINAL: u8 = 1;
const HAS_GROUPS: u8 = 2;
const IS_OWN: u8 = 4;
const CLOSED: [u8; 3] = [8, 16, 32];
const JOINS_STREAMS: u8 = 64;
const IS_ADOPTED: u8 = 128;

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
    /// The groups that the user is in besides its own, if the host knows them; otherwise it is in those that
    /// the host has once said, or in those that the guest's `/etc/group` says.
    pub groups: Option<Vec<u32>>,
    /// Rows and columns of the terminal to run it on, if it is to have one.
    pub terminal: Option<(u16, u16)>,
    /// It is no program of the guest's, but what init does itself; the arguments are those of a
    /// [`crate::copy::Copy`].
    pub is_own: bool,
    /// Which of its standard streams fail as closed ones do: input, output, error. A terminal has none closed.
    pub closed: [bool; 3],
    /// Standard output and standard error are one pipe, because they are one file on the host: what is written
    /// to both keeps its order.
    pub joins_streams: bool,
    /// It is no program, but a process that the pod's keeper makes with init as its parent; its number there is the
    /// argument, and that of its terminal the second. Init has streams for it, says [`crate::Frame::Streams`], and
    /// waits for [`crate::Frame::Adopted`].
    pub is_adopted: bool,
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
        let on_terminal = if self.terminal.is_some() { ON_TERMINAL } else { 0 };
        let has_groups = if self.groups.is_some() { HAS_GROUPS } else { 0 };
        let is_own = if self.is_own { IS_OWN } else { 0 };
        let closed = self.closed.iter().zip(CLOSED).filter(|(is_closed, _)| **is_closed);
        let closed: u8 = closed.map(|(_, bit)| bit).sum();
        let joins_streams = if self.joins_streams { JOINS_STREAMS } else { 0 };
        let is_adopted = if self.is_adopted { IS_ADOPTED } else { 0 };
        out.push(on_terminal | has_groups | is_own | closed | joins_streams | is_adopted);
        out.extend_from_slice(&rows.to_le_bytes());
        out.extend_from_slice(&columns.to_le_bytes());
        put_list(&mut out, &self.arguments)?;
        put_list(&mut out, &self.environment)?;
        put_list(&mut out, &[self.directory.clone(), self.user.clone()])?;
        let groups = self.groups.as_deref().unwrap_or_default();
        put_length(&mut out, groups.len())?;
        groups.iter().for_each(|group| out.extend_from_slice(&group.to_le_bytes()));
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
        let terminal = (flags & ON_TERMINAL != 0).then_some(size);
        let groups = reader.numbers()?;
        let groups = (flags & HAS_GROUPS != 0).then_some(groups);
        let order = Order {
            arguments,
            environment,
            directory,
            user,
            groups,
            terminal,
            is_own: flags & IS_OWN != 0,
            closed: CLOSED.map(|bit| flags & bit != 0),
            joins_streams: flags & JOINS_STREAMS != 0,
            is_adopted: flags & IS_ADOPTED != 0,
        };
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
    put_length(out, items.len())?;
    for item in items {
        put_length(out, item.len())?;
        out.extend_from_slice(item);
    }
    Ok(())
}

fn put_length(out: &mut Vec<u8>, length: usize) -> Result<(), OrderError> {
    let length = u32::try_from(length).map_err(|_| OrderError::TooLarge)?;
    out.extend_from_slice(&length.to_le_bytes());
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

    fn numbers(&mut self) -> Result<Vec<u32>, OrderError> {
        let count = self.length()?;
        // A count that could not be true reserves nothing.
        let bytes = count.checked_mul(4).and_then(|length| self.0.split_at_checked(length));
        let (bytes, tail) = bytes.ok_or(OrderError::Short)?;
        self.0 = tail;
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes);
        bytes.chunks_exact(4).map(number).collect::<Result<_, _>>().map_err(|_| OrderError::Short)
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
