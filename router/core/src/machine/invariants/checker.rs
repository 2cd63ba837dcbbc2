//! The invariants in production: a few items after some events, so that the cost has a bound.

use invariant::Site;

use super::{GROUPS, Group, Violation};
use crate::machine::Router;

/// Items that are checked at a time.
const SLICE: usize = 32;
/// Places, most of them vacant, that are passed at a time.
const PLACES: usize = 256;
/// Events for each item that was looked at. Handling an event takes several times as long as checking an item, so the
/// cost stays well below 1 %.
const EVENTS_PER_ITEM: usize = 64;
/// Most others that one item is compared with. Sums over more are only checked by [`Router::check`].
const SUM: usize = 512;
/// Events without checks after a violation: the state that violates an invariant often violates it for long.
const PAUSE: usize = 1 << 16;

/// Checks the invariants of a running router bit by bit and counts violations by their id.
///
/// Each step looks at a few requests, queues, batches, lanes, pools or models, going round, and is followed by a pause
/// in proportion to its work. In a router with `n` items, each item is checked once in about 64 `n` events.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    group: usize,
    index: usize,
    pause: usize,
}

impl Checker {
    /// To be called after each [`Router::handle`]. A violation is counted (see the crate `invariant`) and returned, so
    /// that the caller can log it.
    pub fn after_event(&mut self, router: &Router) -> Result<(), Violation> {
        if let Some(left) = self.pause.checked_sub(1) {
            self.pause = left;
            return Ok(());
        }
        match self.step(router) {
            Ok(items) => {
                self.pause = items * EVENTS_PER_ITEM;
                Ok(())
            }
            Err(violation) => {
                self.pause = PAUSE;
                count(violation.id);
                Err(violation)
            }
        }
    }

    /// Checks the next items and returns how many were looked at.
    fn step(&mut self, router: &Router) -> Result<usize, Violation> {
        let mut looked_at = 1;
        for _ in 0..PLACES {
            let group = GROUPS.get(self.group).copied().unwrap_or_default();
            if self.index >= router.items(group) {
                (self.group, self.index) = ((self.group + 1) % GROUPS.len(), 0);
                // One group at a time, so that an empty router costs nothing.
                break;
            }
            let index = self.index;
            self.index += 1;
            looked_at += match router.check_item(group, index, SUM)? {
                0 if group != Group::Totals => 0,
                others => 1 + others,
            };
            if looked_at >= SLICE {
                break;
            }
        }
        Ok(looked_at)
    }
}

macro_rules! sites {
    ($($id:literal),*) => {
        [$(($id, Site::new(concat!("router.", $id), file!(), line!()))),*]
    };
}

fn count(id: &'static str) {
    static SITES: [(&str, Site); 11] =
        sites!("R1", "R3", "R4", "R5", "R6", "R7", "R10", "R11", "R12", "R13", "R14");
    match SITES.iter().find(|(known, _)| *known == id) {
        Some((_, site)) => site.count(),
        None => invariant::violated!("router.unnamed_invariant"),
    }
}

#[cfg(test)]
mod tests;
