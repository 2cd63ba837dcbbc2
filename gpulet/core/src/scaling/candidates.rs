//! Candidates: several ways to follow a model's demand, each with the loss that it would have caused.
//!
//! No single way suits all traffic. A rate that jumps once a minute is best followed at once. A rate that jitters
//! around a slow tide is best averaged. Where high rates return without warning, it is cheaper to always keep a part of
//! the highest one. The candidates are therefore:
//! - smoothers, with and without a damped trend;
//! - the latest rate, but at least some part, up to all, of the recent highest one.
//!
//! All candidates run on the same samples. The value of each is held for a while, as a plan is, and compared with the
//! demand at the time when a change would have its effect. The scaler follows the cheapest candidate: capacity held
//! plus requests lost at their price, over the remembered time.
//!
//! When a quick smoother is higher than its own errors explain, demand has changed, and all candidates follow it.

use std::collections::VecDeque;

use super::MaxWindow;
use super::level::Level;
use super::losses::{Losses, Multiple};
use crate::time::Micros;

/// Largest number of samples ahead.
const HORIZON_MAX: usize = 240;
/// Samples that losses are remembered over: an hour at half a second.
const MEMORY: f64 = 7_200.0;
/// Weights are scaled down before they lose precision.
const WEIGHT_MAX: f64 = 1e9;
/// A quick smoother wins if demand below it has at most this probability by its own errors.
const SURPRISE: f64 = 0.01;
/// How much cheaper another candidate must be to be followed. Without a margin, choices swing and move capacity
/// needlessly.
const BETTER: f64 = 0.99;
/// Parts that the hold time is divided into. A value is held for at most one part too long.
const HOLD_PARTS: usize = 4;

/// Samples that a level is averaged over, and whether it has a trend.
const LEVELS: [(f64, bool); 6] =
    [(1.0, false), (3.0, false), (8.0, false), (20.0, false), (60.0, false), (8.0, true)];
/// Levels quick enough to say that demand has changed; the level that a highest is taken of.
const QUICK: usize = 3;
const USUAL: usize = 2;
const SLOW: usize = 4;
/// Samples that highest levels are remembered over, ten minutes and half an hour; they are taken at every fourth.
const WINDOWS: [u32; 2] = [1_200, 3_600];
const WINDOW_EVERY: usize = 4;
/// Samples whose highest is remembered: half an hour.
const CREST_SAMPLES: u32 = 3_600;
/// Parts of those highest that are kept at all times; the whole is among them.
const FLOORS: [&[f64]; 2] = [&[0.5, 0.7, 1.0], &[0.3, 0.5, 0.7, 0.85, 1.0]];
const CANDIDATES: usize = 14;

/// The recent maximum of each candidate: one row per part of the hold time.
#[derive(Clone, Debug, PartialEq)]
struct Hold {
    part: usize,
    seen: usize,
    rows: VecDeque<[f64; CANDIDATES]>,
}

impl Hold {
    fn observe(&mut self, wishes: &[f64; CANDIDATES]) -> [f64; CANDIDATES] {
        if self.seen.is_multiple_of(self.part) {
            if self.rows.len() > HOLD_PARTS {
                self.rows.pop_front();
            }
            self.rows.push_back([0.0; CANDIDATES]);
        }
        self.seen = self.seen.wrapping_add(1);
        if let Some(row) = self.rows.back_mut() {
            raise(row, wishes);
        }
        let mut highest = [0.0; CANDIDATES];
        self.rows.iter().for_each(|row| raise(&mut highest, row));
        highest
    }
}

fn raise(row: &mut [f64; CANDIDATES], by: &[f64; CANDIDATES]) {
    row.iter_mut().zip(by).for_each(|(value, by)| *value = value.max(*by));
}

