//! What one device can serve: all pairs of gpulets, each with one workload or with a cycle of up to three, that no
//! other pair surpasses for every workload.

use std::collections::BTreeMap;

use super::super::demand::{Fit, Part, SLACK};
use super::super::site::{Lane, Piece, Site};
use crate::interference::{Load, Runner};
use crate::problem::{Device, Problem};

/// Largest number of workloads. The number of cycles grows with its third power.
pub(super) const WORKLOADS_MAX: usize = 6;
/// Largest number of sizes. Of more, this number is used, spread evenly.
const SIZES_MAX: usize = 8;
/// Largest number of workloads in a cycle.
const SLOTS_MAX: usize = 3;
/// Batches of a workload in cycles, by the number of workloads. Of more, this number is used, spread evenly. This tries
/// about 4,000 cycles on each size.
const BATCHES_MAX: [usize; WORKLOADS_MAX] = [0, 64, 15, 10, 7, 5];
/// Largest number of contents of one gpulet.
const CONTENTS_MAX: usize = 512;
/// Largest number of pairs of gpulets.
const PAIRS_MAX: usize = 32_768;
/// Largest number of patterns.
const PATTERNS_MAX: usize = 4_096;

/// Requests per second by workload; 0 for those beyond the last.
pub(super) type Rates = [f64; WORKLOADS_MAX];

/// A workload, by position, and a batch size.
type Batch = (usize, u32);

/// What a device serves with one or two gpulets.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    gpulets: Vec<Served>,
    /// Requests per second that it serves of each workload, at most what is wanted.
    pub rates: Rates,
}

/// A gpulet under contention. Without a cycle, it runs one batch after another.
#[derive(Clone, Debug)]
struct Served {
    units: u32,
    batches: Vec<Batch>,
    duty_us: Option<f64>,
    rates: Rates,
}

/// One gpulet of a division: what it can run, with the rates that it serves at most.
struct Side {
    units: u32,
    contents: Vec<(Rates, Vec<Batch>)>,
    slower: Slower,
}

/// A division of a device into one or two gpulets.
pub(super) struct Division {
    sides: Vec<Side>,
}

impl Division {
    /// Returns what the device serves at most, of the greatest worth at these prices per request.
    pub fn best(&self, prices: &Rates) -> (f64, Rates) {
        let worth = |rates: &Rates| -> f64 { rates.iter().zip(prices).map(|(rate, price)| rate * price).sum() };
        let best = self.sides.iter().map(|side| {
            let all = side.contents.iter().map(|(rates, _)| (worth(rates), *rates));
            all.fold((0.0, Rates::default()), |best, next| if next.0 > best.0 { next } else { best })
        });
        best.fold((0.0, Rates::default()), |all, next| (all.0 + next.0, sum(&all.1, &next.1)))
    }
}

/// Returns whether `left` is at least `right` for every workload.
fn surpasses(left: &Rates, right: &Rates) -> bool {
    left.iter().zip(right).all(|(left, right)| *left >= right * (1.0 - SLACK))
}

fn at_most(rates: &Rates, most: &Rates) -> Rates {
    let mut less = *rates;
    less.iter_mut().zip(most).for_each(|(rate, most)| *rate = rate.min(*most));
    less
}

fn sum(left: &Rates, right: &Rates) -> Rates {
    let mut sum = *left;
    sum.iter_mut().zip(right).for_each(|(sum, rate)| *sum += rate);
    sum
}

/// The workloads on one device type.
pub(super) struct Workloads<'a> {
    problem: &'a Problem,
    device: &'a Device,
    parts: Vec<(Part<'a>, Fit<'a>)>,
    pub wanted: Rates,
}

