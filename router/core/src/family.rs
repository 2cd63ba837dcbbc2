//! Families: variants of one model, of which the router chooses one for each request.
//!
//! A family has a *level*: the best variant that it gives to requests at the moment. While requests would wait for long, the level falls to
//! the next variant, which answers more of them; it rises once they would wait little. Between the two marks it stays, so that batches are
//! of one variant for some time. Under lasting overload it goes back and forth, and the share of each variant becomes what the lanes carry.
//!
//! Quality before refusal: Proteus (Ahmad et al., ASPLOS 2024) plans such shares every few seconds from an estimated rate. Here they follow
//! from the work that waits, which needs no estimate.

use crate::{Class, ModelId, Nanos};

/// Part of the time that a request can wait, in thousandths, above which the level falls to the last variant. For better variants it is
/// less, down to half of it for the best one. So the level stays between two variants whose mix the lanes carry.
const FALLS_ABOVE: u64 = 600;
/// The level rises again below this part, in thousandths, of where it falls.
const RISES_BELOW: u64 = 500;

/// A request that was late although its wait was said to be short enough: waits for this variant count as half as long again.
const LATE: u64 = 1_500;
/// Largest factor on waits, in thousandths.
const FACTOR_MAX: u64 = 8_000;
/// Time in which a factor returns to 1: lanes whose slices, speed or plan changed are as they were said to be again.
const FORGETS: Nanos = Nanos::from_millis(30_000);

/// Number of a family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct FamilyId(pub u32);

/// Several models that answer the same requests, with different quality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilySpec {
    /// Its number.
    pub family: FamilyId,
    /// Its variants, in any order.
    pub variants: Vec<Variant>,
    /// Time from the arrival of a request to its deadline, by which the level is set. A request with less time of its own gets what suits
    /// it, and does not change what others get. `None`: each request counts with its own.
    pub objective: Option<Nanos>,
}

/// A variant of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The model that it is.
    pub model: ModelId,
    /// Its quality, in millionths.
    pub quality: u32,
}

/// A quality from 0 to 1 in millionths.
pub fn millionths(quality: f64) -> u32 {
    (quality * 1e6).round().clamp(0.0, 1e6) as u32
}

/// What a request to a family asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyRequest {
    /// The family.
    pub family: FamilyId,
    /// Least quality, in millionths.
    pub quality_min: u32,
    /// Most lane time of the request, in batches of the best size.
    pub lane_time_max: Nanos,
}

/// A request that is to get a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Its class.
    pub class: Class,
    /// Its rows. For a model without batches, it is one row.
    pub rows: u32,
    /// Payload bytes of all of them.
    pub bytes: u64,
    /// Time after which the answer is worthless, if there is one.
    pub deadline: Option<Nanos>,
}

impl Incoming {
    /// Its rows at a model with batches of at most `max_batch` rows, and the bytes of each.
    pub(crate) fn rows_at(&self, max_batch: u32) -> (u32, u64) {
        let rows = if max_batch > 1 { self.rows.max(1) } else { 1 };
        (rows, self.bytes / u64::from(rows))
    }
}

/// What a request would meet at a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prospect {
    /// Time until the work before it is done.
    pub wait: Nanos,
    /// Time of a batch of it.
    pub time: Nanos,
    /// Time of a batch under load, of those that take at most half of the objective: a request that just misses one is in time in the next.
    pub batch_time: Nanos,
    /// Lane time of it, in batches of the best size. Zero while unknown.
    pub lane_time: Nanos,
}

impl Prospect {
    /// Whether it would wait longer than this part, in thousandths, of the time that it can wait.
    fn waits_longer_than(&self, part: u64, objective: Nanos) -> bool {
        let can_wait = objective.0.saturating_sub(self.batch_time.max(self.time).0);
        self.time > objective || self.wait.0 > can_wait / 1_000 * part
    }
}

/// How much longer requests waited for a variant than was said, as far as late requests showed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lateness {
    /// Factor on waits at `since`, in thousandths, at least 1,000.
    factor: u64,
    since: Nanos,
}

impl Lateness {
    const NONE: Self = Self { factor: 1_000, since: Nanos::ZERO };

    /// The factor now, in thousandths. It falls evenly.
    fn factor(self, now: Nanos) -> u64 {
        let left = FORGETS.0.saturating_sub(now.since(self.since).0);
        // At most 7,000 times 3e10.
        1_000 + (self.factor - 1_000) * left / FORGETS.0
    }

    /// Requests that are late within one objective have one cause.
    fn raise(&mut self, now: Nanos, objective: Nanos) {
        if self.factor == 1_000 || now.since(self.since) >= objective {
            let factor = (self.factor(now) * LATE / 1_000).min(FACTOR_MAX);
            *self = Self { factor, since: now };
        }
    }
}

