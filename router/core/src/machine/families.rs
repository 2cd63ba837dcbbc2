//! Known families, and which variant a request gets.

use smallvec::SmallVec;

use super::admission::{least_time, row_time_of};
use super::snapshot::FamilySnapshot;
use crate::family::{Family, FamilyRequest, Incoming, Prospect, Variant};
use crate::machine::Router;
use crate::request::Timing;
use crate::{FamilyId, FamilySpec, ModelId, Nanos};

/// Models in the order in which they may answer a request.
pub type Offers = SmallVec<[ModelId; 8]>;

impl Router {
    pub(super) fn family_up(&mut self, spec: &FamilySpec) {
        let known = self.families.get(&spec.family);
        let family = known.map_or_else(|| Family::new(spec), |known| known.changed(spec));
        self.families.insert(spec.family, family);
    }

    pub(super) fn family_down(&mut self, family: FamilyId) {
        self.families.remove(&family);
    }

    /// The variants that may answer a request, the one that it gets first. The others are worse, and for the case that it could not be
    /// answered in time there. Empty without any. A look for a request with a deadline may change the level of the family.
    pub fn offers(&mut self, now: Nanos, incoming: &Incoming, wanted: &FamilyRequest) -> Offers {
        self.now = self.now.max(now);
        let Some(family) = self.families.get(&wanted.family) else { return Offers::new() };
        let variants: SmallVec<[_; 8]> = family.variants().iter().copied().collect();
        let of = |variant: &Variant| {
            let prospect = self.prospect(incoming, variant.model)?;
            let (rows, row_bytes) = incoming.rows_at(self.model(variant.model)?.max_batch);
            Some((prospect, self.row_time(variant.model, row_bytes).saturating_mul(u64::from(rows))))
        };
        let mut known: SmallVec<[_; 8]> = variants.iter().map(of).collect();
        leave_out_dominated(&variants, &mut known);
        let prospects: SmallVec<[_; 8]> =
            known.iter().map(|known| known.map(|(prospect, _)| prospect)).collect();
        let Some(family) = self.families.get_mut(&wanted.family) else { return Offers::new() };
        if let Some(deadline) = incoming.deadline {
            family.look(deadline.since(self.now), &prospects);
        }
        let level = family.level().min(variants.len());
        let suits = |(variant, known): &(&Variant, &Option<(Prospect, u64)>)| {
            let is_cheap = known.is_some_and(|(_, cost)| cost <= wanted.lane_time_max.0);
            is_cheap && variant.quality >= wanted.quality_min
        };
        let suiting: SmallVec<[(usize, ModelId); 8]> = (0..)
            .zip(variants.iter().zip(&known))
            .filter(|(_, one)| suits(one))
            .map(|(place, (variant, _))| (place, variant.model))
            .collect();
        let offered = suiting.iter().filter(|(place, _)| *place >= level);
        let mut places: SmallVec<[(usize, ModelId); 8]> = offered.copied().collect();
        if places.is_empty() {
            // It asks for more than others get: the least that suits.
            places.extend(suiting.last().copied());
        }
        // Those that would be late by what is known come last.
        let left = incoming.deadline.map_or(Nanos::NEVER, |deadline| deadline.since(self.now));
        let is_late = |place: usize| {
            let prospect = prospects.get(place).copied().flatten();
            prospect.is_some_and(|prospect| prospect.wait.after(prospect.time) > left)
        };
        places.sort_by_key(|(place, _)| is_late(*place));
        places.into_iter().map(|(_, model)| model).collect()
    }

    /// What a request would meet at a model. `None`: it is not being served.
    fn prospect(&self, incoming: &Incoming, id: ModelId) -> Option<Prospect> {
        let model = self.model(id).filter(|model| !model.retiring)?;
        let (rows, row_bytes) = incoming.rows_at(model.max_batch);
        if rows > model.max_batch {
            return None;
        }
        let pool = self.pools.get(model.pool).filter(|pool| !pool.up.is_empty())?;
        let time = least_time(model, pool, rows, row_bytes);
        if !pool.free.is_empty() {
            return Some(Prospect { wait: Nanos::ZERO, time });
        }
        let deadline = incoming.deadline.unwrap_or(Nanos::NEVER);
        let before = self.queues.iter().filter(|(_, queue)| {
            let key = &queue.key;
            let urgent = key.class <= incoming.class && key.timing == Timing::Deadline && !key.borrowed;
            urgent && key.pool == model.pool && queue.head().is_some_and(|head| head.deadline <= deadline)
        });
        let work = before.map(|(_, queue)| {
            self.row_time(queue.key.model, queue.row_bytes()).saturating_mul(u64::from(queue.rows))
        });
        let work = work.fold(0_u64, u64::saturating_add) / u64::from(pool.up.len().max(1));
        let free_in = pool.ends.first().map_or(Nanos::ZERO, |end| end.at.since(self.now));
        Some(Prospect { wait: free_in.after(Nanos(work)), time })
    }

    /// Lane nanoseconds of a row in a batch of the best size. Zero while unknown.
    fn row_time(&self, id: ModelId, row_bytes: u64) -> u64 {
        let known = self.model(id).and_then(|model| Some((model, self.pools.get(model.pool)?)));
        known.map_or(0, |(model, pool)| row_time_of(model, pool, row_bytes))
    }

    /// How often the level of a family fell and rose. `None` for an unknown one.
    pub fn family_changes(&self, family: FamilyId) -> Option<(u64, u64)> {
        self.families.get(&family).map(Family::changes)
    }

    /// The families as people see them.
    pub(super) fn family_snapshots(&self) -> impl Iterator<Item = FamilySnapshot> {
        self.families.iter().map(|(id, family)| {
            let ((falls, rises), level) = (family.changes(), family.variants().get(family.level()));
            FamilySnapshot { family: *id, quality: level.map_or(0, |variant| variant.quality), falls, rises }
        })
    }

    /// A request that had this time could not be answered in it.
    pub(super) fn was_late(&mut self, family: FamilyId, model: ModelId, time: Nanos) {
        if let Some(family) = self.families.get_mut(&family) {
            family.was_late(model, time);
        }
    }
}

/// Leaves out variants that are no better than another one which takes less lane time, or as much.
fn leave_out_dominated(variants: &[Variant], known: &mut [Option<(Prospect, u64)>]) {
    // An unknown time, 0, is compared with nothing.
    let costs: SmallVec<[u64; 8]> = known.iter().map(|known| known.map_or(0, |(_, cost)| cost)).collect();
    let each = || variants.iter().zip(&costs).enumerate().filter(|(_, (_, cost))| **cost > 0);
    for (place, (variant, cost)) in each() {
        let is_dominated = each().any(|(other, (rival, less))| {
            let is_as_good = rival.quality >= variant.quality && less <= cost;
            is_as_good && (rival.quality > variant.quality || less < cost || other < place)
        });
        if let Some(known) = known.get_mut(place).filter(|_| is_dominated) {
            *known = None;
        }
    }
}
