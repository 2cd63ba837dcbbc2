//! How long changes take, which is how far ahead a scaler has to forecast.

use crate::time::Micros;

/// Weight of the latest change in the mean.
const WEIGHT: f64 = 0.25;

/// How long changes have taken.
#[derive(Debug, Default)]
pub(super) struct ChangeTime {
    began_us: Option<Micros>,
    mean_us: Option<f64>,
}

impl ChangeTime {
    /// A change begins.
    pub fn begins(&mut self, now: Micros) {
        self.began_us = Some(now);
    }

    /// It is in force, and the next may begin.
    pub fn ended(&mut self, now: Micros) {
        // A plan that waited for another one began before the other ended.
        let Some(began_us) = self.began_us.take() else { return };
        let took_us = now.since(began_us).0 as f64;
        self.mean_us = Some(self.mean_us.map_or(took_us, |mean| mean + WEIGHT * (took_us - mean)));
    }

    /// Microseconds that one takes, from the decision until another may be made; none before the first.
    pub fn takes_us(&self) -> Option<Micros> {
        self.mean_us.map(|mean| Micros(mean as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_completed_changes_and_ignores_others() {
        let mut changing = ChangeTime::default();
        changing.ended(Micros(7));
        assert_eq!(changing.takes_us(), None);
        changing.begins(Micros(1_000_000));
        changing.ended(Micros(5_000_000));
        assert_eq!(changing.takes_us(), Some(Micros(4_000_000)));
        changing.begins(Micros(6_000_000));
        changing.begins(Micros(10_000_000));
        changing.ended(Micros(18_000_000));
        assert_eq!(changing.takes_us(), Some(Micros(5_000_000)));
    }
}
