//! Models of similar latency, and how many devices each bucket of them gets.

use super::Problem;

/// Relative difference of latency from which a model starts a new bucket (the authors' code).
const SAME_BUCKET: f64 = 0.38;

/// Ways to share the devices that are searched at most, roughly (the authors' code).
const SHARES_MAX: usize = 100;

/// Ways that are enumerated at most; with more, buckets get devices in units of 2, 4, ...
const COMPOSITIONS_MAX: f64 = 50_000.0;

/// Models whose latency on one device differs by less than [`SAME_BUCKET`] from the first one of their bucket.
pub(super) fn buckets(problem: &Problem) -> Vec<Vec<usize>> {
    let mut buckets: Vec<(f64, Vec<usize>)> = Vec::new();
    for model in 0..problem.models.len() {
        let latency = problem.profile(model).map_or(0.0, |profile| profile.single_s());
        let near = |first: f64| (latency - first).abs() / first < SAME_BUCKET;
        match buckets.iter_mut().find(|(first, _)| near(*first)) {
            Some((_, models)) => models.push(model),
            None => buckets.push((latency, vec![model])),
        }
    }
    buckets.into_iter().map(|(_, models)| models).collect()
}

/// Devices of each bucket. If there are many ways, only those are kept whose shares of throughput are close to the
/// shares of the rates.
pub(super) fn shares(problem: &Problem, buckets: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let rate = |models: &Vec<usize>| -> f64 {
        models.iter().filter_map(|model| problem.models.get(*model)).map(|model| model.rate).sum()
    };
    let latency = |models: &Vec<usize>| {
        models.first().and_then(|model| problem.profile(*model)).map_or(1.0, |profile| profile.single_s())
    };
    let total: f64 = buckets.iter().map(rate).sum();
    let distance = |share: &Vec<usize>| {
        let throughput = |(devices, models): (&usize, &Vec<usize>)| *devices as f64 / latency(models);
        let all: f64 = share.iter().zip(buckets).map(throughput).sum();
        let parts = share.iter().zip(buckets);
        parts.map(|part| (rate(part.1) / total - throughput(part) / all).abs()).fold(0.0, f64::max)
    };
    let devices = problem.cluster.devices;
    let mut unit = 1;
    while count(devices / unit, buckets.len()) > COMPOSITIONS_MAX {
        unit *= 2;
    }
    let mut found = Vec::new();
    compositions(devices / unit, buckets.len(), &mut Vec::new(), &mut found);
    for share in &mut found {
        share.iter_mut().for_each(|devices| *devices *= unit);
        if let Some(last) = share.last_mut() {
            *last += devices % unit;
        }
    }
    for threshold in [0.5, 0.3, 0.2, 0.1] {
        if found.len() < SHARES_MAX {
            break;
        }
        found.retain(|share| distance(share) < threshold);
    }
    found
}

/// How many ways there are to write `units` as a sum of `parts` counts of at least 1.
fn count(units: usize, parts: usize) -> f64 {
    (1..parts).map(|place| units.saturating_sub(place) as f64 / place as f64).product()
}

/// All ways to write `devices` as a sum of `parts` counts of at least 1.
fn compositions(devices: usize, parts: usize, before: &mut Vec<usize>, found: &mut Vec<Vec<usize>>) {
    if parts <= 1 {
        let mut share = before.clone();
        share.push(devices);
        found.push(share);
        return;
    }
    for first in 1..=devices.saturating_sub(parts - 1) {
        before.push(first);
        compositions(devices - first, parts - 1, before, found);
        before.pop();
    }
}
