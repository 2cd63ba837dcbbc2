//! Random numbers from a seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

/// A generator. The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct Generator(u64);

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `count`; 0 if that is 0.
    pub fn below(&mut self, count: usize) -> usize {
        ((self.unit() * count as f64) as usize).min(count.saturating_sub(1))
    }

    /// One of the values; `None` without values.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> Option<T> {
        let at = self.below(values.len());
        values.get(at).copied()
    }

    /// Brings values into a random order.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for end in (1..values.len()).rev() {
            let other = self.below(end.saturating_add(1));
            values.swap(end, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_they_are_spread() {
        let numbers = |seed| {
            let mut generator = Generator::new(seed);
            (0..1_000).map(|_| generator.unit()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        let mean = numbers(3).iter().sum::<f64>() / 1_000.0;
        assert!((mean - 0.5).abs() < 0.05, "{mean}");
        let mut order: Vec<usize> = (0..50).collect();
        Generator::new(4).shuffle(&mut order);
        assert_ne!(order, (0..50).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
        assert_eq!((Generator::new(0).below(0), Generator::new(0).pick::<u8>(&[])), (0, None));
    }
}
