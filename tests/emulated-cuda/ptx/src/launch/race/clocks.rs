//! Which accesses of a warp's lanes come before what a lane does now.

use crate::registers::{FULL, LANES, lanes};

/// Counts a warp's meetings. An access has the number of meetings before it as its stamp.
#[derive(Default)]
pub(in crate::launch) struct Clocks {
    meetings: u32,
    /// For a lane and another one: that one's accesses with a lower stamp come before what the
    /// lane does now. Not there before the first meeting.
    seen: Option<Box<[[u32; LANES]; LANES]>>,
}

impl Clocks {
    pub(super) fn stamp(&self) -> u32 {
        self.meetings
    }

    /// Lanes of a mask whose access with this stamp does not come before what `lane` does now.
    pub(super) fn unordered(&self, mask: u32, stamp: u32, lane: usize) -> u32 {
        let others = mask & !(1 << lane);
        match &self.seen {
            None => others,
            Some(seen) => lanes(others)
                .filter(|other| stamp >= seen[lane][*other])
                .fold(0, |mask, other| mask | 1 << other),
        }
    }

    /// Lanes met: each comes after all that any of them did, or came after itself.
    pub(in crate::launch) fn meet(&mut self, members: u32) {
        self.meetings += 1;
        let seen = self.seen.get_or_insert_with(|| Box::new([[0; LANES]; LANES]));
        if members == FULL {
            return seen.fill([self.meetings; LANES]);
        }
        let mut joined = [0; LANES];
        for lane in lanes(members) {
            for (joined, seen) in joined.iter_mut().zip(seen[lane]) {
                *joined = seen.max(*joined);
            }
        }
        for lane in lanes(members) {
            joined[lane] = self.meetings;
        }
        for lane in lanes(members) {
            seen[lane] = joined;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_goes_on_from_meeting_to_meeting() {
        let mut clocks = Clocks::default();
        let stamp = clocks.stamp();
        assert_eq!(clocks.unordered(0b1, stamp, 2), 0b1);
        clocks.meet(0b011);
        assert_eq!(clocks.unordered(0b1, stamp, 1), 0);
        assert_eq!(clocks.unordered(0b1, stamp, 2), 0b1);
        let later = clocks.stamp();
        clocks.meet(0b110);
        assert_eq!(clocks.unordered(0b1, stamp, 2), 0);
        assert_eq!(clocks.unordered(0b1, later, 2), 0b1);
        clocks.meet(FULL);
        assert_eq!(clocks.unordered(FULL, later, 2), 0);
    }
}
