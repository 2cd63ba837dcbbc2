//! Which models fit into the memory of a process together.
//!
//! A model takes persistent memory while it is loaded, and working memory while a batch runs. Ordinary sessions keep their working
//! memory between batches. Sessions of best effort give it back after each batch, and a lane runs one batch at a time, so on each
//! lane only the largest working memory of its best-effort models counts. This is the rule of Salus (Yu and Chowdhury, MLSys
//! 2020): the persistent memory of all models and the largest working memory of each lane are at most the capacity.
//!
//! Best-effort models leave first (AntMan, Xiao et al., OSDI 2020): an ordinary model may take the memory of best-effort models, and
//! a best-effort model takes none that others hold.

use std::collections::{BTreeMap, BTreeSet};

/// Memory that a version of a model takes, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// While it is loaded.
    pub persistent: u64,
    /// On each of its lanes, for its largest batch.
    pub working: u64,
    /// Numbers of the lanes that run it.
    pub lanes: BTreeSet<u32>,
    /// Whether it leaves when an ordinary model needs its memory, and gives its working memory back after each batch.
    pub best_effort: bool,
}

/// Number of a version in the ledger.
pub type Entry = u64;

/// A version that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("needs {} of memory, and {} of {} are left{}", mib(*.needed), mib(*.left), mib(*.capacity), advice(.unload.as_ref()))]
pub struct DoesNotFit {
    /// Bytes that it adds.
    pub needed: u64,
    /// Bytes that are left, with the memory of best-effort models if it may take that.
    pub left: u64,
    /// Bytes of the ledger.
    pub capacity: u64,
    /// The smallest model whose memory would be enough, with its bytes. `None`: no single one is enough.
    pub unload: Option<(String, u64)>,
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

fn advice(unload: Option<&(String, u64)>) -> String {
    match unload {
        Some((model, bytes)) => format!(": it fits without model `{model}`, which takes {}", mib(*bytes)),
        None => ": no other model alone takes enough memory".to_owned(),
    }
}

/// Counts the memory of loaded versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLedger {
    capacity: u64,
    held: BTreeMap<Entry, (String, Need)>,
    next: Entry,
}

impl MemoryLedger {
    /// A ledger of `capacity` bytes without models.
    pub fn new(capacity: u64) -> Self {
        Self { capacity, held: BTreeMap::new(), next: 0 }
    }

    /// Bytes that are taken.
    pub fn taken(&self) -> u64 {
        taken(self.held.values().map(|(_, need)| need))
    }

    /// What a model takes, with the most persistent memory of its versions.
    pub fn need_of(&self, model: &str) -> Option<Need> {
        let of = self.held.values().filter(|(name, _)| name == model).map(|(_, need)| need);
        of.max_by_key(|need| need.persistent).cloned()
    }

    /// Best-effort models to unload before a version fits, in the order of their names. None if it fits as it is.
    ///
    /// # Errors
    /// It does not fit even then.
    pub fn to_unload(&self, need: &Need) -> Result<BTreeSet<String>, DoesNotFit> {
        if self.with(need, &BTreeSet::new()) <= self.capacity {
            return Ok(BTreeSet::new());
        }
        let yielding = if need.best_effort { BTreeSet::new() } else { self.best_effort() };
        if self.with(need, &yielding) > self.capacity {
            return Err(self.refusal(need, &yielding));
        }
        let mut leaving = yielding;
        // Keeps the smallest first, so that few large models leave.
        let mut by_size: Vec<(u64, String)> =
            leaving.iter().map(|model| (self.bytes_of(model), model.clone())).collect();
        by_size.sort();
        for (_, model) in by_size {
            leaving.remove(&model);
            if self.with(need, &leaving) > self.capacity {
                leaving.insert(model);
            }
        }
        Ok(leaving)
    }

    /// Enters a version that fits.
    ///
    /// # Errors
    /// It does not fit as it is.
    pub fn admit(&mut self, model: &str, need: Need) -> Result<Entry, DoesNotFit> {
        if self.with(&need, &BTreeSet::new()) > self.capacity {
            return Err(self.refusal(&need, &BTreeSet::new()));
        }
        let entry = self.next;
        self.next += 1;
        self.held.insert(entry, (model.to_owned(), need));
        Ok(entry)
    }

