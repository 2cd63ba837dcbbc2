//! The state of devices while a planner fills them.

use std::collections::{BTreeMap, BTreeSet};

use super::demand::{Fit, Part, SLACK};
use crate::interference::{CoLocated, Load, Runner};
use crate::plan::{Gpulet, Plan, Slot, Window};
use crate::problem::{Device, Problem};

/// A slot of a plan in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub part: Part<'a>,
    pub fit: Fit<'a>,
    pub batch: u32,
}

/// A gpulet of a plan in progress.
#[derive(Clone, Debug)]
pub(super) struct Lane<'a> {
    pub units: u32,
    /// First unit and window, if the policy chooses them. Otherwise gpulets are placed next to each other.
    pub placed: Option<(u32, Window)>,
    pub duty_us: Option<f64>,
    pub pieces: Vec<Piece<'a>>,
}

impl<'a> Lane<'a> {
    /// Creates a lane for one piece that runs batch after batch.
    pub fn dedicated(piece: Piece<'a>, units: u32) -> Self {
        Self { units, placed: None, duty_us: None, pieces: vec![piece] }
    }

    /// Returns the fraction of its time that it is busy, solo.
    pub fn busy(&self) -> f64 {
        let busy = self.pieces.iter().map(|piece| {
            let time = piece.fit.profiled_us(piece.batch, self.units).unwrap_or(f64::INFINITY);
            piece.part.rate * time / (1e6 * f64::from(piece.batch))
        });
        busy.sum()
    }

    /// Returns the fraction of its capacity that a piece uses whose batches take `time_us`.
    pub fn use_of(&self, piece: &Piece<'_>, time_us: f64) -> f64 {
        let served = match (self.duty_us, self.placed) {
            (Some(duty), _) => f64::from(piece.batch) / duty,
            (None, Some((_, window))) => {
                (window.length_us / time_us * (1.0 + SLACK)).floor() * f64::from(piece.batch)
                    / window.period_us
            }
            (None, None) => f64::from(piece.batch) / (time_us - piece.fit.profile.load_us(piece.batch)),
        };
        piece.part.rate / (1e6 * served)
    }

    pub fn loads(&self) -> Vec<Load> {
        self.pieces.iter().map(|piece| Load::of(&piece.runner(self.units))).collect()
    }
}

impl<'a> Piece<'a> {
    pub fn runner(&self, units: u32) -> Runner<'a> {
        Runner { profile: self.fit.profile, batch: self.batch, units }
    }
}

/// A device that is being filled.
#[derive(Clone, Debug)]
pub(super) struct Site<'a> {
    pub device: &'a Device,
    pub lanes: Vec<Lane<'a>>,
}

impl<'a> Site<'a> {
    /// Returns whether gpulets own the same units at different times.
    pub fn has_windows(&self) -> bool {
        self.lanes.iter().any(|lane| lane.placed.is_some())
    }

