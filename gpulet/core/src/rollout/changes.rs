//! What has to change for the table in force to become a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::known::Known;
use super::proposal::{Place, Weighed};
use crate::id::GpuletId;

/// One thing that has to change.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// A gpulet becomes active; it may exist already, made for a plan that was replaced.
    Add { weighed: Arc<Weighed>, made: Option<GpuletId> },
    /// A gpulet goes.
    Remove(GpuletId),
    /// A gpulet stays and runs its models otherwise.
    Update(GpuletId, Arc<Weighed>),
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    pub list: Vec<Change>,
    /// Gpulets that were made for another plan and that this one has no use for.
    pub unwanted: Vec<GpuletId>,
}

pub(super) type Table = BTreeMap<GpuletId, Arc<Weighed>>;

/// Gpulets by place, of which each is taken once.
struct Offer<'a>(BTreeMap<Place<'a>, Vec<(GpuletId, &'a Weighed)>>);

impl<'a> Offer<'a> {
    fn new(gpulets: impl Iterator<Item = (GpuletId, &'a Weighed)>) -> Self {
        let mut places: BTreeMap<Place<'a>, Vec<_>> = BTreeMap::new();
        for (id, weighed) in gpulets {
            places.entry(weighed.place()).or_default().push((id, weighed));
        }
        Self(places)
    }

    fn take(&mut self, wanted: &'a Weighed, fits: impl Fn(&Weighed) -> bool) -> Option<GpuletId> {
        let offered = self.0.get_mut(&wanted.place())?;
        let at = offered.iter().position(|(_, held)| held.has_models_of(wanted) && fits(held))?;
        Some(offered.remove(at).0)
    }
}

impl Changes {
    /// Kept are gpulets of the same device and units that run the same models and did not break; one of the same
    /// window is preferred. Whatever is known but not in the table was made for a plan that was replaced, and serves
    /// this one if it can.
    pub fn between(table: &Table, known: &BTreeMap<GpuletId, Known>, target: &[Arc<Weighed>]) -> Self {
        let sound = |id: &GpuletId| known.get(id).is_some_and(|known| !known.faulty);
        let active = table.iter().filter(|(id, _)| sound(id));
        let mut offer = Offer::new(active.map(|(id, weighed)| (*id, weighed.as_ref())));
        let mut kept: Vec<Option<GpuletId>> = target
            .iter()
            .map(|wanted| offer.take(wanted, |held| held.gpulet.window == wanted.gpulet.window))
            .collect();
        for (kept, wanted) in kept.iter_mut().zip(target) {
            *kept = kept.or_else(|| offer.take(wanted, |_| true));
        }
        let made = known
            .iter()
            .filter(|(id, known)| !table.contains_key(id) && !known.faulty && known.rest.is_none());
        let mut made = Offer::new(made.map(|(id, known)| (*id, known.weighed.as_ref())));
        let mut changes = Self::default();
        let mut used: BTreeSet<GpuletId> = BTreeSet::new();
        for (kept, wanted) in kept.iter().zip(target) {
            let Some(id) = kept else {
                let made = made.take(wanted, |_| true);
                used.extend(made);
                changes.list.push(Change::Add { weighed: Arc::clone(wanted), made });
                continue;
            };
            used.insert(*id);
            if table.get(id).is_some_and(|weighed| weighed.gpulet != wanted.gpulet) {
                changes.list.push(Change::Update(*id, Arc::clone(wanted)));
            }
        }
        let removed = table.keys().filter(|id| !used.contains(id));
        changes.list.extend(removed.map(|id| Change::Remove(*id)));
        let leftover = known.keys().filter(|id| !table.contains_key(id) && !used.contains(id));
        changes.unwanted = leftover.copied().collect();
        changes
    }
}
