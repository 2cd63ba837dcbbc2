//! What can be had without knowing the future: the best follower, chosen afterwards.
//!
//! A follower sees each model's requests of every half-second, makes a rate of those that it has seen, and holds a fixed
//! multiple of it, which is there after the time of a change. Of a whole family of followers ([`followers`]) the
//! cheapest is looked for with all requests known: for each model its own follower and its own multiple, and for all
//! models together the choice of what is lost. It rents parts of devices by the second, changes as often as it likes,
//! many at a time, and pays for no change. So every scaler that follows in one of these ways, and does not know which is
//! right, is dearer. What comes out is Lagrange's dual, which is never above the true least.

use std::collections::VecDeque;

use super::demand::Demand;
use super::fleet::Fleet;
use super::run::Rules;

/// Microseconds between two looks.
const LOOK_US: u64 = 500_000;
/// Looks that a rate is averaged over, as the weight 2 / (N + 1) says.
const AVERAGED: [f64; 6] = [1.0, 3.0, 8.0, 20.0, 60.0, 240.0];
/// Looks that its highest is held for.
const HELD: [usize; 4] = [1, 20, 60, 240];
/// Looks of the longer memories, and parts of the highest in them that are kept at all times.
const REMEMBERED: [usize; 2] = [1_200, 3_600];
const KEPT: [f64; 9] = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
/// Averages that highest rates are taken of, and that are followed above a part of them.
const CALM: f64 = 8.0;
const LATEST: f64 = 3.0;
/// Bins of the logarithm of demand over what is held for it: from exp(-2), in steps of 0.4 %.
const BINS: usize = 1_200;
const WIDTH: f64 = 0.004;
const LOWEST: f64 = -2.0;
/// Halvings of the range that the price of a request is looked for in, as a logarithm.
const HALVINGS: u32 = 50;
const PRICES: (f64, f64) = (-14.0, 7.0);

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    held: f64,
    demand: f64,
}

/// What any multiple of a follower costs and loses.
#[derive(Clone, Debug)]
struct Curve {
    bins: Vec<Bin>,
    held: f64,
    demand: f64,
}

/// A multiple of a follower: held at all looks together, and lost.
#[derive(Clone, Copy, Debug)]
struct Choice {
    held: f64,
    lost: f64,
}

impl Curve {
    fn of(rates: &[f64], follower: &[f64], delay: usize, from: usize) -> Self {
        let mut curve = Self { bins: vec![Bin::default(); BINS], held: 0.0, demand: 0.0 };
        for (rate, held) in rates.iter().skip(delay).zip(follower).skip(from.saturating_sub(delay)) {
            let held = held.max(1e-3);
            let at = ((libm::log(rate / held) - LOWEST) / WIDTH).clamp(0.0, (BINS - 1) as f64);
            if let Some(bin) = curve.bins.get_mut(at as usize) {
                bin.held += held;
                bin.demand += rate;
            }
            curve.held += held;
            curve.demand += rate;
        }
        curve
    }

    /// The multiple that costs least where capacity costs `tail` of a request lost. Within a bin demand is taken to be
    /// alike, which loses no more than it does.
    fn cheapest(&self, tail: f64) -> Choice {
        let (mut held, mut demand) = (0.0, 0.0);
        for bin in self.bins.iter().rev().filter(|bin| bin.held > 0.0) {
            if held + bin.held >= tail * self.held {
                let times = bin.demand / bin.held;
                return Choice { held: times * self.held, lost: demand - times * held };
            }
            held += bin.held;
            demand += bin.demand;
        }
        Choice { held: 0.0, lost: demand }
    }
}

fn averaged(rates: &[f64], looks: f64) -> Vec<f64> {
    let mut level = rates.first().copied().unwrap_or(0.0);
    let follow = |rate: &f64| {
        level += 2.0 / (looks + 1.0) * (rate - level);
        level
    };
    rates.iter().map(follow).collect()
}

