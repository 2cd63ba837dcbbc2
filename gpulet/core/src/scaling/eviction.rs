//! Which models leave a device's memory, or the host's, when another model needs space.
//!
//! A least-recently-used order treats a large model that loads in a moment like a small one that takes a minute. The
//! value of a resident model is the loading time that it saves: requests a second times load time, per byte.

use std::cmp::Ordering;

use crate::time::Micros;

/// A model that is in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Resident {
    /// Bytes that its eviction frees.
    pub bytes: u64,
    /// Recent rate, requests a second.
    pub rate: f64,
    /// Time to load it again.
    pub load_us: Micros,
    /// Time of its last request, microseconds.
    pub asked_us: Micros,
    /// Whether it serves or must stay for another reason, such as its minimum of replicas.
    pub is_needed: bool,
}

impl Resident {
    /// Microseconds of loading that it saves, per second and byte.
    pub fn value(&self) -> f64 {
        let rate = if self.rate > 0.0 { self.rate } else { 0.0 };
        rate * self.load_us.0 as f64 / self.bytes.max(1) as f64
    }

    fn order(&self, other: &Self) -> Ordering {
        self.value().total_cmp(&other.value()).then(self.asked_us.cmp(&other.asked_us))
    }
}

/// Evicting every model that may leave does not free enough memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "memory: {wanted_bytes} bytes wanted, only {freed_bytes} can be freed without a model that is needed"
)]
pub struct NotEnough {
    /// Bytes that were wanted.
    pub wanted_bytes: u64,
    /// Bytes that could be freed.
    pub freed_bytes: u64,
}

/// Selects the models to evict so that at least `wanted_bytes` become free. The least valuable models leave first,
/// among equals the least recently requested, and no more than necessary. Returns their indices in the list, ascending.
///
/// # Errors
/// [`NotEnough`] where the models that are not needed hold fewer bytes; then none should leave.
pub fn evict(residents: &[Resident], wanted_bytes: u64) -> Result<Vec<usize>, NotEnough> {
    let mut leaving: Vec<(usize, &Resident)> =
        residents.iter().enumerate().filter(|(_, resident)| !resident.is_needed).collect();
    leaving.sort_by(|(_, left), (_, right)| left.order(right));
    let mut freed = 0_u64;
    let mut chosen: Vec<(usize, &Resident)> = Vec::new();
    for (place, resident) in leaving {
        if freed >= wanted_bytes {
            break;
        }
        freed = freed.saturating_add(resident.bytes);
        chosen.push((place, resident));
    }
    if freed < wanted_bytes {
        return Err(NotEnough { wanted_bytes, freed_bytes: freed });
    }
    // From the most valuable down: a small model that was chosen before a large one may be unnecessary now.
    let mut places = Vec::new();
    for (place, resident) in chosen.into_iter().rev() {
        match freed.checked_sub(resident.bytes).filter(|left| *left >= wanted_bytes) {
            Some(left) => freed = left,
            None => places.push(place),
        }
    }
    places.sort_unstable();
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident(bytes: u64, rate: f64, load_us: u64, asked_us: u64) -> Resident {
        let (load_us, asked_us) = (Micros(load_us), Micros(asked_us));
        Resident { bytes, rate, load_us, asked_us, is_needed: false }
    }

    #[test]
    fn the_least_valuable_leave_first_and_among_equals_the_least_recently_requested() {
        let residents = [
            resident(100, 5.0, 1_000, 9),
            resident(100, 0.0, 1_000, 8),
            resident(100, 0.0, 1_000, 7),
            resident(100, 1.0, 1_000, 1),
        ];
        assert_eq!(evict(&residents, 0), Ok(vec![]));
        assert_eq!(evict(&residents, 1), Ok(vec![2]));
        assert_eq!(evict(&residents, 101), Ok(vec![1, 2]));
        assert_eq!(evict(&residents, 300), Ok(vec![1, 2, 3]));
    }

    #[test]
    fn a_byte_counts_for_what_it_saves() {
        // Equal rates: the one that loads in a moment goes before the one that takes long, the large before the small.
        assert_eq!(evict(&[resident(100, 1.0, 9_000, 1), resident(100, 1.0, 10, 9)], 50), Ok(vec![1]));
        assert_eq!(evict(&[resident(100, 1.0, 1_000, 1), resident(900, 1.0, 1_000, 9)], 50), Ok(vec![1]));
    }

    #[test]
    fn no_model_leaves_unnecessarily_and_serving_models_stay() {
        let mut residents = vec![resident(10, 0.0, 1, 1), resident(500, 0.5, 1, 2)];
        assert_eq!(evict(&residents, 400), Ok(vec![1]), "the ten bytes alone would not do, and add nothing");
        residents[1].is_needed = true;
        assert_eq!(evict(&residents, 400), Err(NotEnough { wanted_bytes: 400, freed_bytes: 10 }));
    }
}
