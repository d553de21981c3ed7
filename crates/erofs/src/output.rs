//! The file that is written: blocks one after the other, with holes for those of zeroes; and a hash
//! of all of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::format::{BLOCK_BYTES, Super};
use crate::limits::BUFFER_BYTES;
use crate::{Error, Identity};

/// See above.
pub struct Output<'a> {
    file: &'a File,
    /// Whole blocks that are not written yet.
    buffer: Vec<u8>,
    /// Where the first of them belongs, in blocks.
    at: u64,
    hasher: blake3::Hasher,
    /// All but which file system it is.
    super_block: Option<Super>,
}

impl<'a> Output<'a> {
    /// Begins at the first block of the file.
    pub fn new(file: &'a File) -> Self {
        let hasher = blake3::Hasher::new();
        Self { file, buffer: Vec::new(), at: 0, hasher, super_block: None }
    }

    /// The block that is next. Linux counts them with 32 bits, and takes the last for none.
    pub fn block(&self) -> Result<u32, Error> {
        let block = self.at + (self.buffer.len() / BLOCK_BYTES) as u64;
        u32::try_from(block).ok().filter(|block| *block < u32::MAX).ok_or(Error::TooLarge)
    }

    /// Adds a block of zeroes.
    pub fn skip_block(&mut self) -> Result<(), Error> {
        self.skip(1)
    }

    /// Adds so many of them.
    pub fn skip(&mut self, blocks: u64) -> Result<(), Error> {
        self.flush()?;
        self.at = self.at.checked_add(blocks).ok_or(Error::TooLarge)?;
        self.block().map(drop)
    }

    /// Adds bytes, the last block of which is filled with zeroes.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), Error> {
        for block in bytes.chunks(BLOCK_BYTES) {
            if block.iter().all(|byte| *byte == 0) {
                self.skip_block()?;
                continue;
            }
            // Wherever the next one is, holes are part of it.
            self.hasher.update(&self.block()?.to_le_bytes());
            self.hasher.update(block);
            self.buffer.extend_from_slice(block);
            self.buffer.resize(self.buffer.len().next_multiple_of(BLOCK_BYTES), 0);
            if self.buffer.len() >= BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.at * BLOCK_BYTES as u64)?;
        self.at += (self.buffer.len() / BLOCK_BYTES) as u64;
        self.buffer.clear();
        Ok(())
    }

    /// What the first block will say. The number of blocks and the file system's own are added.
    pub fn set_super_block(&mut self, super_block: Super) {
        self.super_block = Some(super_block);
    }

    /// Has the disk have all of it, and then the first block.
    pub fn finish(mut self) -> Result<Identity, Error> {
        self.flush()?;
        let blocks = self.block()?;
        self.file.set_len(u64::from(blocks) * BLOCK_BYTES as u64)?;
        let mut super_block = self.super_block.ok_or(Error::TooLarge)?;
        super_block.blocks = blocks;
        self.hasher.update(&super_block.encode());
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&self.hasher.finalize().as_bytes()[..16]);
        // A UUID of nobody's own kind (RFC 9562, 5.8).
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        super_block.uuid = uuid;
        self.file.sync_data()?;
        self.file.write_all_at(&super_block.encode(), 0)?;
        self.file.sync_all()?;
        Ok(Identity(uuid))
    }
}