    /// Returns a lane by its position, which the caller took from this site.
    pub fn lane(&self, at: usize) -> Option<&Lane<'a>> {
        invariant::expected!(self.lanes.get(at), "placement.unknown_lane")
    }

    /// Returns a lane by its position, to be changed.
    pub fn lane_mut(&mut self, at: usize) -> Option<&mut Lane<'a>> {
        invariant::expected!(self.lanes.get_mut(at), "placement.changed_lane_unknown")
    }

    pub fn units_used(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.units).sum()
    }

    pub fn units_free(&self) -> u32 {
        self.device.device_type.units.saturating_sub(self.units_used())
    }

    /// Returns whether the shares, their number and their memory fit the device.
    pub fn fits(&self) -> bool {
        let device_type = &self.device.device_type;
        let lanes = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        let side_by_side = self.lanes.iter().all(|lane| lane.placed.is_none());
        (!side_by_side || self.units_used() <= device_type.units)
            && lanes <= device_type.gpulets_max
            && self.memory() <= u128::from(self.device.memory_bytes)
    }

    fn memory(&self) -> u128 {
        let device_type = &self.device.device_type;
        let mut models = BTreeSet::new();
        let mut bytes = u128::from(device_type.base_bytes);
        for lane in &self.lanes {
            bytes += u128::from(device_type.gpulet_bytes);
            for piece in &lane.pieces {
                bytes += u128::from(piece.fit.profile.arena_bytes(piece.batch).unwrap_or(0));
                if models.insert(piece.fit.profile.model()) {
                    bytes += u128::from(piece.fit.profile.weights_bytes().unwrap_or(0));
                }
            }
        }
        bytes
    }

    /// Returns the microseconds of every batch under contention, lane by lane, or `None` outside a profile.
    pub fn times_us(&self, problem: &Problem) -> Option<Vec<Vec<f64>>> {
        let loads: Vec<Vec<Load>> = self.lanes.iter().map(Lane::loads).collect();
        let lanes = self.lanes.iter().enumerate().map(|(at, lane)| {
            let others = loads.iter().zip(&self.lanes).enumerate();
            let others = others.filter(|(other, (_, peer))| *other != at && together(lane, peer));
            let co_located = CoLocated::of(others.map(|(_, (loads, _))| loads.as_slice()));
            let time = |piece: &Piece<'_>| {
                let alone = piece.fit.profiled_us(piece.batch, lane.units)?;
                Some(alone * problem.interference().slowdown_with(&piece.runner(lane.units), &co_located))
            };
            lane.pieces.iter().map(time).collect()
        });
        lanes.collect()
    }

    /// Returns the loads of all other lanes that ever run at the same time as lane `at`.
    pub fn co_located_with(&self, at: usize) -> CoLocated {
        let own = self.lane(at);
        let others = self
            .lanes
            .iter()
            .enumerate()
            .filter(|(other, peer)| *other != at && own.is_some_and(|lane| together(lane, peer)));
        let loads: Vec<Vec<Load>> = others.map(|(_, other)| other.loads()).collect();
        CoLocated::of(loads.iter().map(Vec::as_slice))
    }

    /// Returns whether every piece keeps its objective and rate with the given times.
    pub fn holds(&self, times: &[Vec<f64>]) -> bool {
        let all = times;
        let longest = |(lane, times): (&Lane<'_>, &Vec<f64>)| {
            let longest = times.iter().copied().fold(0.0, f64::max);
            if lane.placed.is_some() { longest } else { 0.0 }
        };
        let mut lanes = self.lanes.iter().zip(times).enumerate();
        lanes.all(|(at, (lane, times))| match (lane.duty_us, lane.placed) {
            (None, None) => lane.pieces.iter().zip(times).all(|(piece, time)| {
                let rows = f64::from(piece.batch);
                let busy = time - piece.fit.profile.load_us(piece.batch);
                2.0 * time <= piece.part.workload.slo_us * (1.0 + SLACK)
                    && piece.part.rate * busy <= 1e6 * rows * (1.0 + SLACK)
            }),
            (Some(duty), _) => {
                let sum: f64 = times.iter().sum();
                sum <= duty * (1.0 + SLACK)
                    && lane.pieces.iter().zip(times).all(|(piece, time)| {
                        duty + time <= piece.part.workload.slo_us * (1.0 + SLACK)
                            && piece.part.rate * duty <= 1e6 * f64::from(piece.batch) * (1.0 + SLACK)
                    })
            }
            (None, Some((_, window))) => lane.pieces.iter().zip(times).all(|(piece, time)| {
                let batches = (window.length_us / time * (1.0 + SLACK)).floor();
                let others = self.lanes.iter().zip(all).enumerate().filter(|(other, _)| *other != at);
                let other = others.map(|(_, lane)| longest(lane)).fold(0.0, f64::max);
                let worst = worst_in_window(&window, *time, other);
                let served = 1e6 * batches * f64::from(piece.batch) / window.period_us;
                batches >= 1.0
                    && worst <= piece.part.workload.slo_us * (1.0 + SLACK)
                    && piece.part.rate <= served * (1.0 + SLACK)
            }),
        })
    }

    /// Returns whether the site fits its device and every piece keeps its objective and rate.
    pub fn is_sound(&self, problem: &Problem) -> bool {
        self.fits() && self.times_us(problem).is_some_and(|times| self.holds(&times))
    }

    /// Returns the gpulets, next to each other in the order of the lanes. Budgets are the predicted times. In a
    /// cycle, the remaining time is divided in proportion.
    pub fn gpulets(&self, problem: &Problem) -> Vec<Gpulet> {
        let times = self.times_us(problem).unwrap_or_else(|| {
            invariant::violated!("placement.batch_outside_the_profile");
            Vec::new()
        });
        let mut next = 0_u32;
        let lanes = self.lanes.iter().zip(times);
        let gpulets = lanes.map(|(lane, times)| {
            let first_unit = lane.placed.map_or(next, |(first, _)| first);
            next = next.saturating_add(lane.units);
            let sum: f64 = times.iter().sum();
            let stretch = lane.duty_us.map_or(1.0, |duty| (duty / sum).max(1.0));
            let slots = lane.pieces.iter().zip(times).map(|(piece, time)| Slot {
                workload: piece.part.workload.name.clone(),
                batch: piece.batch,
                budget_us: time * stretch,
                rate: piece.part.rate,
            });
            Gpulet {
                device: self.device.name.clone(),
                first_unit,
                units: lane.units,
                window: lane.placed.map(|(_, window)| window),
                duty_us: lane.duty_us,
                slots: slots.collect(),
            }
        });
        gpulets.collect()
    }
}

