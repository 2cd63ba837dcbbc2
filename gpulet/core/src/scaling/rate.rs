//! The estimates that gpulet scales by: an exponentially weighted mean, and the highest value of the last moments.

use std::collections::VecDeque;

/// Exponentially weighted mean of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Ewma {
    weight: f64,
    value: Option<f64>,
}

impl Ewma {
    /// With the weight 2 / (N + 1) that a mean over the last N samples stands for.
    pub fn over(samples: u32) -> Self {
        Self { weight: 2.0 / (f64::from(samples) + 1.0), value: None }
    }

    /// Takes in a sample and gives the mean; the first sample is its own mean.
    pub fn observe(&mut self, sample: f64) -> f64 {
        let value = self.value.map_or(sample, |value| value + self.weight.min(1.0) * (sample - value));
        self.value = Some(value);
        value
    }

    /// The mean; 0 before the first sample.
    pub fn value(&self) -> f64 {
        self.value.unwrap_or(0.0)
    }
}

/// The highest of the last samples. A sample takes constant time on average, and at most linear time.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxWindow {
    samples: u64,
    seen: u64,
    /// Samples with their number that no later one exceeds, so falling.
    highest: VecDeque<(u64, f64)>,
}

impl MaxWindow {
    /// A window of `samples` samples, at least one.
    pub fn over(samples: u32) -> Self {
        Self { samples: u64::from(samples.max(1)), seen: 0, highest: VecDeque::new() }
    }

    /// Takes in a sample and gives the highest.
    pub fn observe(&mut self, sample: f64) -> f64 {
        while self.highest.back().is_some_and(|(_, value)| *value <= sample) {
            self.highest.pop_back();
        }
        self.highest.push_back((self.seen, sample));
        self.seen += 1;
        while self.highest.front().is_some_and(|(number, _)| *number + self.samples < self.seen) {
            self.highest.pop_front();
        }
        self.value()
    }

    /// The highest; 0 before the first sample.
    pub fn value(&self) -> f64 {
        self.highest.front().map_or(0.0, |(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_as_its_weight_says() {
        let mut mean = Ewma::over(39);
        assert_eq!(mean.value(), 0.0);
        assert_eq!(mean.observe(100.0), 100.0);
        assert!((mean.observe(200.0) - 105.0).abs() < 1e-9, "a weight of 2/40");
        for _ in 0..400 {
            mean.observe(0.0);
        }
        assert!(mean.value() < 1e-6, "zeros are samples like any other");
    }

    #[test]
    fn the_highest_is_that_of_the_last_samples_and_memory_is_bounded() {
        let mut window = MaxWindow::over(60);
        let samples: Vec<f64> = (0..2_000_u32).map(|at| f64::from(at * 7_919 % 997)).collect();
        for (at, sample) in samples.iter().enumerate() {
            let highest = window.observe(*sample);
            let from = at.saturating_sub(59);
            let naive = samples[from..=at].iter().copied().fold(0.0, f64::max);
            assert_eq!(highest, naive, "sample {at}");
            assert!(window.highest.len() <= 60);
        }
        for falling in (0..500).rev() {
            window.observe(f64::from(falling));
            assert!(window.highest.len() <= 60);
        }
    }
}