impl<'a> Workloads<'a> {
    /// Returns `None` if there are too many, or if one lacks a profile or load.
    pub fn new(problem: &'a Problem, device: &'a Device, parts: &[Part<'a>]) -> Option<Self> {
        let with_fit = |part: &Part<'a>| Some((*part, part.on(problem, &device.device_type)?));
        let parts: Vec<_> = parts.iter().filter(|part| part.rate > 0.0).map(with_fit).collect::<Option<_>>()?;
        if parts.len() > WORKLOADS_MAX {
            return None;
        }
        let mut wanted = Rates::default();
        wanted.iter_mut().zip(&parts).for_each(|(wanted, (part, _))| *wanted = part.rate);
        Some(Self { problem, device, parts, wanted })
    }

    fn sizes(&self) -> Vec<u32> {
        let sizes = &self.device.device_type.sizes;
        let step = sizes.len().div_ceil(SIZES_MAX).max(1);
        let mut chosen: Vec<u32> = sizes.iter().rev().step_by(step).copied().collect();
        chosen.reverse();
        chosen
    }

    fn slo_us(&self, at: usize) -> f64 {
        self.parts.get(at).map_or(0.0, |(part, _)| part.workload.slo_us)
    }

    fn solo_us(&self, (at, batch): Batch, units: u32) -> f64 {
        let known = self.parts.get(at).and_then(|(_, fit)| fit.solo_us(batch, units));
        known.unwrap_or(f64::INFINITY)
    }

    fn runner(&self, (at, batch): Batch, units: u32) -> Option<Runner<'a>> {
        let (_, fit) = self.parts.get(at)?;
        Some(Runner { profile: fit.profile, batch, units })
    }

