//! An image that is open: what it says, and its pages, one after the other.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::ops::Range;

use super::Run;
use super::description::{Description, Place};
use super::inherited::Parents;
use super::parse::parse;
use super::pieces::{Files, Pieces, damaged};
use super::reader::Reader;
use crate::error::Error;
use crate::functions::Function;
use crate::limits::READER_RUNS;
use crate::pod::Pod;
use crate::state::{Owner, State};

/// An image, read and checked.
#[derive(Debug)]
pub struct Image {
    description: Description,
    source: Source,
}

/// Who decompresses pages.
#[derive(Debug)]
enum Source {
    /// This process.
    Here(Pieces),
    /// Another one. Pages that are in the files as they are, are read here.
    There(Reader, Files),
}

impl Image {
    /// Read an image that has no parent.
    ///
    /// # Errors
    ///
    /// [`Error::Image`] for one that is none, is damaged, describes what no processes can be, or has a parent.
    pub fn open(file: File) -> Result<Self, Error> {
        Self::open_with(file, &mut ())
    }

    /// Read an image whose parents somebody has.
    ///
    /// # Errors
    ///
    /// [`Error::Image`] for one that is none, is damaged, or describes what no processes can be, and for one with a
    /// parent that is missing or another one now.
    pub fn open_with(file: File, parents: &mut dyn Parents) -> Result<Self, Error> {
        let (description, pieces) = parse(file, parents)?;
        Ok(Self { description, source: Source::Here(pieces) })
    }

    /// Have an image read by a process that can do nothing else. What that says is checked here again.
    ///
    /// # Errors
    ///
    /// As [`open_with`](Self::open_with), and [`Error::Reader`] where that process is not what it is to be.
    pub fn open_by(
        mut reader: Reader,
        file: &File,
        parents: &mut dyn Parents,
    ) -> Result<Self, Error> {
        let (description, files) = reader.open(file, parents)?;
        description.check(files.0.len())?;
        Ok(Self { description, source: Source::There(reader, files) })
    }

    /// The processes.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.description.state
    }

    /// The pod that they were, if this is the image of one.
    #[must_use]
    pub fn pod(&self) -> Option<&Pod> {
        self.description.pod.as_ref()
    }

    /// The functions of their vDSO.
    pub(crate) fn functions(&self) -> &[Function] {
        &self.description.functions
    }

    /// Write the archive of its files to somebody.
    ///
    /// # Errors
    ///
    /// Where it is damaged, or nobody takes it.
    pub fn copy_files(&self, mut to: impl Write) -> Result<(), Error> {
        for pages in self.pages_of(Owner::Files) {
            to.write_all(&pages?.1).map_err(Error::io("hand the files over"))?;
        }
        Ok(())
    }

    /// Where all pages are, by owner and address.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.description.runs
    }

    /// Those of one owner.
    #[must_use]
    pub fn runs_of(&self, owner: Owner) -> &[Run] {
        &self.runs()[self.places_of(owner)]
    }

    /// The numbers of those.
    pub(crate) fn places_of(&self, owner: Owner) -> Range<usize> {
        let runs = self.runs();
        runs.partition_point(|run| run.owner < owner)
            ..runs.partition_point(|run| run.owner <= owner)
    }

    /// All pages, in order.
    #[must_use]
    pub fn pages(&self) -> Pages<'_> {
        self.pages_at(0..self.runs().len())
    }

    /// The pages of one owner, in order.
    #[must_use]
    pub fn pages_of(&self, owner: Owner) -> Pages<'_> {
        self.pages_at(self.places_of(owner))
    }

    /// The runs of pages with these numbers, in order.
    pub(crate) fn pages_at(&self, numbers: Range<usize>) -> Pages<'_> {
        Pages { image: self, numbers, unpacked: VecDeque::new() }
    }

    /// Where the bytes of a run of pages are.
    fn place(&self, number: usize) -> Option<(Run, &Place)> {
        Some((*self.runs().get(number)?, self.description.places.get(number)?))
    }
}

/// Pages, run by run.
#[derive(Debug)]
pub struct Pages<'a> {
    image: &'a Image,
    /// Those to come.
    numbers: Range<usize>,
    /// The next ones that were packed.
    unpacked: VecDeque<Vec<u8>>,
}

impl Pages<'_> {
    fn read(&mut self, number: usize) -> Result<(Run, Vec<u8>), Error> {
        let nowhere = || damaged("pages are in no file");
        let (run, place) = self.image.place(number).ok_or_else(nowhere)?;
        let bytes = match (&self.image.source, place) {
            (Source::Here(pieces), Place::Plain(plain)) => pieces.files().read(plain, run),
            (Source::There(_, files), Place::Plain(plain)) => files.read(plain, run),
            (Source::Here(pieces), Place::Packed) => pieces.unpack(number)?.ok_or_else(nowhere),
            (Source::There(reader, _), Place::Packed) => {
                if self.unpacked.is_empty() {
                    let last = self.numbers.end.min(number + READER_RUNS);
                    self.unpacked = reader.unpack(number..last, &self.packed(number..last))?.into();
                }
                self.unpacked.pop_front().ok_or_else(nowhere)
            }
        };
        Ok((run, bytes?))
    }

    /// The bytes of each of these runs that is packed.
    fn packed(&self, numbers: Range<usize>) -> Vec<usize> {
        let places = numbers.filter_map(|number| self.image.place(number));
        let packed = places.filter(|(_, place)| **place == Place::Packed);
        packed.map(|(run, _)| run.bytes as usize).collect()
    }
}

impl Iterator for Pages<'_> {
    /// The run and its bytes, or why there are none: they are damaged, or nobody reads them any more.
    type Item = Result<(Run, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let number = self.numbers.next()?;
        Some(self.read(number))
    }
}
