//! Batches that a cell runs in slot: of one shape, or of several in proportion to their shares of the traffic.

use models::SampleInputs;
use models::engine::Batch;

/// Batches with different values that a cell cycles through, so that caches do not help.
pub const ROTATION: usize = 16;
/// Bytes of these together.
pub const INPUT_BYTES_MAX: usize = 256 << 20;

/// Sample inputs of one shape.
pub struct Shaped {
    pub samples: SampleInputs,
    /// Share of the traffic; 1 without traffic.
    pub share: f64,
}

/// The batches to run in slot; `None` if they would be too large.
pub fn batches(shapes: &[Shaped], rows: u32) -> Option<Vec<Batch>> {
    let shares: Vec<f64> = shapes.iter().map(|shaped| shaped.share).collect();
    let slots = slots(&shares);
    let bytes = INPUT_BYTES_MAX.checked_div(shapes.len())?;
    let made = shapes.iter().enumerate().map(|(place, shaped)| {
        let count = slots.iter().filter(|slot| **slot == place).count();
        Some(shaped.samples.batches(rows, count, bytes)?.into_iter().cycle())
    });
    let mut made = made.collect::<Option<Vec<_>>>()?;
    slots.iter().map(|place| made.get_mut(*place)?.next()).collect()
}

/// Which shape runs at each place of the rotation: as often as its share, at least once, and evenly spread.
fn slots(shares: &[f64]) -> Vec<usize> {
    let total: f64 = shares.iter().sum();
    // At least one slot each, so that a rare shape is measured too.
    let least = 1.0 / ROTATION as f64;
    let weight = |share: &f64| if total > 0.0 { (share / total).max(least) } else { 1.0 };
    let weights: Vec<f64> = shares.iter().map(weight).collect();
    let total: f64 = weights.iter().sum();
    let mut credit = vec![0.0; weights.len()];
    let mut slots = Vec::with_capacity(ROTATION);
    for _ in 0..ROTATION {
        credit.iter_mut().zip(&weights).for_each(|(credit, weight)| *credit += weight / total);
        let best = credit.iter().enumerate().max_by(|(place, one), (other_place, other)| {
            one.total_cmp(other).then_with(|| other_place.cmp(place))
        });
        let Some((best, _)) = best else { break };
        if let Some(credit) = credit.get_mut(best) {
            *credit -= 1.0;
        }
        slots.push(best);
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_run_as_often_as_traffic_has_them_and_each_at_least_once() {
        assert_eq!(slots(&[1.0]), [0; ROTATION]);
        let count = |slots: &[usize], place| slots.iter().filter(|slot| **slot == place).count();
        let even = slots(&[0.3, 0.3]);
        assert_eq!((count(&even, 0), count(&even, 1)), (8, 8));
        assert!(even.windows(2).all(|pair| pair[0] != pair[1]), "evenly spread: {even:?}");
        let mixed = slots(&[0.75, 0.25]);
        assert_eq!((count(&mixed, 0), count(&mixed, 1)), (12, 4));
        let rare = slots(&[0.97, 0.01, 0.01, 0.01]);
        assert!((1..4).all(|place| count(&rare, place) >= 1), "{rare:?}");
        assert!(count(&rare, 0) >= 12, "{rare:?}");
        assert_eq!(slots(&[]), [0_usize; 0]);
    }
}
