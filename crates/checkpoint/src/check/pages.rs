//! Where the pages of an image may be: in its file, and in memory.

use super::words::require;
use crate::error::Error;
use crate::image::{Extent, Run};
use crate::limits::{END_OF_MEMORY, MAX_EXTENTS, PAGE_BYTES, PIECE_BYTES};
use crate::state::{Owner, Source, State};

/// Check where pieces are in a file whose description begins at `end`, and the form of all that refers to them.
pub(crate) fn check_pieces(extents: &[Extent], end: u64) -> Result<(), Error> {
    check_runs(extents.iter().map(Extent::run))?;
    for extent in extents {
        let piece = extent.piece();
        let is_part = piece as usize <= PIECE_BYTES
            && u64::from(piece) % PAGE_BYTES == 0
            && u64::from(extent.skip) % PAGE_BYTES == 0
            && extent.skip.checked_add(extent.bytes).is_some_and(|end| end <= piece);
        require(is_part && extent.stored <= piece, "pages are not whole")?;
        let stored = extent.offset.checked_add(extent.stored.into());
        require(stored.is_some_and(|stored| stored <= end), "pages are not in the file")?;
    }
    Ok(())
}

/// Check the form of runs of pages, and their order.
pub(crate) fn check_runs(runs: impl ExactSizeIterator<Item = Run>) -> Result<(), Error> {
    require(runs.len() <= MAX_EXTENTS, "it has too many pages")?;
    let mut last = (Owner::Process(0), 0);
    for run in runs {
        let is_whole = run.bytes > 0
            && run.bytes as usize <= PIECE_BYTES
            && u64::from(run.bytes) % PAGE_BYTES == 0
            && run.address % PAGE_BYTES == 0;
        require(is_whole, "pages are not whole")?;
        require((run.owner, run.address) >= last, "pages are out of order")?;
        let behind = run.address.checked_add(run.bytes.into());
        let behind = behind.filter(|behind| *behind <= END_OF_MEMORY);
        last = (run.owner, behind.ok_or_else(|| Error::Image("pages are nowhere".to_owned()))?);
    }
    Ok(())
}

/// Check where pages of a parent are said to be.
pub(crate) fn check_kept(kept: &[(Owner, u64, u64)]) -> Result<(), Error> {
    require(kept.len() <= MAX_EXTENTS, "it has too many pages of its parent")?;
    let mut last = (Owner::Process(0), 0);
    for &(owner, start, end) in kept {
        let is_fine = matches!(owner, Owner::Process(_))
            && start < end
            && end <= END_OF_MEMORY
            && start % PAGE_BYTES == 0
            && end % PAGE_BYTES == 0
            && (owner, start) >= last;
        require(is_fine, "what it has of its parent is wrong")?;
        last = (owner, end);
    }
    Ok(())
}

/// Check where pages are in memory: nowhere but where their owners have room for them.
pub(crate) fn check_places(state: &State, runs: &[Run]) -> Result<(), Error> {
    let mut by_pid = std::collections::BTreeMap::new();
    for process in &state.processes {
        by_pid.insert(process.pid, &process.memory.mappings);
    }
    let mut files = 0;
    for run in runs {
        let pid = match run.owner {
            Owner::Process(pid) => pid,
            Owner::Segment(index) => {
                let segments = state.ipc.as_ref().map_or(&[][..], |ipc| &ipc.segments);
                let segment = segments.get(index as usize);
                let end = segment.map_or(0, |segment| segment.bytes.next_multiple_of(PAGE_BYTES));
                let is_inside = run.address + u64::from(run.bytes) <= end;
                require(is_inside, "pages are behind the end of System V memory")?;
                continue;
            }
            Owner::Object(index) => {
                let object = state.objects.get(index as usize);
                let end = object.map_or(0, |object| object.bytes.next_multiple_of(PAGE_BYTES));
                let is_inside = run.address + u64::from(run.bytes) <= end;
                require(is_inside, "pages are behind the end of their object")?;
                continue;
            }
            Owner::Files => {
                require(run.address == files, "a part of the files is missing")?;
                files += u64::from(run.bytes);
                continue;
            }
        };
        let mappings = by_pid.get(&pid);
        let mappings = mappings.ok_or_else(|| Error::Image("pages are nobody's".to_owned()))?;
        let (mut at, behind) = (run.address, run.address + u64::from(run.bytes));
        while at < behind {
            let index = mappings.partition_point(|mapping| mapping.end <= at);
            let mapping = mappings.get(index).filter(|mapping| mapping.start <= at);
            let mapping = mapping.filter(|mapping| {
                !mapping.shared && !matches!(mapping.source, Source::Vdso | Source::VdsoData)
            });
            at = mapping.ok_or_else(|| Error::Image("pages are in no mapping".to_owned()))?.end;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner::Process(2);

    fn extent(change: impl FnOnce(&mut Extent)) -> Extent {
        let mut extent = Extent {
            owner: OWNER,
            address: 0x10_0000,
            bytes: 0x2000,
            offset: 0x1000,
            stored: 0x4000,
            crc: 0,
            skip: 0x1000,
            whole: 0x4000,
            file: 0,
        };
        change(&mut extent);
        extent
    }

    #[test]
    fn a_part_is_in_its_piece_and_a_piece_in_its_file() {
        let end = 0x5000;
        let check = |change: fn(&mut Extent)| check_pieces(&[extent(change)], end);
        check(|_| ()).expect("that is fine");
        check(|it| it.skip = 0x2000).expect("so is this");
        let wrong: [fn(&mut Extent); 9] = [
            |it| it.skip = 0x3000,
            |it| it.skip = 0x800,
            |it| it.skip = u32::MAX - 0xfff,
            |it| it.whole = 0x2000,
            |it| it.whole = 0x3800,
            |it| (it.whole, it.stored) = (0x2_0000, 0x2_0000),
            |it| it.stored = 0x4001,
            |it| it.offset = 0x1001,
            |it| it.address = END_OF_MEMORY - 0x1000,
        ];
        for (number, change) in wrong.into_iter().enumerate() {
            assert!(check(change).is_err(), "{number}");
        }
        let twice = [extent(|_| ()), extent(|it| it.address += 0x1000)];
        assert!(check_pieces(&twice, end).is_err(), "they overlap");
    }

    #[test]
    fn what_is_kept_of_a_parent_is_in_order() {
        let page = PAGE_BYTES;
        check_kept(&[(OWNER, page, 2 * page), (OWNER, 2 * page, 9 * page)]).expect("that is fine");
        let wrong = [
            vec![(OWNER, page, page)],
            vec![(OWNER, page, 0)],
            vec![(OWNER, page, 3 * page), (OWNER, 2 * page, 4 * page)],
            vec![(Owner::Process(3), page, 3 * page), (OWNER, 4 * page, 5 * page)],
            vec![(OWNER, page + 1, 3 * page)],
            vec![(OWNER, page, 3 * page - 1)],
            vec![(OWNER, page, u64::MAX - page + 1)],
            vec![(Owner::Files, 0, page)],
            vec![(Owner::Object(0), 0, page)],
        ];
        for kept in wrong {
            assert!(check_kept(&kept).is_err(), "{kept:?}");
        }
    }
}