/// The highest of the last so many.
fn highest(rates: &[f64], looks: usize) -> Vec<f64> {
    let mut falling: VecDeque<(usize, f64)> = VecDeque::new();
    let of = |(at, rate): (usize, &f64)| {
        while falling.back().is_some_and(|(_, before)| before <= rate) {
            falling.pop_back();
        }
        falling.push_back((at, *rate));
        while falling.front().is_some_and(|(before, _)| before + looks <= at) {
            falling.pop_front();
        }
        falling.front().map_or(0.0, |(_, highest)| *highest)
    };
    rates.iter().enumerate().map(of).collect()
}

/// Hands every follower of these rates to `each`: averages over 0.5 s to 2 min, held for up to 2 min; the latest, but
/// no less than some part of the highest of ten minutes, of half an hour, or of the whole trace, which is known
/// beforehand.
fn followers(rates: &[f64], each: &mut dyn FnMut(&[f64])) {
    for looks in AVERAGED {
        let level = averaged(rates, looks);
        HELD.into_iter().for_each(|held| each(&highest(&level, held)));
    }
    let (calm, latest) = (averaged(rates, CALM), averaged(rates, LATEST));
    for looks in REMEMBERED.into_iter().chain([usize::MAX]) {
        let peaks = if looks == usize::MAX {
            vec![calm.iter().copied().fold(0.0, f64::max); calm.len()]
        } else {
            highest(&calm, looks)
        };
        for part in KEPT {
            let kept: Vec<f64> =
                latest.iter().zip(&peaks).map(|(latest, peak)| latest.max(part * peak)).collect();
            each(&kept);
        }
    }
}

/// Device-hours of the best follower, chosen afterwards, which keeps the attainment of all requests together.
pub fn hindsight(demand: &Demand, fleet: &Fleet, rules: &Rules) -> f64 {
    let ticks = usize::try_from(LOOK_US / demand.tick_us()).unwrap_or(usize::MAX).max(1);
    let seconds = ticks as f64 * demand.tick_us() as f64 / 1e6;
    let looks = |time_us: u64| (time_us as f64 / 1e6 / seconds).round() as usize;
    // What is seen at the end of one look is there for the look that begins a change's time later.
    let (delay, from) = (looks(rules.change_us) + 1, looks(rules.warmup_us));
    let models = fleet.cuts().iter().enumerate().map(|(model, cut)| {
        let sum = |window: &[u32]| {
            let counts = window.chunks_exact(demand.models()).filter_map(|tick| tick.get(model));
            counts.map(|count| f64::from(*count)).sum::<f64>() / seconds
        };
        let whole = |window: &&[u32]| window.len() == ticks * demand.models();
        let rates: Vec<f64> = demand.windows(ticks).filter(whole).map(sum).collect();
        let mut curves = Vec::new();
        followers(&rates, &mut |follower| curves.push(Curve::of(&rates, follower, delay, from)));
        // What may wait at the end of a look counts as served in it, at every look.
        let cost = 1.0 / cut.per_device / (1.0 + cut.wait / seconds);
        (cost, curves)
    });
    let models: Vec<(f64, Vec<Curve>)> = models.collect();
    let first = |curves: &[Curve]| curves.first().map_or(0.0, |curve| curve.demand);
    let allowed = (1.0 - rules.attainment) * models.iter().map(|(_, curves)| first(curves)).sum::<f64>();
    let (mut low, mut high) = PRICES;
    let mut best = 0.0_f64;
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        let price = libm::exp(middle);
        let (mut paid, mut lost) = (0.0, 0.0);
        for (cost, curves) in &models {
            let choices = curves.iter().map(|curve| curve.cheapest(cost / price));
            let dear = |choice: &Choice| cost * choice.held + price * choice.lost;
            if let Some(choice) = choices.min_by(|left, right| dear(left).total_cmp(&dear(right))) {
                paid += cost * choice.held;
                lost += choice.lost;
            }
        }
        best = best.max(paid + price * (lost - allowed));
        if lost > allowed { low = middle } else { high = middle }
    }
    best * seconds / fleet.packing() / 3_600.0
}
