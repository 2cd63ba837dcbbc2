//! Core sets of the lanes, from `[lanes]` and the cores of this process.

use crate::config::Lanes;

/// Most lanes that share their cores. Each is a thread.
const SHARED_MAX: usize = 1024;

/// Core sets by lane. `allowed` are the cores that this process may use, ascending.
pub fn core_sets(lanes: &Lanes, allowed: &[usize]) -> Result<Vec<Vec<usize>>, String> {
    if let Some(sets) = &lanes.cores {
        return match sets.iter().flatten().find(|core| !allowed.contains(core)) {
            None => Ok(sets.clone()),
            Some(core) => {
                Err(format!("lanes.cores: core {core} is not available: expected cores from {allowed:?}"))
            }
        };
    }
    let count = lanes.count.map_or(allowed.len(), std::num::NonZeroUsize::get);
    if lanes.shared && count <= SHARED_MAX {
        return Ok(vec![allowed.to_vec(); count]);
    }
    let most = if lanes.shared { SHARED_MAX } else { allowed.len() };
    if count > most {
        let limit = if lanes.shared { "" } else { ", one for each core, or `lanes.shared = true`" };
        return Err(format!("lanes.count: expected at most {most} lanes{limit}, got {count}"));
    }
    if count == 0 {
        return Err("no core is available to this process".to_owned());
    }
    // Adjacent cores share caches, so they stay together.
    let (each, more) = (allowed.len() / count, allowed.len() % count);
    let mut rest = allowed;
    let mut sets = Vec::with_capacity(count);
    for lane in 0..count {
        let (set, tail) = rest.split_at(each + usize::from(lane < more));
        sets.push(set.to_vec());
        rest = tail;
    }
    Ok(sets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    fn lanes(count: usize) -> Lanes {
        Lanes { count: NonZeroUsize::new(count), ..Lanes::default() }
    }

    #[test]
    fn cores_are_dealt_out_evenly_and_in_order() {
        assert_eq!(core_sets(&lanes(0), &[0, 2]).unwrap(), [vec![0], vec![2]]);
        assert_eq!(core_sets(&lanes(2), &[0, 1, 2, 3, 4]).unwrap(), [vec![0, 1, 2], vec![3, 4]]);
        assert_eq!(core_sets(&lanes(1), &[4, 5]).unwrap(), [vec![4, 5]]);
    }

    #[test]
    fn shared_cores_allow_more_lanes_than_cores() {
        let shared = |count| Lanes { shared: true, ..lanes(count) };
        assert_eq!(core_sets(&shared(3), &[0, 1]).unwrap(), vec![vec![0, 1]; 3]);
        assert!(core_sets(&shared(1025), &[0, 1]).unwrap_err().contains("expected at most 1024 lanes, got"));
    }

    #[test]
    fn what_the_machine_does_not_have_is_refused_by_name() {
        assert!(core_sets(&lanes(3), &[0, 1]).unwrap_err().starts_with("lanes.count"));
        assert!(core_sets(&lanes(0), &[]).is_err());
        let named = Lanes { cores: Some(vec![vec![0], vec![7]]), ..Lanes::default() };
        assert!(core_sets(&named, &[0, 1]).unwrap_err().contains("core 7"));
        assert_eq!(core_sets(&named, &[0, 7]).unwrap(), [vec![0], vec![7]]);
    }
}
