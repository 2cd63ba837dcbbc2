//! The pickers of a fleet, and which of them owns which lanes.

use std::collections::BTreeMap;
use std::time::Duration;

/// Pickers of a fleet at most.
pub const PICKERS_MAX: u32 = 64;

/// Time without a sign of life from a picker after which others own its lanes.
pub const AWAY_AFTER: Duration = Duration::from_secs(1);

/// Another picker.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// When it last gave a sign of life, or was listed. `None`: it said that it stops.
    heard: Option<Duration>,
    is_connected: bool,
    /// It was asked and gave no sign of life in time.
    is_silent: bool,
}

/// All pickers, this one included.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    number: u32,
    others: BTreeMap<u32, Peer>,
    /// Pickers that own lanes, this one included, in order.
    living: Vec<u32>,
}

impl Peers {
    pub(super) fn new(number: u32) -> Self {
        Self { number, others: BTreeMap::new(), living: vec![number] }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.others.is_empty()
    }

    /// A picker is part of the fleet. Until it is heard, it owns lanes for as long as one that was just heard.
    pub(super) fn list(&mut self, now: Duration, picker: u32) {
        if picker != self.number {
            let new = Peer { heard: Some(now), is_connected: false, is_silent: false };
            self.others.entry(picker).or_insert(new);
        }
    }

    pub(super) fn unlist(&mut self, picker: u32) {
        self.others.remove(&picker);
    }

    pub(super) fn hear(&mut self, now: Duration, picker: u32) {
        if let Some(peer) = self.others.get_mut(&picker) {
            *peer = Peer { heard: Some(now), is_connected: true, is_silent: false };
        }
    }

    pub(super) fn lose(&mut self, picker: u32) {
        if let Some(peer) = self.others.get_mut(&picker) {
            peer.is_connected = false;
        }
    }

    pub(super) fn leave(&mut self, picker: u32) {
        if let Some(peer) = self.others.get_mut(&picker) {
            *peer = Peer { heard: None, is_connected: false, is_silent: false };
        }
    }

    /// It does not answer. It is not asked until it gives a sign of life.
    pub(super) fn silence(&mut self, picker: u32) {
        if let Some(peer) = self.others.get_mut(&picker) {
            peer.is_silent = true;
        }
    }

    /// Whether requests may be sent to it.
    pub(super) fn may_be_asked(&self, picker: u32) -> bool {
        self.others.get(&picker).is_some_and(|peer| peer.is_connected && !peer.is_silent)
    }

    /// When it last gave a sign of life.
    pub(super) fn heard(&self, picker: u32) -> Option<Duration> {
        self.others.get(&picker).and_then(|peer| peer.heard)
    }

    /// Finds out which pickers own lanes now. Returns whether that changed.
    pub(super) fn refresh(&mut self, now: Duration) -> bool {
        let lives = |peer: &Peer| peer.heard.is_some_and(|heard| now.saturating_sub(heard) < AWAY_AFTER);
        let others = self.others.iter().filter(|(_, peer)| lives(peer)).map(|(number, _)| *number);
        let mut living: Vec<u32> = others.chain([self.number]).collect();
        living.sort_unstable();
        let is_changed = living != self.living;
        self.living = living;
        is_changed
    }

    /// When a picker will have been silent for too long.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        let living = self.living.iter().filter_map(|number| self.heard(*number));
        living.min().map(|heard| heard.saturating_add(AWAY_AFTER))
    }

    /// The owner of lanes, by a name that all pickers know them by. Of the living pickers, the one with the highest hash
    /// (rendezvous hashing): if one leaves, only what it owned changes its owner.
    pub(super) fn owner(&self, name: &str) -> u32 {
        let highest = self.living.iter().max_by_key(|number| (hash(name, **number), **number));
        highest.copied().unwrap_or(self.number)
    }
}

/// FNV-1a, and the last step of SplitMix64, because the hashes of numbers that follow each other must not. The same on all machines.
fn hash(name: &str, number: u32) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let folded = name.bytes().chain(number.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, fold);
    let mixed = (folded ^ (folded >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn owners(peers: &Peers) -> Vec<u32> {
        (0..1_000).map(|pool| peers.owner(&format!("pool-{pool}"))).collect()
    }

    #[test]
    fn pickers_agree_and_only_what_an_absent_one_owned_moves() {
        let mut all: Vec<Peers> = (0..3).map(Peers::new).collect();
        for peers in &mut all {
            (0..3).for_each(|picker| peers.list(Duration::ZERO, picker));
            peers.refresh(Duration::ZERO);
        }
        let before = owners(&all[0]);
        assert!(all.iter().all(|peers| owners(peers) == before));
        for number in 0..3 {
            let share = before.iter().filter(|owner| **owner == number).count();
            assert!((250..=420).contains(&share), "picker {number} owns {share} of 1,000");
        }
        all[0].hear(SECOND, 1);
        assert!(all[0].refresh(SECOND), "picker 2 was not heard for a second");
        for (before, after) in before.iter().zip(owners(&all[0])) {
            assert!(if *before == 2 { after != 2 } else { after == *before });
        }
        all[0].hear(SECOND, 2);
        assert!(all[0].refresh(SECOND));
        assert_eq!(owners(&all[0]), before);
        all[0].leave(2);
        assert!(all[0].refresh(SECOND), "one that says that it stops owns nothing at once");
    }

    #[test]
    fn a_picker_is_asked_while_it_is_connected_and_gives_signs_of_life() {
        let mut peers = Peers::new(0);
        peers.list(Duration::ZERO, 1);
        assert!(!peers.may_be_asked(1), "it is not connected yet");
        peers.hear(Duration::ZERO, 1);
        assert!(peers.may_be_asked(1));
        peers.silence(1);
        assert!(!peers.may_be_asked(1));
        peers.hear(SECOND, 1);
        assert!(peers.may_be_asked(1));
        peers.lose(1);
        assert!(!peers.may_be_asked(1));
        peers.unlist(1);
        peers.hear(SECOND, 1);
        assert!(!peers.may_be_asked(1), "it is not part of the fleet any more");
    }
}
