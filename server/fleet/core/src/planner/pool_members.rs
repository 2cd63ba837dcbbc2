//! Models as pools see them, on the mean lane of a fleet and on each device type.
//!
//! Models are divided into pools by their times on the mean lane, and nodes are dealt out by what a pool does on their lanes.

use std::collections::BTreeMap;

use gpulet_core::problem::{ProblemError, Workload};
use gpulet_core::profile::{Profile, Quantile};

use super::NotPlanned;
use super::inputs::{FleetNode, Inputs};
use super::pools::{Member, lanes_for};

/// Device types of a fleet at most: each is a bit of [`Member::types`].
const TYPES_MAX: usize = 64;

/// The models in ascending order of slack.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    /// On the mean lane of those device types that are fast enough.
    pub mean: Vec<Member>,
    /// In the same order, on lanes of each device type. Empty if there is only one.
    by_type: Vec<Vec<Member>>,
    /// Index of the device type of each node.
    pub node_types: Vec<usize>,
}

impl Members {
    /// The models that are needed, for nodes that accept them.
    pub(super) fn new(inputs: &Inputs<'_>, nodes: &[&FleetNode]) -> Result<Self, NotPlanned> {
        let mut types: BTreeMap<&str, usize> = BTreeMap::new();
        let mut lanes: Vec<f64> = Vec::new();
        let mut node_types = Vec::with_capacity(nodes.len());
        for node in nodes {
            let mut names = node.devices.iter().map(|device| device.device_type.name.as_str());
            let first = names.next().unwrap_or_default();
            if let Some(other) = names.find(|name| *name != first) {
                let problem = format!("expected lanes of one device type, got `{first}` and `{other}`");
                return Err(ProblemError { field: format!("nodes.{}", node.name), problem }.into());
            }
            let count = types.len();
            let number = *types.entry(first).or_insert(count);
            lanes.resize(types.len(), 0.0);
            lanes.iter_mut().skip(number).take(1).for_each(|sum| *sum += node.devices.len() as f64);
            node_types.push(number);
        }
        if types.len() > TYPES_MAX {
            let problem = format!("expected at most {TYPES_MAX} device types, got {}", types.len());
            return Err(ProblemError { field: "nodes".to_owned(), problem }.into());
        }
        let mut profiles: BTreeMap<&str, Vec<&Profile>> = BTreeMap::new();
        for profile in inputs.profiles {
            profiles.entry(profile.model()).or_default().push(profile);
        }
        let mut members = Vec::with_capacity(inputs.models.len());
        for (number, model) in inputs.models.iter().enumerate().filter(|(_, model)| model.is_needed()) {
            let known = profiles.get(model.model.as_str()).map(Vec::as_slice).unwrap_or_default();
            let Some(on_types) = on_types(known, &types) else {
                let problem =
                    format!("no profile of `{}` on any of the devices, run `tessera profile`", model.model);
                return Err(ProblemError { field: format!("models.{}", model.name), problem }.into());
            };
            members.push(on_all((number, model), &on_types, &lanes));
        }
        // Stable: models with the same slack are in the order of their numbers.
        members.sort_by(|(left, _), (right, _)| left.slack_us.total_cmp(&right.slack_us));
        let of_types = if types.len() > 1 { types.len() } else { 0 };
        let mut by_type: Vec<Vec<Member>> = vec![Vec::with_capacity(members.len()); of_types];
        let mut mean = Vec::with_capacity(members.len());
        for (member, own) in members {
            mean.push(member);
            own.into_iter().zip(&mut by_type).for_each(|(member, members)| members.push(member));
        }
        Ok(Self { mean, by_type, node_types })
    }

    /// The models on lanes of a device type.
    pub(super) fn on(&self, device_type: usize) -> &[Member] {
        self.by_type.get(device_type).unwrap_or(&self.mean)
    }

    /// Models of a pool on the mean lane.
    pub(super) fn of(&self, pool: &[usize]) -> Vec<Member> {
        of(&self.mean, pool)
    }

    /// Whether there is a node of its own for each pool, of a type that is fast enough for all its models.
    pub(super) fn have_fast_nodes(&self, pools: impl Iterator<Item = Vec<usize>>) -> bool {
        if self.by_type.is_empty() {
            return true;
        }
        let types: Vec<u64> = pools.map(|pool| self.types(&pool)).collect();
        // By Hall's theorem it suffices to count for unions of types, and these sets are nearly always nested.
        types.iter().all(|own| {
            let within = types.iter().filter(|other| **other & !own == 0).count();
            let nodes = self.node_types.iter().filter(|number| own >> **number & 1 == 1).count();
            within <= nodes
        })
    }

