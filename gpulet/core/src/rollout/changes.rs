//! The changes from the table in force to a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::known::Known;
use super::proposal::{Place, SizedGpulet};
use crate::id::GpuletId;

/// One change of a gpulet.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// A gpulet becomes active. It may exist already, opened for a plan that was replaced.
    Add { sized: Arc<SizedGpulet>, existing: Option<GpuletId> },
    /// A gpulet is removed.
    Remove(GpuletId),
    /// A gpulet stays, with other batch sizes, rates or windows.
    Update(GpuletId, Arc<SizedGpulet>),
}

/// All changes of a plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    pub list: Vec<Change>,
    /// Gpulets that were opened for another plan and that this one does not use.
    pub unwanted: Vec<GpuletId>,
}

pub(super) type Table = BTreeMap<GpuletId, Arc<SizedGpulet>>;

/// Gpulets by place. Each is taken at most once.
struct Offer<'a>(BTreeMap<Place<'a>, Vec<(GpuletId, &'a SizedGpulet)>>);

impl<'a> Offer<'a> {
    fn new(gpulets: impl Iterator<Item = (GpuletId, &'a SizedGpulet)>) -> Self {
        let mut places: BTreeMap<Place<'a>, Vec<_>> = BTreeMap::new();
        for (id, sized) in gpulets {
            places.entry(sized.place()).or_default().push((id, sized));
        }
        Self(places)
    }

    fn take(&mut self, wanted: &'a SizedGpulet, fits: impl Fn(&SizedGpulet) -> bool) -> Option<GpuletId> {
        let offered = self.0.get_mut(&wanted.place())?;
        let at = offered.iter().position(|(_, held)| held.has_models_of(wanted) && fits(held))?;
        Some(offered.remove(at).0)
    }
}

impl Changes {
    /// Keeps gpulets of the same device and units that run the same models and did not fail, preferably of the same
    /// window. A gpulet that is known but not in the table was opened for a plan that was replaced, and is reused if
    /// possible.
    pub fn between(table: &Table, known: &BTreeMap<GpuletId, Known>, target: &[Arc<SizedGpulet>]) -> Self {
        let sound = |id: &GpuletId| known.get(id).is_some_and(|known| !known.faulty);
        let active = table.iter().filter(|(id, _)| sound(id));
        let mut offer = Offer::new(active.map(|(id, sized)| (*id, sized.as_ref())));
        let mut kept: Vec<Option<GpuletId>> = target
            .iter()
            .map(|wanted| offer.take(wanted, |held| held.gpulet.window == wanted.gpulet.window))
            .collect();
        for (kept, wanted) in kept.iter_mut().zip(target) {
            *kept = kept.or_else(|| offer.take(wanted, |_| true));
        }
        let existing = known
            .iter()
            .filter(|(id, known)| !table.contains_key(id) && !known.faulty && known.drain.is_none());
        let mut existing = Offer::new(existing.map(|(id, known)| (*id, known.sized.as_ref())));
        let mut changes = Self::default();
        let mut used: BTreeSet<GpuletId> = BTreeSet::new();
        for (kept, wanted) in kept.iter().zip(target) {
            let Some(id) = kept else {
                let existing = existing.take(wanted, |_| true);
                used.extend(existing);
                changes.list.push(Change::Add { sized: Arc::clone(wanted), existing });
                continue;
            };
            used.insert(*id);
            if table.get(id).is_some_and(|sized| sized.gpulet != wanted.gpulet) {
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