/// Candidates of one model's demand, requests a second.
#[derive(Clone, Debug)]
pub(super) struct Candidates {
    levels: Vec<Level>,
    windows: Vec<MaxWindow>,
    /// The highest level since the windows were fed.
    peak: f64,
    /// The same of samples as they come.
    crests: MaxWindow,
    crest: f64,
    hold: Hold,
    held: [f64; CANDIDATES],
    wish: [f64; CANDIDATES],
    /// What was held for the samples to come, oldest first.
    pending: VecDeque<[f64; CANDIDATES]>,
    losses: Vec<Losses>,
    /// Parts of the quick levels that demand is above for almost certain.
    sure: [f64; QUICK],
    horizon: usize,
    /// How far ahead of a level its trend leads by then.
    lead: f64,
    /// Requests a second that both sides of a ratio are raised by, so that silence and single requests have one.
    least: f64,
    /// Weight of the next sample.
    weight: f64,
    seen: usize,
    chosen: usize,
}

impl Candidates {
    /// Candidates that forecast `horizon` samples ahead, from 1 to [`HORIZON_MAX`], and hold each value for `hold`
    /// samples, at least [`HOLD_PARTS`]. A sample stands for `period_us`.
    pub(super) fn new(horizon: u32, hold: u32, period_us: Micros) -> Self {
        let horizon = (horizon as usize).clamp(1, HORIZON_MAX);
        Self {
            levels: LEVELS.into_iter().map(Level::new).collect(),
            windows: WINDOWS
                .into_iter()
                .map(|samples| MaxWindow::over(samples / WINDOW_EVERY as u32))
                .collect(),
            peak: 0.0,
            crests: MaxWindow::over(CREST_SAMPLES / WINDOW_EVERY as u32),
            crest: 0.0,
            hold: Hold { part: (hold as usize).div_ceil(HOLD_PARTS).max(1), seen: 0, rows: VecDeque::new() },
            held: [0.0; CANDIDATES],
            wish: [0.0; CANDIDATES],
            pending: VecDeque::new(),
            losses: (0..CANDIDATES).map(|_| Losses::new()).collect(),
            sure: [0.0; QUICK],
            horizon,
            lead: Level::lead(horizon),
            least: 1e6 / period_us.0.max(1) as f64,
            weight: 1.0,
            seen: 0,
            chosen: USUAL,
        }
    }

    /// Sets how many samples ahead to forecast, from 1 to [`HORIZON_MAX`].
    pub(super) fn look_ahead(&mut self, horizon: u32) {
        self.horizon = (horizon as usize).clamp(1, HORIZON_MAX);
        self.lead = Level::lead(self.horizon);
        // What was held for a moment further away has missed its own.
        self.pending.drain(..self.pending.len().saturating_sub(self.horizon));
    }

    /// Takes in a sample, requests a second.
    pub(super) fn observe(&mut self, sample: f64) {
        let sample = if sample.is_finite() { sample.max(0.0) } else { 0.0 };
        for level in &mut self.levels {
            level.observe(sample);
        }
        self.seen = self.seen.saturating_add(1);
        if self.pending.len() >= self.horizon
            && let Some(held) = self.pending.pop_front()
        {
            // Half of the candidates per sample, because this is the costliest part. Each still sees a typical
            // selection.
            for (losses, held) in self.losses.iter_mut().zip(held).skip(self.seen % 2).step_by(2) {
                losses.observe(sample + self.least, held + self.least, self.weight);
            }
        }
        self.weight *= 1.0 + 1.0 / MEMORY;
        if self.weight > WEIGHT_MAX {
            self.losses.iter_mut().for_each(|losses| losses.scale(1.0 / self.weight));
            self.weight = 1.0;
        }
        self.crest = self.crest.max(sample);
        self.wish = self.wishes();
        self.held = self.hold.observe(&self.wish);
        self.pending.push_back(self.held);
    }