/// A family and its level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    /// By quality, the best first.
    variants: Vec<Variant>,
    /// Of each variant.
    late: Vec<Lateness>,
    objective: Option<Nanos>,
    level: usize,
    falls: u64,
    rises: u64,
}

impl Family {
    pub(crate) fn new(spec: &FamilySpec) -> Self {
        let mut variants = spec.variants.clone();
        variants.sort_by_key(|variant| (u32::MAX - variant.quality, variant.model));
        let late = vec![Lateness::NONE; variants.len()];
        Self { variants, late, objective: spec.objective, level: 0, falls: 0, rises: 0 }
    }

    /// The same after a change of its spec. The level stays.
    pub(crate) fn changed(&self, spec: &FamilySpec) -> Self {
        let new = Self::new(spec);
        Self { level: self.level.min(new.last()), falls: self.falls, rises: self.rises, ..new }
    }

    /// Time from the arrival of a request to its deadline, by which the level is set.
    pub(crate) fn objective(&self) -> Option<Nanos> {
        self.objective
    }

    /// By quality, the best first.
    pub(crate) fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// Position of the best variant that requests get now.
    pub(crate) fn level(&self) -> usize {
        self.level
    }

    /// How often the level fell and rose.
    pub(crate) fn changes(&self) -> (u64, u64) {
        (self.falls, self.rises)
    }

    /// Part of the time that a request can wait, in thousandths, above which it gets no variant as good as this one.
    fn falls_above(&self, place: usize) -> u64 {
        let (place, steps) = (place as u64, (self.last() as u64).saturating_sub(1));
        match steps {
            0 => FALLS_ABOVE,
            steps => FALLS_ABOVE * (steps + place.min(steps)) / (2 * steps),
        }
    }

    fn last(&self) -> usize {
        self.variants.len().saturating_sub(1)
    }

    /// A request with this time arrives, to variants with these prospects. `None`: it is not being served.
    pub(crate) fn look(&mut self, time: Nanos, prospects: &[Option<Prospect>]) {
        let objective = self.objective.unwrap_or(time);
        let at = |place: usize| prospects.get(place).copied().flatten();
        let before = self.level;
        while self.level < self.last()
            && at(self.level)
                .is_none_or(|prospect| prospect.waits_longer_than(self.falls_above(self.level), objective))
        {
            self.level += 1;
        }
        if self.level > before {
            self.falls += 1;
            return;
        }
        // A variant that is not served is passed over.
        let above = (0..self.level).rev().find(|place| at(*place).is_some());
        if let Some(above) = above
            && at(above).is_some_and(|prospect| {
                !prospect.waits_longer_than(self.falls_above(above) * RISES_BELOW / 1_000, objective)
            })
        {
            self.level = above;
            self.rises += 1;
        }
    }

    /// Makes waits longer by what late requests showed.
    pub(crate) fn correct(&self, now: Nanos, prospects: &mut [Option<Prospect>]) {
        for (prospect, late) in prospects.iter_mut().zip(&self.late) {
            if let Some(prospect) = prospect {
                prospect.wait = Nanos(prospect.wait.0.saturating_mul(late.factor(now)) / 1_000);
            }
        }
    }

