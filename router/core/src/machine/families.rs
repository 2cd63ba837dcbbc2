//! Known families, and which variant a request gets.

use smallvec::SmallVec;

use super::admission::{least_time, row_time_of};
use super::snapshot::FamilySnapshot;
use crate::family::{Family, FamilyRequest, Incoming, Prospect, Variant};
use crate::machine::Router;
use crate::model::Model;
use crate::pool::Pool;
use crate::request::Timing;
use crate::{FamilyId, FamilySpec, ModelId, Nanos};

/// Of the least time of a row, this part more is little.
const ROW_TIME_MORE: u64 = 10;

/// What a request would meet at each variant of its family.
type Prospects = SmallVec<[Option<Prospect>; 8]>;

impl Router {
    pub(super) fn family_up(&mut self, spec: &FamilySpec) {
        let known = self.families.get(&spec.family);
        let family = known.map_or_else(|| Family::new(spec), |known| known.changed(spec));
        self.families.insert(spec.family, family);
    }

    pub(super) fn family_down(&mut self, family: FamilyId) {
        self.families.remove(&family);
    }

    /// The variant that a request gets: the best one that is offered at the moment, has the quality and costs the lane time that it asks for, and
    /// could answer in time. If none could, the one that would be soonest, so that admission decides. `None`: none suits, or the family
    /// is not known. A request with a deadline may change the level of the family.
    pub fn choose(&mut self, now: Nanos, incoming: &Incoming, wanted: &FamilyRequest) -> Option<ModelId> {
        self.now = self.now.max(now);
        let variants: SmallVec<[Variant; 8]> =
            self.families.get(&wanted.family)?.variants().iter().copied().collect();
        let left = incoming.deadline.map(|deadline| deadline.since(self.now));
        let objective = self.families.get(&wanted.family)?.objective().or(left).unwrap_or(Nanos::NEVER);
        let (mut prospects, takes_rows) = self.prospects(incoming, objective, &variants);
        leave_out_dominated(&variants, &mut prospects);
        let now = self.now;
        let family = self.families.get_mut(&wanted.family)?;
        family.correct(now, &mut prospects);
        // A request that is too large for a variant says nothing about what others would meet there.
        if let Some(left) = left.filter(|_| takes_rows) {
            family.look(left, &prospects);
        }
        let level = family.level();
        let known = variants.iter().zip(&prospects).enumerate();
        let known = known.filter_map(|(place, (variant, prospect))| Some((place, variant, (*prospect)?)));
        let suits = |(_, variant, prospect): &(usize, &Variant, Prospect)| {
            prospect.lane_time <= wanted.lane_time_max && variant.quality >= wanted.quality_min
        };
        let suiting: SmallVec<[_; 8]> = known.filter(suits).collect();
        let end = |prospect: &Prospect| prospect.wait.after(prospect.time);
        let offered = || suiting.iter().filter(|(place, ..)| *place >= level);
        let in_time = offered().find(|(.., prospect)| left.is_none_or(|left| end(prospect) <= left));
        let soonest = || offered().min_by_key(|(.., prospect)| end(prospect));
        // It asks for more than others get: the least that suits.
        let chosen = in_time.or_else(soonest).or_else(|| suiting.last());
        chosen.map(|(_, variant, _)| variant.model)
    }

    /// What a request would meet at each variant. `None`: it is not being served, or takes fewer rows. Also whether all that are served take
    /// its rows.
    fn prospects(&self, incoming: &Incoming, objective: Nanos, variants: &[Variant]) -> (Prospects, bool) {
        let mut takes_rows = true;
        // Variants of a family often have the same lanes.
        let mut waits: SmallVec<[(u32, Nanos); 2]> = SmallVec::new();
        let mut of = |id: ModelId| {
            let model = self.model(id).filter(|model| !model.retiring)?;
            let pool = self.pools.get(model.pool).filter(|pool| !pool.up.is_empty())?;
            let (rows, row_bytes) = incoming.rows_at(model.max_batch);
            if rows > model.max_batch {
                takes_rows = false;
                return None;
            }
            let known = waits.iter().find(|(pool, _)| *pool == model.pool).map(|(_, wait)| *wait);
            let wait = known.unwrap_or_else(|| self.wait(incoming, model.pool));
            if known.is_none() {
                waits.push((model.pool, wait));
            }
            let lane_time = row_time_of(model, pool, row_bytes).saturating_mul(u64::from(rows));
            let time = least_time(model, pool, rows, row_bytes);
            // Without a wait, the level does not depend on it.
            let batch_time = match wait {
                Nanos::ZERO => time,
                _ => time_under_load(model, pool, Nanos(objective.0 / 2), row_bytes),
            };
            Some(Prospect { wait, time, batch_time, lane_time: Nanos(lane_time) })
        };
        let prospects = variants.iter().map(|variant| of(variant.model)).collect();
        (prospects, takes_rows)
    }

