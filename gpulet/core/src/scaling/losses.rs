//! What a way of following demand has lost: how far demand lay above and below what was held for it, forgetting.
//!
//! From it follows what any multiple of it would have lost. Ratios of demand to what was held are binned, so that
//! memory is bounded and a sample costs one step; each bin keeps the sums of both, so that rare large ratios keep
//! their size, and a ratio counts for as much as was held: a loss of many requests is many losses.

/// Bins of ratios from 0 to 4; the last has all above.
const BINS: usize = 160;
const WIDTH: f64 = 0.025;
/// Before there are any samples, demand may be a quarter more or less than was held.
const PRIOR: [f64; 5] = [0.75, 0.9, 1.0, 1.1, 1.25];

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bin {
    held: f32,
    demand: f32,
}

/// Demand and the capacity that was held for it, summed over time by their ratio.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Losses {
    bins: Box<[Bin; BINS]>,
    held: f64,
    demand: f64,
}

/// A multiple of the held capacity, with its loss and cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Multiple {
    pub(super) times: f64,
    /// Part of the demand that was above it.
    pub(super) loss: f64,
    /// Cost: the held capacity times `times`, plus the lost requests at their price, in the weights of the samples.
    pub(super) dear: f64,
}

impl Losses {
    pub(super) fn new() -> Self {
        Self { bins: Box::new([Bin::default(); BINS]), held: 0.0, demand: 0.0 }
    }

    /// Takes in a demand and what was held for it, which must be above 0.
    pub(super) fn observe(&mut self, demand: f64, held: f64, weight: f64) {
        if !(demand >= 0.0 && demand.is_finite() && held > 0.0 && held.is_finite()) {
            return;
        }
        if self.held <= 0.0 {
            for ratio in PRIOR {
                self.add(ratio * held, held, weight);
            }
        }
        self.add(demand, held, weight);
    }

    fn add(&mut self, demand: f64, held: f64, weight: f64) {
        let at = ((demand / held / WIDTH) as usize).min(BINS - 1);
        match self.bins.get_mut(at) {
            Some(bin) => {
                bin.held += (weight * held) as f32;
                bin.demand += (weight * demand) as f32;
            }
            None => invariant::violated!("scaling.demand_outside_the_bins"),
        }
        self.held += weight * held;
        self.demand += weight * demand;
    }

    /// Scales the weight of all observations.
    pub(super) fn scale(&mut self, by: f64) {
        for bin in self.bins.iter_mut() {
            bin.held *= by as f32;
            bin.demand *= by as f32;
        }
        self.held *= by;
        self.demand *= by;
    }

    /// Total demand, in the weights of the samples.
    pub(super) fn demand(&self) -> f64 {
        self.demand
    }