/// Returns whether two lanes ever run at the same time.
fn together(first: &Lane<'_>, second: &Lane<'_>) -> bool {
    // A lane without a window runs at any time.
    let (Some((_, first)), Some((_, second))) = (first.placed, second.placed) else { return true };
    let slack = SLACK * first.period_us;
    first.offset_us + slack < second.offset_us + second.length_us
        && second.offset_us + slack < first.offset_us + first.length_us
}

/// All devices, used ones first, and the workloads of each fault domain.
#[derive(Clone, Debug)]
pub(super) struct Floor<'a> {
    pub problem: &'a Problem,
    /// Used devices.
    pub sites: Vec<Site<'a>>,
    /// Unused devices, in the problem's order.
    free: Vec<&'a Device>,
    residents: BTreeMap<&'a str, Vec<Part<'a>>>,
    /// Whether some workloads must not share a fault domain.
    wary: bool,
}

impl<'a> Floor<'a> {
    pub fn new(problem: &'a Problem) -> Self {
        Self {
            problem,
            sites: Vec::new(),
            free: problem.devices().iter().collect(),
            residents: BTreeMap::new(),
            wary: problem.workloads().iter().any(|workload| !workload.not_with.is_empty()),
        }
    }

    /// Returns the floor with the first `count` unused devices only.
    pub fn of_first(mut self, count: usize) -> Self {
        self.free.truncate(count);
        self
    }

    /// Returns the floor with all devices of the problem.
    pub fn of_all(mut self) -> Self {
        let used: BTreeSet<&str> = self.sites.iter().map(|site| site.device.name.as_str()).collect();
        self.free =
            self.problem.devices().iter().filter(|device| !used.contains(device.name.as_str())).collect();
        self
    }

