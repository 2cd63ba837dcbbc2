//! Ranges of plots: from data to round numbers, from values to pixels.

use crate::markup::number;

/// Ticks that an axis aims at.
const TICKS: f64 = 6.0;

/// A linear axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    from: f64,
    to: f64,
    step: f64,
    /// Pixels of the two ends.
    pixels: (f64, f64),
}

impl Axis {
    /// An axis of round numbers over `from..=to`, drawn between two pixels. A range without extent gets some.
    pub fn round(from: f64, to: f64, pixels: (f64, f64)) -> Self {
        let from = if from.is_finite() { from } else { 0.0 };
        let to = if to.is_finite() && to > from { to } else { from + 1.0 };
        let step = round_step((to - from) / TICKS);
        let axis = Self { from: (from / step).floor() * step, to: (to / step).ceil() * step, step, pixels };
        // A rounding error above a tick does not add a step.
        if axis.to - step >= to - step * 1e-6 { Self { to: axis.to - step, ..axis } } else { axis }
    }

    /// The same, but ending exactly where it is told.
    pub fn exact(from: f64, to: f64, pixels: (f64, f64)) -> Self {
        let round = Self::round(from, to, pixels);
        Self { from, to: if to > from { to } else { from + 1.0 }, ..round }
    }

    /// The value at its first pixel.
    pub fn from(&self) -> f64 {
        self.from
    }

    /// The value at its last pixel.
    pub fn to(&self) -> f64 {
        self.to
    }

    /// Where a value is drawn; those outside at the nearer end.
    pub fn pixel(&self, value: f64) -> f64 {
        let share = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    /// Values with a mark, ascending; few.
    pub fn ticks(&self) -> Vec<f64> {
        let first = (self.from / self.step - 1e-9).ceil();
        (0..=20_u8)
            .map(|count| (first + f64::from(count)) * self.step)
            .take_while(|tick| *tick <= self.to + self.step * 1e-6)
            .collect()
    }

    /// A tick as text: as many decimals as the step needs.
    pub fn label(&self, tick: f64) -> String {
        let decimals = decimals(self.step);
        if decimals == 0 && tick.abs() >= 1_000.0 {
            return number(tick.round());
        }
        // No minus zero.
        format!("{:.decimals$}", if tick.abs() < self.step * 1e-6 { 0.0 } else { tick })
    }
}

fn decimals(step: f64) -> usize {
    (0..6)
        .find(|&decimals| {
            let shifted = step * 10_f64.powi(decimals);
            (shifted - shifted.round()).abs() < 1e-6 && shifted >= 0.999
        })
        .and_then(|decimals| usize::try_from(decimals).ok())
        .unwrap_or(6)
}

/// The smallest of 1, 2, 2.5 and 5 times a power of ten that is at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 2.5, 5.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_on_round_numbers_and_marks_them() {
        let axis = Axis::round(0.0, 5_839.0, (0.0, 100.0));
        assert_eq!((axis.from(), axis.to()), (0.0, 6_000.0));
        let labels: Vec<_> = axis.ticks().iter().map(|tick| axis.label(*tick)).collect();
        assert_eq!(labels, ["0", "1,000", "2,000", "3,000", "4,000", "5,000", "6,000"]);
        let axis = Axis::round(0.0, 1.0, (0.0, 100.0));
        let labels: Vec<_> = axis.ticks().iter().map(|tick| axis.label(*tick)).collect();
        assert_eq!(labels, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    }

    #[test]
    fn values_land_between_the_pixels() {
        let axis = Axis::round(0.0, 10.0, (200.0, 0.0));
        assert_eq!((axis.pixel(0.0), axis.pixel(5.0), axis.pixel(10.0)), (200.0, 100.0, 0.0));
        assert_eq!(axis.pixel(99.0), 0.0);
    }

    #[test]
    fn empty_and_odd_ranges_still_have_few_ticks() {
        for (from, to) in [(0.0, 0.0), (3.0, 3.0), (0.0, f64::NAN), (5.0, 1.0), (0.0, 1e-9), (0.0, 1e12)] {
            let axis = Axis::round(from, to, (0.0, 1.0));
            assert!((2..=12).contains(&axis.ticks().len()), "{from} {to}: {axis:?}");
            assert!(axis.pixel(from).is_finite());
        }
        let axis = Axis::exact(12.3, 17.9, (0.0, 1.0));
        assert_eq!((axis.from(), axis.to()), (12.3, 17.9));
        assert!(axis.ticks().iter().all(|tick| (12.3..=17.9).contains(tick)));
    }
}