    /// Part of the demand that was above `times` what was held, from 0 to 1.
    pub(super) fn shortfall(&self, times: f64) -> f64 {
        let above = |bin: &Bin| (f64::from(bin.demand) - times * f64::from(bin.held)).max(0.0);
        let lost: f64 = self.bins.iter().map(above).sum();
        if self.demand > 0.0 { (lost / self.demand).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The ratio that a part of what was held lay below, from 0 to 1.
    pub(super) fn quantile(&self, part: f64) -> f64 {
        let mut left = part.clamp(0.0, 1.0) * self.held;
        for bin in self.bins.iter().filter(|bin| bin.held > 0.0) {
            left -= f64::from(bin.held);
            if left <= 0.0 {
                return f64::from(bin.demand / bin.held);
            }
        }
        0.0
    }

    /// The multiple that is cheapest where a unit of capacity costs `tail` (at most 1) of a request lost: the one that
    /// demand is above for that part of what was held, as in the newsvendor's problem. But never one that would have
    /// lost more than the part `allowed` of the demand.
    pub(super) fn cheapest(&self, tail: f64, allowed: f64) -> Multiple {
        let (tail, allowed) = (tail.min(1.0) * self.held, allowed.max(0.0) * self.demand);
        let (mut held, mut demand) = (0.0, 0.0);
        let mut found = (self.demand - allowed) / self.held.max(f64::MIN_POSITIVE);
        let mut lost = allowed;
        for (at, bin) in self.bins.iter().enumerate().rev().filter(|(_, bin)| bin.held > 0.0) {
            let (own_held, own_demand) = (f64::from(bin.held), f64::from(bin.demand));
            let mean = own_demand / own_held;
            // Ratios of a bin lie evenly around their mean, as far as the nearer of its ends.
            let (low, high) = (at as f64 * WIDTH, (at + 1) as f64 * WIDTH);
            let around = (mean - low).min(high - mean).max(0.0);
            let (low, high) = (mean - around, mean + around);
            let (all_held, all_demand) = (held + own_held, demand + own_demand);
            let is_tail = all_held >= tail * (1.0 - 1e-6);
            if is_tail || all_demand - low * all_held >= allowed {
                let part = ((tail - held) / own_held).clamp(0.0, 1.0);
                let by_tail = if is_tail { high - (high - low) * part } else { low };
                // Between two ratios, demand above a multiple is straight in it.
                let by_loss = if held > 0.0 && demand - mean * held >= allowed {
                    (demand - allowed) / held
                } else {
                    (all_demand - allowed) / all_held
                };
                found = by_tail.max(by_loss);
                lost = (demand - found * held).max(0.0) + (own_demand - found * own_held).max(0.0);
                break;
            }
            (held, demand) = (all_held, all_demand);
        }
        let times = found.max(0.0);
        let loss = if self.demand > 0.0 { lost / self.demand } else { 0.0 };
        Multiple { times, loss, dear: tail * times + lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform() -> Losses {
        let mut losses = Losses::new();
        for step in 0..5_000_u32 {
            losses.observe(50.0 + f64::from(step * 7_919 % 1_000) / 10.0, 100.0, 1.0);
        }
        losses
    }

    #[test]
    fn shortfall_and_multiple_are_each_others_inverse() {
        let losses = uniform();
        for shortfall in [0.001, 0.01, 0.05, 0.2, 0.4] {
            // Capacity that costs as much as all requests is bought for the loss allowed only.
            let found = losses.cheapest(1.0, shortfall);
            assert!((losses.shortfall(found.times) - shortfall).abs() < 1e-4, "{shortfall}: {found:?}");
            assert!((found.loss - shortfall).abs() < 1e-4, "{shortfall}: {found:?}");
            // Uniform on 0.5 to 1.5: the integral above c is (1.5 - c)^2 / 2.
            let exact = 1.5 - (2.0 * shortfall).sqrt();
            assert!((found.times - exact).abs() < 0.02, "{shortfall}: {found:?} {exact}");
        }
        assert!((losses.quantile(0.25) - 0.75).abs() < 0.03);
        assert!((losses.shortfall(0.0) - 1.0).abs() < 1e-5);
        assert_eq!(losses.shortfall(2.0), 0.0);
    }

    /// The newsvendor's answer: of a uniform demand, a tail of a tenth is above 1.4.
    #[test]
    fn the_cheapest_multiple_is_exceeded_as_often_as_its_price_says() {
        let losses = uniform();
        for (tail, times) in [(0.02, 1.48), (0.1, 1.4), (0.25, 1.25)] {
            let found = losses.cheapest(tail, 1.0);
            assert!((found.times - times).abs() < 0.01, "{tail}: {found:?}");
            let dear = |times: f64| tail * times * losses.held + losses.shortfall(times) * losses.demand;
            assert!((found.dear - dear(found.times)).abs() < 1e-3 * found.dear, "{tail}: {found:?}");
            assert!(dear(found.times) <= dear(times - 0.1) && dear(found.times) <= dear(times + 0.1));
        }
        let least = losses.cheapest(5.0, 1.0);
        assert!((0.45..0.55).contains(&least.times), "never below what was ever enough: {least:?}");
    }

    #[test]
    fn what_weighs_little_is_forgotten_and_rare_large_ratios_keep_their_size() {
        let mut losses = Losses::new();
        for _ in 0..50_000 {
            losses.observe(300.0, 100.0, 1.0);
        }
        assert!((losses.demand / losses.held - 3.0).abs() < 1e-3);
        losses.scale(1e-9);
        for _ in 0..2_000 {
            losses.observe(100.0, 100.0, 1.0);
        }
        assert!((losses.demand / losses.held - 1.0).abs() < 1e-3);
        losses.observe(5_000.0, 100.0, 1.0);
        assert!(losses.cheapest(0.0, 0.0).times > 40.0);
    }

    #[test]
    fn an_invalid_demand_changes_nothing() {
        let mut losses = uniform();
        let before = losses.clone();
        for (demand, held) in
            [(f64::NAN, 1.0), (f64::INFINITY, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, f64::NAN)]
        {
            losses.observe(demand, held, 1.0);
        }
        assert_eq!(losses, before);
        losses.observe(0.0, 100.0, 1.0);
        assert!(losses.demand == before.demand && losses.held > before.held);
    }
}
