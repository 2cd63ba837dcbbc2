//! Serves few workloads with as few equal devices as possible: a search over the [`patterns`](super::patterns) of each
//! device.
//!
//! Prices per request bound what is left: if no pattern is worth more than one device, the rates that are left need at
//! least as many devices as they are worth. At each step, some device serves at least its part of a workload.

use super::super::demand::Part;
use super::super::search::same_cost;
use super::super::site::Floor;
use super::patterns::{Division, Pattern, Rates, WORKLOADS_MAX, Workloads};
use crate::problem::Problem;

/// Largest number of devices.
const DEVICES_MAX: usize = 8;
/// Largest number of times that a pattern is compared with what is left.
const LOOKS_MAX: u64 = 40_000_000;
/// Steps in the search for prices.
const PRICING_STEPS: u32 = 200;
/// Number of price lists that are kept.
const PRICES_KEPT: usize = 8;
/// Amounts that differ by less, relatively, are equal.
const SAME: f64 = 1e-9;

/// Returns the workloads on fewer devices than `below` costs, if the search finds that; no plan costs less than
/// `bound`.
pub(super) fn covered<'a>(problem: &'a Problem, parts: &[Part<'a>], bound: f64, below: f64) -> Option<Floor<'a>> {
    let cost = same_cost(problem)?;
    let device = problem.devices().first()?;
    let equal = problem
        .devices()
        .iter()
        .all(|other| other.device_type == device.device_type && other.memory_bytes == device.memory_bytes);
    let free = parts.iter().all(|part| part.workload.replicas_min <= 1 && part.workload.not_with.is_empty() && part.rate > 0.0);
    if !equal || !free || parts.is_empty() || parts.len() > WORKLOADS_MAX {
        return None;
    }
    let least = (1..=DEVICES_MAX).find(|count| cost * as_number(*count) >= bound * (1.0 - SAME))?;
    let most = problem.devices().len().min(DEVICES_MAX);
    let counts = (least..=most).take_while(|count| cost * as_number(*count) < below * (1.0 - SAME));
    let counts: Vec<usize> = counts.collect();
    if counts.is_empty() {
        return None;
    }
    let workloads = Workloads::new(problem, device, parts)?;
    let divisions = workloads.divisions();
    let prices = priced(&divisions, &workloads.wanted);
    // One of `most` devices serves what the others leave, which are worth at most their number.
    let others = as_number(counts.len().saturating_sub(1).saturating_add(least)) - 1.0;
    let worth = |prices: &Rates, rates: &Rates| value(prices, rates, &workloads.wanted);
    let left = |prices: &Rates| worth(prices, &workloads.wanted) - others;
    if prices.iter().any(|prices| left(prices) > 1.0 + SAME) {
        return None;
    }
    let useful = |rates: &Rates| {
        let suffices = prices.iter().all(|prices| worth(prices, rates) >= left(prices) - SAME);
        Some(worth(prices.first()?, rates)).filter(|_| suffices)
    };
    let patterns = workloads.patterns(&divisions, useful);
    let mut search = Search { prices: &prices, patterns: &patterns, looks: 0, chosen: Vec::new() };
    counts.into_iter().find_map(|count| {
        search.chosen.clear();
        search.serve(&workloads.wanted, count).then(|| floor(&workloads, &search.chosen))?
    })
}

fn as_number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Returns the devices with the chosen patterns. Each serves a part of a workload in proportion to what it can.
fn floor<'a>(workloads: &Workloads<'a>, chosen: &[&Pattern]) -> Option<Floor<'a>> {
    let mut floor = Floor::new(workloads.problem());
    let mut total = Rates::default();
    for pattern in chosen {
        total.iter_mut().zip(&pattern.rates).for_each(|(total, rate)| *total += rate);
    }
    for pattern in chosen {
        let mut rates = Rates::default();
        for ((rate, wanted), (own, total)) in rates.iter_mut().zip(&workloads.wanted).zip(pattern.rates.iter().zip(&total)) {
            *rate = if *total > 0.0 { wanted * own / total } else { 0.0 };
        }
        let device = floor.problem.devices().get(floor.sites.len())?;
        let site = workloads.site(pattern, device, &rates);
        if !site.lanes.is_empty() {
            floor.open(device, site.lanes);
        }
    }
    Some(floor)
}