    /// Returns the batches that run twice within their objectives, solo.
    fn batches(&self, units: u32) -> Vec<Batch> {
        let of = |at: usize, fit: &Fit<'_>| {
            let in_time = |batch: &u32| 2.0 * self.solo_us((at, *batch), units) <= self.slo_us(at) * (1.0 + SLACK);
            (1..=fit.batch_max).take_while(in_time).map(move |batch| (at, batch)).collect::<Vec<_>>()
        };
        self.parts.iter().enumerate().flat_map(|(at, (_, fit))| of(at, fit)).collect()
    }

    /// Returns the shortest cycle of batches of these times, and what they serve, or `None` if they are late.
    fn served(&self, batches: &[Batch], times: &[f64]) -> Option<(Option<f64>, Rates)> {
        let mut rates = Rates::default();
        if let ([(at, batch)], [time]) = (batches, times) {
            let (_, fit) = self.parts.get(*at)?;
            *rates.get_mut(*at)? = 1e6 * f64::from(*batch) / (time - fit.profile.load_us(*batch));
            return (2.0 * time <= self.slo_us(*at)).then_some((None, rates));
        }
        let duty_us: f64 = times.iter().sum();
        for ((at, batch), time) in batches.iter().zip(times) {
            if duty_us + time > self.slo_us(*at) {
                return None;
            }
            *rates.get_mut(*at)? = 1e6 * f64::from(*batch) / duty_us;
        }
        Some((Some(duty_us), rates))
    }

    /// Returns as many batches of each workload as cycles are made of.
    fn spread(&self, batches: &[Batch]) -> Vec<Batch> {
        let most = BATCHES_MAX.get(self.parts.len().saturating_sub(1)).copied().unwrap_or(0);
        let of = |at: usize| {
            let own: Vec<Batch> = batches.iter().filter(|batch| batch.0 == at).copied().collect();
            let step = own.len().div_ceil(most.max(1)).max(1);
            own.into_iter().step_by(step)
        };
        (0..self.parts.len()).flat_map(of).collect()
    }

    /// Returns the contents of a gpulet that no other surpasses if all batches take `slower` times as long.
    fn contents(&self, units: u32, batches: &[Batch], slower: f64) -> Vec<(Rates, Vec<Batch>)> {
        let mut found: Vec<(Rates, Vec<Batch>)> = Vec::new();
        let mut offer = |chosen: &[Batch]| {
            let Some(rates) = self.rates_at(chosen, units, slower) else { return false };
            if !found.iter().any(|(known, _)| surpasses(known, &rates)) {
                found.retain(|(known, _)| !surpasses(&rates, known));
                found.push((rates, chosen.to_vec()));
            }
            true
        };
        for batch in batches {
            offer(&[*batch]);
        }
        let batches = self.spread(batches);
        let mut longer: Vec<Vec<Batch>> = batches.iter().map(|batch| vec![*batch]).collect();
        for _ in 1..SLOTS_MAX {
            let mut next = Vec::new();
            for chosen in &longer {
                let last = chosen.last().map_or(0, |(at, _)| *at);
                for batch in batches.iter().filter(|(at, _)| *at > last) {
                    let mut more = chosen.clone();
                    more.push(*batch);
                    // What is late stays late with more slots.
                    if offer(&more) {
                        next.push(more);
                    }
                }
            }
            longer = next;
        }
        found.truncate(CONTENTS_MAX);
        found
    }

    /// Returns the divisions of a device into one or two gpulets.
    pub fn divisions(&self) -> Vec<Division> {
        let device_type = &self.device.device_type;
        let mut divisions = Vec::new();
        for first in self.sizes() {
            let batches = self.batches(first);
            let contents = self.contents(first, &batches, 1.0);
            let alone = Side { units: first, contents, slower: Slower::default() };
            divisions.push(Division { sides: vec![alone] });
            let second = device_type.size_within(device_type.units.saturating_sub(first));
            let Some(second) = second.filter(|second| *second <= first && device_type.gpulets_max >= 2) else {
                continue;
            };
            let others = self.batches(second);
            let side = |units: u32, own: &[Batch], other: (u32, &[Batch])| {
                let slower = Slower::between(self, (units, own), other);
                let [least, ..] = slower.levels();
                let mut found: BTreeMap<Vec<Batch>, Rates> = BTreeMap::new();
                for level in slower.levels() {
                    let contents = self.contents(units, own, level).into_iter();
                    found.extend(contents.filter_map(|(_, batches)| {
                        let rates = self.rates_at(&batches, units, least)?;
                        Some((batches, rates))
                    }));
                }
                Side { units, contents: found.into_iter().map(|(batches, rates)| (rates, batches)).collect(), slower }
            };
            let sides = vec![side(first, &batches, (second, &others)), side(second, &others, (first, &batches))];
            divisions.push(Division { sides });
        }
        divisions
    }

    fn rates_at(&self, batches: &[Batch], units: u32, slower: f64) -> Option<Rates> {
        let times: Vec<f64> = batches.iter().map(|batch| slower * self.solo_us(*batch, units)).collect();
        Some(at_most(&self.served(batches, &times)?.1, &self.wanted))
    }

    /// Returns the patterns that no other surpasses, out of those with a worth. With too many, those of the greatest
    /// worth count.
    pub fn patterns(&self, divisions: &[Division], worth: impl Fn(&Rates) -> Option<f64>) -> Vec<Pattern> {
        type Chosen<'c> = (f64, &'c [Side], &'c [Batch], &'c [Batch]);
        let mut chosen: Vec<Chosen<'_>> = Vec::new();
        for Division { sides } in divisions {
            for (own, one) in sides.first().map_or(&[][..], |side| &side.contents) {
                let Some(side) = sides.get(1) else {
                    chosen.extend(worth(own).map(|worth| (worth, &sides[..], &one[..], &[][..])));
                    continue;
                };
                chosen.extend(side.contents.iter().filter_map(|(other, two)| {
                    Some((worth(&at_most(&sum(own, other), &self.wanted))?, &sides[..], &one[..], &two[..]))
                }));
            }
        }
        chosen.sort_by(|left, right| right.0.total_cmp(&left.0));
        chosen.truncate(PAIRS_MAX);
        let served = chosen.into_iter().filter_map(|(_, sides, one, two)| {
            let others = [two, one];
            let gpulets = sides.iter().zip([one, two]).zip(others);
            let gpulets: Vec<Served> = gpulets.map(|((side, own), other)| self.under(side, own, other)).collect::<Option<_>>()?;
            let all = gpulets.iter().fold(Rates::default(), |all, served| sum(&all, &served.rates));
            let rates = at_most(&all, &self.wanted);
            worth(&rates)?;
            Some(Pattern { gpulets, rates })
        });
        self.unsurpassed(served.collect())
    }

    /// Returns the gpulet next to one that runs any of the `other` batches, or `None` if it is late.
    fn under(&self, side: &Side, own: &[Batch], other: &[Batch]) -> Option<Served> {
        let time = |batch: &Batch| side.slower.of(*batch, other) * self.solo_us(*batch, side.units);
        let times: Vec<f64> = own.iter().map(time).collect();
        let (duty_us, rates) = self.served(own, &times)?;
        Some(Served { units: side.units, batches: own.to_vec(), duty_us, rates })
    }

    /// Returns the patterns that fit into memory and that no other surpasses, those that serve most first.
    fn unsurpassed(&self, mut patterns: Vec<Pattern>) -> Vec<Pattern> {
        let value = |pattern: &Pattern| -> f64 {
            pattern.rates.iter().zip(&self.wanted).filter(|(_, wanted)| **wanted > 0.0).map(|(rate, wanted)| rate / wanted).sum()
        };
        let mut valued: Vec<(f64, usize)> = patterns.iter().map(value).enumerate().map(|(at, value)| (value, at)).collect();
        valued.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
        let mut kept: Vec<Rates> = Vec::new();
        let mut chosen: Vec<usize> = Vec::new();
        for (_, at) in valued {
            let Some(pattern) = patterns.get(at) else { continue };
            if kept.iter().any(|kept| surpasses(kept, &pattern.rates)) {
                continue;
            }
            if kept.len() >= PATTERNS_MAX {
                break;
            }
            if self.site(pattern, self.device, &pattern.rates).fits() {
                kept.push(pattern.rates);
                chosen.push(at);
            }
        }
        let mut taken: Vec<Option<Pattern>> = patterns.drain(..).map(Some).collect();
        chosen.into_iter().filter_map(|at| taken.get_mut(at).and_then(Option::take)).collect()
    }

    /// Returns the device with the gpulets of a pattern, which serve these rates together.
    pub fn site(&self, pattern: &Pattern, device: &'a Device, rates: &Rates) -> Site<'a> {
        let total = |at: usize| -> f64 { pattern.gpulets.iter().filter_map(|served| served.rates.get(at)).sum() };
        let lanes = pattern.gpulets.iter().map(|served| {
            let pieces = served.batches.iter().filter_map(|(at, batch)| {
                let ((part, fit), rate) = (self.parts.get(*at)?, rates.get(*at).filter(|rate| **rate > 0.0)?);
                let share = served.rates.get(*at)? / total(*at);
                Some(Piece { part: part.at_rate(rate * share), fit: *fit, batch: *batch })
            });
            let pieces: Vec<Piece<'a>> = pieces.collect();
            let duty_us = served.duty_us.filter(|_| pieces.len() > 1);
            Lane { units: served.units, placed: None, duty_us, pieces }
        });
        Site { device, lanes: lanes.filter(|lane| !lane.pieces.is_empty()).collect() }
    }

    pub fn problem(&self) -> &'a Problem {
        self.problem
    }
}

