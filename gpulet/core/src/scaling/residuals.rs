//! How far demand lay from what was forecast: a distribution of the ratio of both that forgets.
//!
//! From it follows what a capacity is worth before it is there: of a demand that is forecast, the part that will not
//! find capacity. Ratios are binned by logarithm, so that memory is bounded and a sample costs one step; each bin
//! keeps the mean of what fell into it, so that rare large ratios keep their size.

/// Bins on either side of the ratio 1.
const HALF: i32 = 80;
const BINS: usize = 2 * HALF as usize + 1;
/// Width of a bin, in the logarithm.
const WIDTH: f64 = 0.02;
/// Weights are scaled down before they lose precision.
const WEIGHT_MAX: f64 = 1e9;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bin {
    weight: f64,
    /// Sum of weight times ratio.
    sum: f64,
}

/// Ratios of demand to forecast, the later the weightier.
#[derive(Clone, Debug, PartialEq)]
pub struct Residuals {
    bins: Box<[Bin; BINS]>,
    /// Weight of the next sample.
    next: f64,
    growth: f64,
    total: Bin,
}

impl Residuals {
    /// Remembers about so many samples. Before there are any, demand may be a quarter more or less than forecast.
    pub fn over(samples: f64) -> Self {
        let growth = 1.0 / (1.0 - 1.0 / samples.max(2.0));
        let mut residuals =
            Self { bins: Box::new([Bin::default(); BINS]), next: 1.0, growth, total: Bin::default() };
        for prior in [0.75, 0.9, 1.0, 1.1, 1.25] {
            residuals.observe(prior);
        }
        residuals
    }

    /// Takes in a ratio; anything but a finite one of at least 0 is none.
    pub fn observe(&mut self, ratio: f64) {
        if !(ratio >= 0.0 && ratio.is_finite()) {
            return;
        }
        let step = (libm::log(ratio) / WIDTH).round().clamp(f64::from(-HALF), f64::from(HALF));
        let weight = self.next;
        for bin in self.bins.get_mut((step + f64::from(HALF)) as usize).into_iter().chain([&mut self.total]) {
            bin.weight += weight;
            bin.sum += weight * ratio;
        }
        self.next *= self.growth;
        if self.next > WEIGHT_MAX {
            let scale = 1.0 / self.next;
            for bin in self.bins.iter_mut().chain([&mut self.total]) {
                bin.weight *= scale;
                bin.sum *= scale;
            }
            self.next = 1.0;
        }
    }

    /// Mean ratio: above 1 where forecasts were too low.
    pub fn mean(&self) -> f64 {
        self.total.sum / self.total.weight
    }

    /// Part of the demand that exceeds `capacity`, which is a multiple of the forecast: from 0 to 1.
    pub fn shortfall(&self, capacity: f64) -> f64 {
        let exceeding = |bin: &Bin| (bin.sum - capacity * bin.weight).max(0.0);
        let lost: f64 = self.bins.iter().map(exceeding).sum();
        if self.total.sum > 0.0 { (lost / self.total.sum).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The smallest multiple of the forecast of which at most that part of the demand exceeds it.
    pub fn capacity_for(&self, shortfall: f64) -> f64 {
        let allowed = shortfall.max(0.0) * self.total.sum;
        let (mut weight, mut sum, mut capacity) = (0.0, 0.0, 0.0);
        for bin in self.bins.iter().rev().filter(|bin| bin.weight > 0.0) {
            let ratio = bin.sum / bin.weight;
            // Between this ratio and the one above, demand above a capacity c is sum - c weight.
            if sum - ratio * weight >= allowed {
                return if weight > 0.0 { (sum - allowed) / weight } else { ratio };
            }
            weight += bin.weight;
            sum += bin.sum;
            capacity = ratio;
        }
        if weight > 0.0 { ((sum - allowed) / weight).clamp(0.0, capacity) } else { 1.0 }
    }

    /// The ratio that a part of the samples lay below, from 0 to 1.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut left = part.clamp(0.0, 1.0) * self.total.weight;
        let mut found = 1.0;
        for bin in self.bins.iter().filter(|bin| bin.weight > 0.0) {
            found = bin.sum / bin.weight;
            left -= bin.weight;
            if left <= 0.0 {
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortfall_and_capacity_are_each_others_inverse() {
        let mut residuals = Residuals::over(1_000.0);
        for step in 0..5_000_u32 {
            residuals.observe(0.5 + f64::from(step * 7_919 % 1_000) / 1_000.0);
        }
        assert!((residuals.mean() - 1.0).abs() < 0.02, "{}", residuals.mean());
        for shortfall in [0.001, 0.01, 0.05, 0.2, 0.5] {
            let capacity = residuals.capacity_for(shortfall);
            assert!((residuals.shortfall(capacity) - shortfall).abs() < 1e-9, "{shortfall}: {capacity}");
            // Uniform on 0.5 to 1.5: the integral above c is (1.5 - c)^2 / 2.
            let exact = 1.5 - (2.0 * shortfall).sqrt();
            assert!(shortfall > 0.4 || (capacity - exact).abs() < 0.02, "{shortfall}: {capacity} {exact}");
        }
        assert!((residuals.quantile(0.25) - 0.75).abs() < 0.03);
        assert_eq!(residuals.shortfall(0.0), 1.0);
        assert_eq!(residuals.shortfall(2.0), 0.0);
    }

    #[test]
    fn what_is_long_past_is_forgotten_and_rare_large_ratios_keep_their_size() {
        let mut residuals = Residuals::over(100.0);
        for _ in 0..50_000 {
            residuals.observe(3.0);
        }
        assert!((residuals.mean() - 3.0).abs() < 1e-6, "{}", residuals.mean());
        for _ in 0..2_000 {
            residuals.observe(1.0);
        }
        assert!((residuals.mean() - 1.0).abs() < 1e-3);
        residuals.observe(50.0);
        assert!(residuals.capacity_for(0.0) > 40.0);
    }

    #[test]
    fn what_is_no_ratio_changes_nothing() {
        let mut residuals = Residuals::over(100.0);
        let before = residuals.clone();
        for nonsense in [f64::NAN, f64::INFINITY, -1.0] {
            residuals.observe(nonsense);
        }
        assert_eq!(residuals, before);
        residuals.observe(0.0);
        assert!(residuals.mean() < before.mean());
    }
}