fn value(prices: &Rates, rates: &Rates, left: &Rates) -> f64 {
    prices.iter().zip(rates.iter().zip(left)).map(|(price, (rate, left))| price * rate.min(*left)).sum()
}

/// Returns prices per request at which no device is worth more than one, those at which the wanted rates are worth most
/// first.
fn priced(divisions: &[Division], wanted: &Rates) -> Vec<Rates> {
    let mut weights = wanted.map(|wanted| if wanted > 0.0 { 1.0 } else { 0.0 });
    let mut found: Vec<(f64, Rates)> = Vec::new();
    for step in 0..PRICING_STEPS {
        let sum: f64 = weights.iter().sum();
        let mut prices = Rates::default();
        for ((price, weight), wanted) in prices.iter_mut().zip(&weights).zip(wanted) {
            *price = if *wanted > 0.0 { weight / sum / wanted } else { 0.0 };
        }
        let best = divisions.iter().map(|division| division.best(&prices));
        let best = best.max_by(|left, right| left.0.total_cmp(&right.0));
        let Some((most, best)) = best.filter(|(most, _)| *most > 0.0) else { break };
        prices.iter_mut().for_each(|price| *price /= most);
        found.push((1.0 / most, prices));
        let rate = 0.25 / (1.0 + f64::from(step) / 10.0);
        for ((weight, served), wanted) in weights.iter_mut().zip(&best).zip(wanted) {
            if *wanted > 0.0 {
                *weight *= 1.0 - rate * served / wanted;
            }
        }
    }
    found.sort_by(|left, right| right.0.total_cmp(&left.0));
    found.truncate(PRICES_KEPT);
    found.into_iter().map(|(_, prices)| prices).collect()
}

struct Search<'p> {
    patterns: &'p [Pattern],
    prices: &'p [Rates],
    looks: u64,
    chosen: Vec<&'p Pattern>,
}

impl<'p> Search<'p> {
    /// Returns whether `count` devices serve these rates, and chooses their patterns.
    fn serve(&mut self, left: &Rates, count: usize) -> bool {
        if left.iter().all(|left| *left <= 0.0) {
            return true;
        }
        if count == 0 || self.looks >= LOOKS_MAX {
            return false;
        }
        let devices = as_number(count);
        let worth = self.prices.iter().map(|prices| (value(prices, left, left), prices));
        let Some((most, prices)) = worth.max_by(|left, right| left.0.total_cmp(&right.0)) else { return false };
        if most > devices * (1.0 + SAME) {
            return false;
        }
        let prices = *prices;
        // The other devices serve at most their number.
        let least = most - (devices - 1.0) - SAME;
        let scale = |at: usize, left: f64| prices.get(at).map_or(0.0, |price| price * left);
        let heaviest = left.iter().enumerate().map(|(at, left)| (scale(at, *left), at)).max_by(|left, right| left.0.total_cmp(&right.0));
        let Some((_, pivot)) = heaviest else { return false };
        let share = left.get(pivot).copied().unwrap_or(0.0) / devices * (1.0 - SAME);
        self.looks = self.looks.saturating_add(u64::try_from(self.patterns.len()).unwrap_or(u64::MAX));
        let mut tried: Vec<(f64, &'p Pattern)> = Vec::new();
        for pattern in self.patterns {
            let serves = pattern.rates.get(pivot).is_some_and(|rate| *rate >= share);
            if !serves {
                continue;
            }
            if count == 1 {
                if left.iter().zip(&pattern.rates).all(|(left, rate)| *rate >= left * (1.0 - SAME)) {
                    self.chosen.push(pattern);
                    return true;
                }
                continue;
            }
            let worth = value(&prices, &pattern.rates, left);
            if worth >= least {
                tried.push((worth, pattern));
            }
        }
        tried.sort_by(|left, right| right.0.total_cmp(&left.0));
        for (_, pattern) in tried {
            let mut rest = *left;
            for (rest, rate) in rest.iter_mut().zip(&pattern.rates) {
                *rest -= rate;
                if *rest <= SAME * rate {
                    *rest = 0.0;
                }
            }
            self.chosen.push(pattern);
            if self.serve(&rest, count.saturating_sub(1)) {
                return true;
            }
            self.chosen.pop();
        }
        false
    }
}