    /// A request with this time could not be answered by this variant: those that come get the next one.
    pub(crate) fn was_late(&mut self, now: Nanos, model: ModelId, time: Nanos) {
        // Some of its time is over when a request reaches the router.
        if self.objective.is_some_and(|objective| time.0 < objective.0 / 2) {
            return;
        }
        let place = self.variants.iter().position(|variant| variant.model == model);
        let objective = self.objective.unwrap_or(time);
        if let Some(late) = place.and_then(|place| self.late.get_mut(place)) {
            late.raise(now, objective);
        }
        let next = place.map_or(0, |place| (place + 1).min(self.last()));
        if next > self.level {
            self.level = next;
            self.falls += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family() -> Family {
        let variants = [(2, 800_000), (0, 950_000), (1, 900_000)];
        let variants = variants.map(|(model, quality)| Variant { model: ModelId(model), quality });
        Family::new(&FamilySpec { family: FamilyId(0), variants: variants.to_vec(), objective: None })
    }

    fn prospects(wait: u64, times: [u64; 3]) -> Vec<Option<Prospect>> {
        let of = |time| {
            let time = Nanos::from_millis(time);
            Prospect { wait: Nanos::from_millis(wait), time, batch_time: time, lane_time: time }
        };
        times.map(|time| Some(of(time))).to_vec()
    }

    const OBJECTIVE: Nanos = Nanos::from_millis(100);

    #[test]
    fn the_level_falls_while_requests_wait_long_and_rises_when_they_wait_little() {
        let mut family = family();
        let times = [40, 20, 10];
        let level = |family: &mut Family, wait| {
            family.look(OBJECTIVE, &prospects(wait, times));
            family.level()
        };
        assert_eq!(level(&mut family, 18), 0, "30 % of the 60 ms that it can wait");
        assert_eq!(level(&mut family, 19), 1);
        assert_eq!(level(&mut family, 48), 1, "60 % of 80 ms");
        assert_eq!(
            level(&mut family, 10),
            1,
            "more than 15 % of the 60 ms that it could wait at the better one"
        );
        assert_eq!(level(&mut family, 9), 0);
        assert_eq!(level(&mut family, 90), 2, "the last one answers what it can");
        assert_eq!(level(&mut family, 24), 1, "30 % of 80 ms");
        assert_eq!(level(&mut family, 0), 0);
        assert_eq!(family.changes(), (2, 3));
    }

    #[test]
    fn a_variant_that_cannot_meet_the_objective_or_is_not_served_is_passed_over() {
        let mut family = family();
        family.look(OBJECTIVE, &prospects(0, [101, 20, 10]));
        assert_eq!(family.level(), 1);
        family.look(OBJECTIVE, &prospects(0, [101, 20, 10]));
        assert_eq!(family.level(), 1, "it does not rise to it either");
        let mut served = prospects(0, [40, 20, 10]);
        served[1] = None;
        family.look(OBJECTIVE, &served);
        assert_eq!(family.level(), 2);
        family.look(OBJECTIVE, &served);
        assert_eq!(family.level(), 0, "from the last one to the first");
    }

    #[test]
    fn late_requests_lower_the_level_once_for_each_variant() {
        let mut family = family();
        family.was_late(Nanos::ZERO, ModelId(0), OBJECTIVE);
        family.was_late(Nanos::ZERO, ModelId(0), OBJECTIVE);
        assert_eq!((family.level(), family.changes().0), (1, 1));
        family.was_late(Nanos::ZERO, ModelId(2), OBJECTIVE);
        assert_eq!(family.level(), 2);
    }

    #[test]
    fn requests_with_little_time_of_their_own_do_not_lower_the_level() {
        let variants = family().variants().to_vec();
        let spec = FamilySpec { family: FamilyId(0), variants, objective: Some(OBJECTIVE) };
        let mut family = Family::new(&spec);
        family.look(Nanos::from_millis(5), &prospects(0, [40, 20, 10]));
        family.was_late(Nanos::ZERO, ModelId(0), Nanos::from_millis(5));
        assert_eq!(family.level(), 0);
        family.was_late(Nanos::ZERO, ModelId(0), OBJECTIVE);
        assert_eq!(family.level(), 1);
    }

    #[test]
    fn a_change_of_the_variants_keeps_the_level() {
        let mut family = family();
        family.was_late(Nanos::ZERO, ModelId(1), OBJECTIVE);
        let one = Variant { model: ModelId(7), quality: 1 };
        let spec = FamilySpec { family: FamilyId(0), variants: vec![one], objective: None };
        assert_eq!(family.changed(&spec).level(), 0);
        assert_eq!(family.changed(&spec).variants(), [one]);
    }

    #[test]
    fn late_requests_make_waits_longer_for_a_while() {
        let mut family = family();
        let wait = |family: &Family, now| {
            let mut seen = prospects(10, [40, 20, 10]);
            family.correct(Nanos::from_millis(now), &mut seen);
            seen[0].map_or(0, |seen| seen.wait.0 / 1_000)
        };
        assert_eq!(wait(&family, 0), 10_000);
        // Two that are late within one objective count once.
        family.was_late(Nanos::from_millis(1_000), ModelId(0), OBJECTIVE);
        family.was_late(Nanos::from_millis(1_050), ModelId(0), OBJECTIVE);
        assert_eq!(wait(&family, 1_050), 14_990);
        family.was_late(Nanos::from_millis(1_100), ModelId(0), OBJECTIVE);
        assert!(wait(&family, 1_100) > 22_000);
        assert_eq!(wait(&family, 16_100), 16_230, "half of it is forgotten after half of the time");
        assert_eq!(wait(&family, 31_100), 10_000);
        for second in 40..60 {
            family.was_late(Nanos::from_millis(1_000 * second), ModelId(0), OBJECTIVE);
        }
        assert_eq!(wait(&family, 59_000), 80_000, "it has a bound");
    }
}