    /// Removes a version that was unloaded.
    pub fn remove(&mut self, entry: Entry) {
        self.held.remove(&entry);
    }

    /// Models all of whose versions are best effort.
    fn best_effort(&self) -> BTreeSet<String> {
        let of = |best_effort: bool| {
            let held = self.held.values().filter(move |(_, need)| need.best_effort == best_effort);
            held.map(|(model, _)| model.clone()).collect::<BTreeSet<_>>()
        };
        of(true).difference(&of(false)).cloned().collect()
    }

    /// Bytes taken by a further version and all that are there, except those of some models.
    fn with(&self, need: &Need, without: &BTreeSet<String>) -> u64 {
        let held = self.held.values().filter(|(model, _)| !without.contains(model)).map(|(_, need)| need);
        taken(held.chain([need]))
    }

    fn bytes_of(&self, model: &str) -> u64 {
        taken(self.held.values().filter(|(of, _)| of == model).map(|(_, need)| need))
    }

    fn refusal(&self, need: &Need, yielding: &BTreeSet<String>) -> DoesNotFit {
        let nothing = Need { best_effort: need.best_effort, ..Need::default() };
        let others = self.with(&nothing, yielding);
        let models: BTreeSet<&String> = self.held.values().map(|(model, _)| model).collect();
        let enough = models.into_iter().filter(|model| {
            let mut without = yielding.clone();
            without.insert((*model).clone());
            self.with(need, &without) <= self.capacity
        });
        DoesNotFit {
            needed: self.with(need, yielding).saturating_sub(others),
            left: self.capacity.saturating_sub(others),
            capacity: self.capacity,
            unload: enough
                .map(|model| (self.bytes_of(model), model))
                .min()
                .map(|(bytes, model)| (model.clone(), bytes)),
        }
    }
}