    fn wishes(&mut self) -> [f64; CANDIDATES] {
        let ahead = |level: &Level| level.ahead(self.lead);
        let usual = self.levels.get(USUAL).map_or(0.0, ahead);
        let latest = self.levels.get(1).map_or(0.0, ahead);
        let surest =
            self.levels.iter().zip(self.sure).map(|(level, sure)| sure * ahead(level)).fold(0.0, f64::max);
        let mut wishes = [0.0; CANDIDATES];
        let levels = self.levels.iter().map(ahead);
        self.peak = self.peak.max(usual);
        if self.seen.is_multiple_of(WINDOW_EVERY) {
            self.windows.iter_mut().for_each(|window| {
                window.observe(self.peak);
            });
            self.crests.observe(self.crest);
            (self.peak, self.crest) = (usual, 0.0);
        }
        let floors = self.windows.iter().zip(FLOORS).flat_map(|(window, parts)| {
            let highest = window.value().max(self.peak);
            parts.iter().map(move |part| latest.max(part * highest))
        });
        wishes.iter_mut().zip(levels.chain(floors)).for_each(|(wish, rate)| *wish = rate.max(surest));
        wishes
    }

    /// Whether there are enough samples to choose a candidate.
    pub(super) fn is_ready(&self) -> bool {
        self.seen > self.horizon + HOLD_PARTS && self.seen > self.hold.part * HOLD_PARTS
    }

    /// Rate that arrives, without jitter, requests a second.
    pub(super) fn level(&self) -> f64 {
        self.levels.get(USUAL).map_or(0.0, Level::value)
    }

    /// The mean over half a minute.
    pub(super) fn mean(&self) -> f64 {
        self.levels.get(SLOW).map_or(0.0, Level::value)
    }

    /// The highest sample in half an hour.
    pub(super) fn crest(&self) -> f64 {
        self.crests.value().max(self.crest)
    }

    /// The highest level in half an hour.
    pub(super) fn highest(&self) -> f64 {
        self.windows.last().map_or(0.0, MaxWindow::value).max(self.peak)
    }

    /// The value of the chosen candidate without the hold.
    pub(super) fn wish(&self) -> f64 {
        self.wish.get(self.chosen).copied().unwrap_or(0.0)
    }

    /// All the demand remembered, in the weights of the samples.
    pub(super) fn demand(&self) -> f64 {
        self.losses.get(self.chosen).map_or(0.0, Losses::demand)
    }

    /// The cheapest multiple of the chosen candidate; `tail` and `allowed` as in [`Candidates::choose`].
    pub(super) fn cheapest(&self, tail: f64, allowed: f64) -> Option<Multiple> {
        Some(self.losses.get(self.chosen)?.cheapest(tail, allowed))
    }

    /// Requests a second at `times` the chosen candidate.
    pub(super) fn rate(&self, times: f64) -> f64 {
        let held = self.held.get(self.chosen).copied().unwrap_or(0.0);
        ((held + self.least) * times - self.least).max(0.0)
    }

    /// Part of the demand that a capacity will not serve.
    pub(super) fn shortfall(&self, capacity: f64) -> f64 {
        let times = (capacity + self.least) / (self.wish() + self.least);
        self.losses.get(self.chosen).map_or(0.0, |losses| losses.shortfall(times))
    }

    /// Follows the cheapest candidate from now on. `tail` is what a unit of capacity costs, in requests lost; `allowed`
    /// the part of the demand that may be lost at most.
    pub(super) fn choose(&mut self, tail: f64, allowed: f64) {
        for (sure, losses) in self.sure.iter_mut().zip(&self.losses) {
            *sure = losses.quantile(SURPRISE);
        }
        let dear = |losses: &Losses| losses.cheapest(tail, allowed).dear;
        let mut least = self.losses.get(self.chosen).map_or(f64::INFINITY, dear) * BETTER;
        for (at, losses) in self.losses.iter().enumerate() {
            let dear = dear(losses);
            if dear < least {
                (least, self.chosen) = (dear, at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