    /// Returns a used device by its position, which the caller took from this floor.
    pub fn site(&self, at: usize) -> Option<&Site<'a>> {
        invariant::expected!(self.sites.get(at), "placement.unknown_site")
    }

    /// Returns a used device by its position, to be changed.
    pub fn site_mut(&mut self, at: usize) -> Option<&mut Site<'a>> {
        invariant::expected!(self.sites.get_mut(at), "placement.changed_site_unknown")
    }

    /// Returns whether tenants and replicas allow the part on the device.
    pub fn admits(&self, device: &Device, part: &Part<'_>) -> bool {
        if !self.wary && part.workload.replicas_min <= 1 {
            return true;
        }
        let residents = self.residents.get(device.fault_domain.as_str());
        residents.is_none_or(|residents| {
            residents.iter().all(|resident| {
                let same = resident.workload.name == part.workload.name;
                if same { resident.part == part.part } else { !resident.workload.excludes(part.workload) }
            })
        })
    }

    /// Returns the unused devices that may hold the part, in order.
    pub fn candidates(&self, part: &Part<'a>) -> impl Iterator<Item = &'a Device> {
        self.free.iter().copied().filter(move |device| self.admits(device, part))
    }

    /// Starts to use an unused device with these lanes.
    pub fn open(&mut self, device: &'a Device, lanes: Vec<Lane<'a>>) {
        self.free.retain(|free| !std::ptr::eq(*free, device));
        for piece in lanes.iter().flat_map(|lane| &lane.pieces) {
            self.settle(device, piece.part);
        }
        self.sites.push(Site { device, lanes });
    }

    /// Replaces the lanes of a used device; `part` is the new part.
    pub fn replace(&mut self, at: usize, lanes: Vec<Lane<'a>>, part: Part<'a>) {
        let Some(site) = self.site_mut(at) else { return };
        site.lanes = lanes;
        let device = site.device;
        self.settle(device, part);
    }

    /// Releases a used device and everything on it.
    pub fn close(&mut self, at: usize) {
        let Some(device) = self.site(at).map(|site| site.device) else { return };
        self.sites.remove(at);
        self.free.insert(0, device);
        self.resettle();
    }

    /// Swaps a used device with another device, used or not.
    pub fn swap(&mut self, at: usize, device: &'a Device) {
        let Some(before) = self.site(at).map(|site| site.device) else { return };
        let other = self.sites.iter().position(|site| site.device.name == device.name);
        if let Some(other) = other.and_then(|other| self.sites.get_mut(other)) {
            other.device = before;
        } else if let Some(free) = self.free.iter_mut().find(|free| free.name == device.name) {
            *free = before;
        } else {
            return invariant::violated!("placement.swap_with_unknown_device");
        }
        if let Some(site) = self.site_mut(at) {
            site.device = device;
        }
        self.resettle();
    }

    fn resettle(&mut self) {
        self.residents.clear();
        for site in &self.sites {
            let parts = site.lanes.iter().flat_map(|lane| &lane.pieces).map(|piece| piece.part);
            self.residents.entry(&site.device.fault_domain).or_default().extend(parts);
        }
    }

    fn settle(&mut self, device: &'a Device, part: Part<'a>) {
        self.residents.entry(&device.fault_domain).or_default().push(part);
    }

    /// Returns the cost of the used devices.
    pub fn cost(&self) -> f64 {
        self.sites.iter().map(|site| site.device.cost).sum()
    }

    /// Returns the plan.
    pub fn plan(&self) -> Plan {
        Plan::new(self.sites.iter().flat_map(|site| site.gpulets(self.problem)).collect())
    }
}

/// Microseconds from arrival to response in the worst case, if a batch in a window takes `time` and one of another gpulet
/// `other`: a request misses an own batch or waits for another one's, after which no batch fits into the window. A gpulet
/// that has used up its limit waits for the rest of the period first.
pub fn worst_in_window(window: &Window, time: f64, other: f64) -> f64 {
    let missed = window.period_us - window.length_us + 2.0 * time + time.max(other);
    let used_up = window.period_us - window.limit_us.unwrap_or(window.period_us);
    missed.min(window.period_us + time + other) + used_up
}