    /// Device types, as bits, that are fast enough for all models of a pool. All, if none is.
    fn types(&self, pool: &[usize]) -> u64 {
        let members = pool.iter().filter_map(|member| self.mean.get(*member));
        match members.fold(u64::MAX, |types, member| types & member.types) {
            0 => u64::MAX,
            types => types,
        }
    }

    /// How much of a mean lane's work a lane of each device type does for a pool. 0: the type is not fast enough for one of its models,
    /// and another one is.
    pub(super) fn worth(&self, pool: &[usize]) -> Vec<f64> {
        if self.by_type.is_empty() {
            return vec![1.0];
        }
        let (types, need) = (self.types(pool), lanes_for(&self.of(pool)));
        let on = |(number, members): (usize, &Vec<Member>)| match types >> number & 1 == 1 {
            true => need / lanes_for(&of(members, pool)).max(f64::MIN_POSITIVE),
            false => 0.0,
        };
        self.by_type.iter().enumerate().map(on).collect()
    }
}

fn of(members: &[Member], pool: &[usize]) -> Vec<Member> {
    pool.iter().filter_map(|member| members.get(*member).cloned()).collect()
}

/// The profiles of a model for each device type. A type without one counts as the slowest that is known. `None`: no profile.
fn on_types<'a>(known: &[&'a Profile], types: &BTreeMap<&str, usize>) -> Option<Vec<&'a Profile>> {
    let timed = known.iter().filter_map(|profile| Some((*profile, time(profile, 1)?)));
    let (slowest, _) = timed.max_by(|left, right| left.1.total_cmp(&right.1))?;
    let mut on_types = vec![slowest; types.len().max(1)];
    for profile in known.iter().filter(|profile| time(profile, 1).is_some()) {
        let number = types.get(profile.device()).copied().unwrap_or(usize::MAX);
        on_types.iter_mut().skip(number).take(1).for_each(|place| *place = profile);
    }
    Some(on_types)
}

/// A model on the mean lane, and on those of each type if there are several.
fn on_all(
    (number, model): (usize, &Workload),
    profiles: &[&Profile],
    lanes: &[f64],
) -> (Member, Vec<Member>) {
    let bytes = |profile: &Profile| {
        profile.weights_bytes().unwrap_or(0).saturating_add(profile.arena_bytes(1).unwrap_or(0))
    };
    let bytes = profiles.iter().map(|profile| bytes(profile)).max().unwrap_or(0);
    let largest = profiles.iter().map(|profile| profile.batches().1).min().unwrap_or(1).min(model.batch_max);
    let is_fast = |profile: &&Profile| time(profile, 1).is_some_and(|single| single <= model.slo_us);
    let fast = (0..).zip(profiles).filter(|(_, profile)| is_fast(profile)).map(|(bit, _): (u32, _)| 1 << bit);
    let fast = fast.fold(0_u64, |types, bit| types | bit);
    let types = if fast == 0 { u64::MAX >> (64 - profiles.len().clamp(1, TYPES_MAX)) } else { fast };
    let member = |time: &dyn Fn(u32) -> Option<f64>| {
        let single_us = time(1).unwrap_or(0.0);
        Member {
            model: number,
            slack_us: model.slo_us - single_us,
            single_us,
            row_us: row_times(time, largest, model.slo_us),
            rate: model.wanted(),
            bytes,
            nodes_min: model.replicas_min.max(1) as usize,
            has_rules: !model.not_with.is_empty(),
            types,
        }
    };
    if let [profile] = profiles {
        return (member(&|rows| time(profile, rows)), Vec::new());
    }
    let used = || {
        let used = (0..).zip(profiles.iter().zip(lanes)).filter(|(bit, _): &(u32, _)| types >> bit & 1 == 1);
        used.map(|(_, (profile, lanes))| (*profile, *lanes))
    };
    let mean = |rows: u32| {
        let (mut sum, mut batches) = (0.0, 0.0);
        for (profile, lanes) in used() {
            sum += lanes;
            batches += lanes / time(profile, rows)?;
        }
        Some(sum / batches)
    };
    (member(&mean), profiles.iter().map(|profile| member(&|rows| time(profile, rows))).collect())
}

fn time(profile: &Profile, batch: u32) -> Option<f64> {
    profile.latency_us(Quantile::P99, batch, profile.units_total()).ok().filter(|time| *time > 0.0)
}

/// Lane time of a row by the time of its batch, for batches of which two fit into the objective.
fn row_times(time: &dyn Fn(u32) -> Option<f64>, largest: u32, slo_us: f64) -> Vec<(f64, f64)> {
    let mut times: Vec<(f64, f64)> = Vec::new();
    for batch in 1..=largest {
        let Some(time) = time(batch) else { continue };
        let row = time / f64::from(batch);
        let is_better = times.last().is_none_or(|(_, least)| row < *least);
        if is_better && (batch == 1 || 2.0 * time <= slo_us) {
            times.push((time, row));
        }
    }
    times
}