/// How much longer each batch of one gpulet takes next to each batch of another.
#[derive(Default)]
struct Slower {
    own: Vec<Batch>,
    other: Vec<Batch>,
    factors: Vec<f64>,
}

impl Slower {
    fn between(workloads: &Workloads<'_>, own: (u32, &[Batch]), other: (u32, &[Batch])) -> Self {
        let interference = workloads.problem.interference();
        let loads: Vec<Option<Load>> =
            other.1.iter().map(|batch| Some(Load::of(&workloads.runner(*batch, other.0)?))).collect();
        let mut factors = Vec::with_capacity(own.1.len().saturating_mul(other.1.len()));
        for batch in own.1 {
            let runner = workloads.runner(*batch, own.0);
            let solo = runner.map_or(1.0, |runner| interference.slowdown(&runner, &[]));
            for load in &loads {
                let factor = runner.zip(*load).map(|(runner, load)| interference.slowdown(&runner, &[&[load]]));
                factors.push(factor.unwrap_or(f64::INFINITY) / solo);
            }
        }
        Self { own: own.1.to_vec(), other: other.1.to_vec(), factors }
    }

    /// Returns the factor of a batch next to a gpulet that runs any of these batches.
    fn of(&self, own: Batch, other: &[Batch]) -> f64 {
        if other.is_empty() {
            return 1.0;
        }
        let Ok(row) = self.own.binary_search(&own) else { return f64::INFINITY };
        let factor = |batch: &Batch| {
            let column = self.other.binary_search(batch).ok()?;
            self.factors.get(row.saturating_mul(self.other.len()).saturating_add(column)).copied()
        };
        other.iter().map(|batch| factor(batch).unwrap_or(f64::INFINITY)).fold(1.0, f64::max)
    }

    /// Returns factors from the least to the largest.
    fn levels(&self) -> [f64; 3] {
        let least = self.factors.iter().copied().fold(f64::INFINITY, f64::min).max(1.0);
        let most = self.factors.iter().copied().fold(1.0, f64::max).max(least);
        if most.is_finite() { [least, f64::midpoint(least, most), most] } else { [1.0; 3] }
    }
}
