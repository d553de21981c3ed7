//! What waits for a cable's end to take it, in a lane for each sender.
//!
//! Turns share the router among those who send. Where a receiver is slower than the router, it is the receiver that has
//! to be shared, and in one queue whoever keeps more frames in it would get more of it: a sender with a hundred
//! connections ten times as much as one with ten. So lanes are emptied by deficit round robin, and when all is full a
//! sender has room for as long as its lane is shorter than the others' on average.

use std::collections::{BTreeMap, VecDeque};

use router::{Mac, PortId};

use crate::limits::{BATCH_BYTES, LANE_TURN_BYTES};

/// Bytes of the length before a frame on a cable.
pub const PREFIX_BYTES: usize = 4;

/// Bytes of an Ethernet address, of which a frame begins with its destination's.
const MAC_BYTES: usize = 6;

/// The frames of one sender, as they go over the cable.
#[derive(Debug, Default)]
struct Lane {
    bytes: Vec<u8>,
    /// Bytes that were taken.
    start: usize,
    /// Bytes that it may still send in its turn.
    credit: usize,
}

impl Lane {
    fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// The first frame, with its length.
    fn first(&self) -> Option<&[u8]> {
        let waiting = &self.bytes[self.start..];
        let length = u32::from_be_bytes(*waiting.first_chunk::<PREFIX_BYTES>()?) as usize;
        waiting.get(..PREFIX_BYTES + length)
    }

    /// Move what its turn allows behind what is to go.
    fn take(&mut self, to: &mut Vec<u8>) {
        self.credit += LANE_TURN_BYTES;
        while let Some(frame) = self.first().filter(|frame| frame.len() <= self.credit) {
            let length = frame.len();
            to.extend_from_slice(frame);
            self.credit -= length;
            self.start += length;
        }
        // What is left is moved when that is worth it.
        if self.start >= self.bytes.len() / 2 {
            self.bytes.drain(..std::mem::take(&mut self.start));
        }
    }
}

/// A frame as it goes over a cable: its length, its destination, which may be another than it says, and the rest.
pub fn pieces<'a>(length: &'a [u8], frame: &'a [u8], mac: Option<&'a Mac>) -> [&'a [u8]; 3] {
    let (destination, rest) = frame.split_at(frame.len().min(MAC_BYTES));
    [length, mac.map_or(destination, |mac| &mac.0), rest]
}

/// All lanes that have something.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: BTreeMap<PortId, Lane>,
    /// Their turns.
    line: VecDeque<PortId>,
    bytes: usize,
}

impl Lanes {
    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Put a frame into its sender's lane, for this address if that is another than the frame's; whether there was
    /// room, where so many bytes may wait, or twice as many for the sake of short lanes.
    ///
    /// Half of a frame has to fit. If all of it had to, who sends large frames would lose more than who sends small
    /// ones; if none of it had to, less.
    pub fn put(&mut self, from: PortId, frame: &[u8], mac: Option<Mac>, room: usize) -> bool {
        let own = self.lanes.get(&from).map(Lane::len);
        let senders = self.lanes.len() + usize::from(own.is_none());
        let (half, own) = (frame.len() / 2, own.unwrap_or(0));
        let is_short = own + half <= room / senders;
        let most = if is_short { 2 * room } else { room };
        let Some(length) = u32::try_from(frame.len()).ok().filter(|_| self.bytes + half <= most)
        else {
            return false;
        };
        let lane = self.lanes.entry(from).or_insert_with(|| {
            self.line.push_back(from);
            Lane::default()
        });
        let before = lane.bytes.len();
        for piece in pieces(&length.to_be_bytes(), frame, mac.as_ref()) {
            lane.bytes.extend_from_slice(piece);
        }
        self.bytes += lane.bytes.len() - before;
        true
    }

    /// Move turns of the lanes behind what is to go, until that is enough to be written.
    pub fn take(&mut self, to: &mut Vec<u8>) {
        while to.len() < BATCH_BYTES
            && let Some(port) = self.line.pop_front()
        {
            let Some(lane) = self.lanes.get_mut(&port) else { continue };
            let before = lane.len();
            lane.take(to);
            self.bytes -= before - lane.len();
            match lane.len() {
                0 => drop(self.lanes.remove(&port)),
                _ => self.line.push_back(port),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 1 << 20;

    /// Frames of each sender that a slow receiver gets, where each round brings so many of so many bytes from each.
    fn shares(senders: [(usize, usize); 3]) -> [usize; 3] {
        let (mut lanes, mut shares) = (Lanes::default(), [0; 3]);
        for _ in 0..300 {
            for number in 0..senders.iter().map(|it| it.0).max().unwrap() {
                for (sender, (count, bytes)) in senders.iter().enumerate() {
                    if number < *count {
                        let frame = vec![sender as u8; *bytes];
                        lanes.put(PortId::Vif(sender as u16), &frame, None, ROOM);
                    }
                }
            }
            assert!(lanes.bytes() <= 2 * ROOM);
            let mut taken = Vec::new();
            lanes.take(&mut taken);
            let mut rest = &taken[..];
            while let Some((prefix, behind)) = rest.split_first_chunk::<PREFIX_BYTES>() {
                let (frame, behind) = behind.split_at(u32::from_be_bytes(*prefix) as usize);
                shares[usize::from(frame[0])] += frame.len();
                rest = behind;
            }
        }
        shares
    }

    #[test]
    fn senders_share_a_slow_receiver_whatever_they_have_under_way() {
        for senders in
            [[(1, 60000), (10, 60000), (100, 60000)], [(60, 1500), (10, 9000), (9, 60000)]]
        {
            let shares = shares(senders);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(*least as f64 >= 0.9 * *most as f64, "{senders:?}: {shares:?}");
        }
    }

    #[test]
    fn who_is_alone_has_all_of_it() {
        let [one, two, three] = shares([(100, 1500), (0, 0), (0, 0)]);
        assert!(one > 300 * (BATCH_BYTES - 1504) && (two, three) == (0, 0), "{one}");
    }

    #[test]
    fn a_frame_is_as_it_was_but_for_its_destination() {
        let mut lanes = Lanes::default();
        assert!(lanes.put(PortId::Uplink, &[7; 20], Some(Mac([1; 6])), ROOM));
        assert!(lanes.put(PortId::Uplink, &[8; 14], None, ROOM));
        let mut taken = Vec::new();
        lanes.take(&mut taken);
        let first = [&[0, 0, 0, 20][..], &[1; 6], &[7; 14]].concat();
        assert_eq!(taken, [&first[..], &[0, 0, 0, 14], &[8; 14]].concat());
        assert_eq!((lanes.bytes(), lanes.lanes.len()), (0, 0));
    }
}