    /// Time until the lanes of a pool have done what is due before a request.
    fn wait(&self, incoming: &Incoming, number: u32) -> Nanos {
        let Some(pool) = self.pools.get(number).filter(|pool| pool.free.is_empty()) else {
            return Nanos::ZERO;
        };
        let deadline = incoming.deadline.unwrap_or(Nanos::NEVER);
        let before = self.queues.iter().filter(|(_, queue)| {
            let key = &queue.key;
            let is_urgent = key.class <= incoming.class && key.timing == Timing::Deadline && !key.borrowed;
            is_urgent && key.pool == number && queue.head().is_some_and(|head| head.deadline <= deadline)
        });
        let work = before.map(|(_, queue)| {
            let model = self.model(queue.key.model);
            let row_time = model.map_or(0, |model| row_time_of(model, pool, queue.row_bytes()));
            row_time.saturating_mul(u64::from(queue.rows))
        });
        let work = work.fold(0_u64, u64::saturating_add) / u64::from(pool.up.len().max(1));
        let free_in = pool.ends.first().map_or(Nanos::ZERO, |end| end.at.since(self.now));
        free_in.after(Nanos(work))
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
            family.was_late(self.now, model, time);
        }
    }
}

/// Time of the batches that a model runs under load, on the lanes where they take longest. Such a batch takes at most `most`, and each of
/// its rows little more than in the largest batch of that kind.
fn time_under_load(model: &Model, pool: &Pool, most: Nanos, row_bytes: u64) -> Nanos {
    let on = |lane_class| {
        let time = |rows: u32| model.costs.on(lane_class).cautious(rows, row_bytes);
        let largest = first_from(2, model.max_batch, |rows| time(rows) > most).saturating_sub(1);
        let row_time = time(largest).0 / u64::from(largest);
        let enough = row_time.saturating_add(row_time / ROW_TIME_MORE);
        time(first_from(1, largest, |rows| time(rows).0 / u64::from(rows) <= enough))
    };
    pool.lane_classes.iter().map(|&(lane_class, _)| on(lane_class)).max().unwrap_or_default()
}

/// The first number of rows from `first` to `last` for which `holds`, or the one after `last`. What holds for a number holds for larger
/// ones.
fn first_from(first: u32, last: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (first, last.saturating_add(1).max(first));
    while low < high {
        let middle = u32::midpoint(low, high);
        if holds(middle) { high = middle } else { low = middle.saturating_add(1) }
    }
    low
}

/// Leaves out variants that are no better than another one which takes less lane time, or as much.
fn leave_out_dominated(variants: &[Variant], prospects: &mut [Option<Prospect>]) {
    // An unknown time, 0, is compared with nothing.
    let costs: SmallVec<[Nanos; 8]> =
        prospects.iter().map(|prospect| prospect.map_or(Nanos::ZERO, |known| known.lane_time)).collect();
    let each = || variants.iter().zip(&costs).enumerate().filter(|(_, (_, cost))| **cost > Nanos::ZERO);
    for (place, (variant, cost)) in each() {
        let is_dominated = each().any(|(other, (rival, less))| {
            let is_as_good = rival.quality >= variant.quality && less <= cost;
            is_as_good && (rival.quality > variant.quality || less < cost || other < place)
        });
        if let Some(prospect) = prospects.get_mut(place).filter(|_| is_dominated) {
            *prospect = None;
        }
    }
}