/// Bytes that versions take together.
fn taken<'a>(needs: impl Iterator<Item = &'a Need>) -> u64 {
    let (mut bytes, mut largest) = (0_u64, BTreeMap::<u32, u64>::new());
    for need in needs {
        bytes = bytes.saturating_add(need.persistent);
        for lane in &need.lanes {
            if need.best_effort {
                let working = largest.entry(*lane).or_default();
                *working = need.working.max(*working);
            } else {
                bytes = bytes.saturating_add(need.working);
            }
        }
    }
    largest.into_values().fold(bytes, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn need(persistent: u64, working: u64, lanes: &[u32], best_effort: bool) -> Need {
        Need { persistent, working, lanes: lanes.iter().copied().collect(), best_effort }
    }

    #[test]
    fn best_effort_models_of_a_lane_share_its_working_memory() {
        let mut ledger = MemoryLedger::new(100);
        ledger.admit("a", need(10, 30, &[0], true)).unwrap();
        ledger.admit("b", need(10, 40, &[0], true)).unwrap();
        assert_eq!(ledger.taken(), 10 + 10 + 40);
        ledger.admit("c", need(10, 30, &[1], true)).unwrap();
        assert_eq!(ledger.taken(), 100);
        let refused = ledger.admit("d", need(1, 0, &[0], true)).unwrap_err();
        assert_eq!((refused.needed, refused.left), (1, 0));
    }

    #[test]
    fn ordinary_models_keep_their_working_memory_on_each_lane() {
        let mut ledger = MemoryLedger::new(100);
        ledger.admit("a", need(10, 30, &[0, 1], false)).unwrap();
        assert_eq!(ledger.taken(), 70);
        ledger.admit("b", need(0, 30, &[0], false)).unwrap();
        assert_eq!(ledger.taken(), 100);
    }

    #[test]
    fn few_best_effort_models_leave_and_only_for_ordinary_ones() {
        let mut ledger = MemoryLedger::new(100);
        for (model, bytes) in [("small", 10), ("large", 40), ("middle", 30)] {
            ledger.admit(model, need(bytes, 0, &[2], true)).unwrap();
        }
        assert!(ledger.to_unload(&need(20, 0, &[0], false)).unwrap().is_empty());
        assert_eq!(
            ledger.to_unload(&need(55, 0, &[0], false)).unwrap(),
            BTreeSet::from(["large".to_owned()])
        );
        assert_eq!(ledger.to_unload(&need(100, 0, &[0], false)).unwrap().len(), 3);
        let refused = ledger.to_unload(&need(55, 0, &[2], true)).unwrap_err();
        assert_eq!((refused.needed, refused.left), (55, 20));
        assert_eq!(refused.unload, Some(("large".to_owned(), 40)));
        let refused = ledger.to_unload(&need(101 << 20, 0, &[0], false)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "needs 101 MiB of memory, and 1 MiB of 1 MiB are left: no other model alone takes enough memory"
        );
    }

    #[derive(Clone, Debug)]
    enum Step {
        Load(usize, Need),
        Unload(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let lanes = proptest::collection::btree_set(0_u32..3, 1..3);
        let needs = (0_u64..60, 0_u64..40, lanes, any::<bool>());
        let needs = needs.prop_map(|(persistent, working, lanes, best_effort)| Need {
            persistent,
            working,
            lanes,
            best_effort,
        });
        let step = prop_oneof![
            3 => (0_usize..6, needs).prop_map(|(model, need)| Step::Load(model, need)),
            1 => (0_usize..6).prop_map(Step::Unload),
        ];
        proptest::collection::vec(step, 1..40)
    }

    /// The most that the versions can take at any time: a lane runs a batch of any one of its best-effort models.
    fn worst_case(held: &[(Entry, String, Need)]) -> u64 {
        let lanes = 0..3_u32;
        let mut most: u64 = held.iter().map(|(_, _, need)| need.persistent).sum();
        for lane in lanes {
            let on = held.iter().filter(|(_, _, need)| need.lanes.contains(&lane));
            let (yielding, ordinary): (Vec<_>, Vec<_>) = on.partition(|(_, _, need)| need.best_effort);
            most += ordinary.iter().map(|(_, _, need)| need.working).sum::<u64>();
            most += yielding.iter().map(|(_, _, need)| need.working).max().unwrap_or_default();
        }
        most
    }

    proptest! {
        #[test]
        fn whatever_runs_at_once_fits_and_only_best_effort_models_leave(steps in steps()) {
            let mut ledger = MemoryLedger::new(150);
            let mut held: Vec<(Entry, String, Need)> = Vec::new();
            for step in steps {
                match step {
                    Step::Unload(model) => {
                        let name = model.to_string();
                        held.iter().filter(|(_, of, _)| *of == name).for_each(|(entry, ..)| ledger.remove(*entry));
                        held.retain(|(_, of, _)| *of != name);
                    }
                    Step::Load(model, need) => {
                        let name = model.to_string();
                        match ledger.to_unload(&need) {
                            Ok(leaving) => {
                                prop_assert!(leaving.is_empty() || !need.best_effort);
                                for model in &leaving {
                                    // Each of them is needed.
                                    let mut fewer = leaving.clone();
                                    fewer.remove(model);
                                    prop_assert!(ledger.with(&need, &fewer) > 150);
                                }
                                for (entry, of, need) in &held {
                                    if leaving.contains(of) {
                                        prop_assert!(need.best_effort);
                                        ledger.remove(*entry);
                                    }
                                }
                                held.retain(|(_, of, _)| !leaving.contains(of));
                                let entry = ledger.admit(&name, need.clone());
                                prop_assert!(entry.is_ok());
                                held.push((entry.unwrap(), name, need));
                            }
                            Err(refused) => {
                                prop_assert!(refused.needed > refused.left);
                                let stays = |of: &str| {
                                    need.best_effort
                                        || held.iter().any(|(_, other, need)| other == of && !need.best_effort)
                                };
                                let mut all: Vec<_> =
                                    held.iter().filter(|(_, of, _)| stays(of)).cloned().collect();
                                all.push((0, name, need.clone()));
                                prop_assert!(worst_case(&all) > 150);
                            }
                        }
                    }
                }
                prop_assert_eq!(ledger.taken(), worst_case(&held));
                prop_assert!(ledger.taken() <= 150);
            }
        }
    }
}
