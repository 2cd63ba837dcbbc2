//! How long changes take here: what a scaler has to look ahead by.

/// Weight of the latest change in the mean.
const WEIGHT: f64 = 0.25;

/// How long changes have taken.
#[derive(Debug, Default)]
pub(super) struct Changing {
    began_us: Option<u64>,
    mean_us: Option<f64>,
}

impl Changing {
    /// A change begins.
    pub fn begins(&mut self, now_us: u64) {
        self.began_us = Some(now_us);
    }

    /// It is in force, and the next may begin.
    pub fn ended(&mut self, now_us: u64) {
        let Some(began_us) = self.began_us.take() else { return };
        let took_us = now_us.saturating_sub(began_us) as f64;
        self.mean_us = Some(self.mean_us.map_or(took_us, |mean| mean + WEIGHT * (took_us - mean)));
    }

    /// Microseconds that one takes, from the decision until another may be made; none before the first.
    pub fn takes_us(&self) -> Option<u64> {
        self.mean_us.map(|mean| mean as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_what_changes_take_and_what_never_ended_counts_for_nothing() {
        let mut changing = Changing::default();
        changing.ended(7);
        assert_eq!(changing.takes_us(), None);
        changing.begins(1_000_000);
        changing.ended(5_000_000);
        assert_eq!(changing.takes_us(), Some(4_000_000));
        changing.begins(6_000_000);
        changing.begins(10_000_000);
        changing.ended(18_000_000);
        assert_eq!(changing.takes_us(), Some(5_000_000));
    }
}
