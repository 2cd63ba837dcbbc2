//! A smoother: a level averaged over samples, with or without a damped trend.

/// What a trend loses from sample to sample.
const DAMPING: f64 = 0.9;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Level {
    weight: f64,
    trend_weight: f64,
    level: Option<f64>,
    trend: f64,
}

impl Level {
    /// An average over `samples` samples, with or without a trend.
    pub(super) fn new((samples, with_trend): (f64, bool)) -> Self {
        let weight = 2.0 / (samples + 1.0);
        Self { weight, trend_weight: if with_trend { weight / 4.0 } else { 0.0 }, level: None, trend: 0.0 }
    }

    pub(super) fn observe(&mut self, sample: f64) {
        let Some(before) = self.level else {
            self.level = Some(sample);
            return;
        };
        let expected = before + DAMPING * self.trend;
        let level = expected + self.weight * (sample - expected);
        self.trend = DAMPING * self.trend + self.trend_weight * (level - before - DAMPING * self.trend);
        self.level = Some(level);
    }

    /// The level now; 0 before the first sample.
    pub(super) fn value(&self) -> f64 {
        self.level.unwrap_or(0.0)
    }

    /// What a trend of 1 per sample adds up to in that number of samples.
    pub(super) fn lead(samples: usize) -> f64 {
        let steps = (0..samples).scan(1.0, |step, _| {
            *step *= DAMPING;
            Some(*step)
        });
        steps.sum()
    }

    /// The level ahead, with the lead of its trend.
    pub(super) fn ahead(&self, lead: f64) -> f64 {
        (self.value() + self.trend * lead).max(0.0)
    }
}
