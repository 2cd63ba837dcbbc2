//! GSLICE's feedback while the loop runs.

use super::*;
use crate::rollout::GpuletId;

/// Devices of eight units on which a batch takes `1 / units` of the time that it takes on one, times `off`, whatever its
/// profile says.
struct Machine {
    bench: Bench,
    off: f64,
    totals: BTreeMap<(GpuletId, ModelId, u32), (u64, u64)>,
}

/// A row takes 8 ms on one unit.
fn elastic(name: &str) -> Model {
    let header = |line| match line {
        Line::Profile(header) => Line::Profile(Header { units_total: 8, ..header }),
        other => other,
    };
    let known = profile(name);
    let Some(first) = known.lines().into_iter().next() else { unreachable!("a profile has a header") };
    let cell = |(batch, units): (u32, u32)| {
        let us = 8e3 * f64::from(batch) / f64::from(units);
        let (count, doubt, left_out) = (1, None, None);
        Line::Cell(Cell {
            batch,
            units,
            p50_us: us,
            p95_us: us,
            p99_us: us,
            count,
            doubt,
            left_out,
            predicted: None,
        })
    };
    let sizes = [1, 2, 4, 8];
    let cells = sizes.into_iter().flat_map(|batch| sizes.map(|units| (batch, units))).map(cell);
    let profile = Profile::of_lines([header(first)].into_iter().chain(cells)).unwrap().remove(0);
    Model { profiles: Ok(Arc::from([profile])), ..model(name) }
}

impl Machine {
    fn new(devices: usize) -> Self {
        let mut inputs = inputs(devices);
        let eight = DeviceType {
            units: 8,
            sizes: (1..=8).collect(),
            gpulets_max: 8,
            ..(*inputs.devices[0].device_type).clone()
        };
        let eight = Arc::new(eight);
        inputs.devices.iter_mut().for_each(|device| device.device_type = Arc::clone(&eight));
        inputs.start.iter_mut().for_each(|start| start.units = 8);
        inputs.policy = Policy::named("gslice").unwrap();
        let mut bench = Bench::new(1);
        let options = bench.controller.options.clone();
        bench.controller = Controller::new(options, inputs).unwrap();
        Self { bench, off: 1.0, totals: BTreeMap::new() }
    }

    /// One second with as many rows of each model as `rates` says.
    fn second(&mut self, rates: &[(&str, u64)]) {
        let active: Vec<(GpuletId, Gpulet)> =
            self.bench.controller.rollout().active().map(|(id, gpulet)| (id, gpulet.clone())).collect();
        let number = |name: &str| ModelId(rates.iter().position(|(known, _)| *known == name).unwrap() as u32);
        for (id, gpulet) in &active {
            for slot in &gpulet.slots {
                let rate = rates.iter().find(|(name, _)| *name == slot.workload).unwrap().1;
                let batches = rate / u64::from(slot.batch);
                let us = 8e3 * f64::from(slot.batch) / f64::from(gpulet.units) * self.off;
                let total = self.totals.entry((*id, number(&slot.workload), slot.batch)).or_default();
                total.0 += batches;
                total.1 += (batches as f64 * us) as u64;
            }
        }
        let looked = rates.iter().map(|(name, rate)| {
            let all = self.bench.arrived.entry((*name).to_owned()).or_default();
            *all += rate;
            let counts = Counts { rows: *all, answered: *all, late: 0, failed: 0 };
            let seen = ModelCounts { number: number(name), counts, ..ModelCounts::default() };
            ModelLoad { model: elastic(name), seen }
        });
        let models = looked.collect();
        let ran = self.totals.iter().map(|(&(gpulet, number, rows), &(batches, time_us))| BatchTotals {
            gpulet,
            number,
            rows,
            batches,
            time_us: Micros(time_us),
        });
        let look = LoadReport { models, ran: ran.collect(), ..LoadReport::default() };
        self.bench.handle(Event::Load(look));
        self.bench.now = self.bench.now.after(SECOND);
        self.bench.handle(Event::Rollout(Happened::Tick));
    }

    fn units(&self, model: &str) -> u32 {
        self.bench.controller.rollout().plan().slots_of(model).map(|(gpulet, _)| gpulet.units).sum()
    }

    /// Seconds of this load, and the most units that `a` had in the last ten: the feedback goes back and forth between two sizes.
    fn units_after(&mut self, seconds: usize, load: &[(&str, u64)]) -> u32 {
        let mut units = Vec::new();
        for _ in 0..seconds {
            self.second(load);
            units.push(self.units("a"));
        }
        units.into_iter().rev().take(10).max().unwrap()
    }
}

#[test]
fn a_model_that_is_slower_than_its_profile_gets_a_larger_share() {
    let mut device = Machine::new(1);
    let load = [("a", 200)];
    let before = device.units_after(40, &load);
    assert!(
        (2..=4).contains(&before),
        "a row takes 8 ms on a unit, and 200 a second with headroom arrive: {before}"
    );
    device.off = 2.0;
    let after = device.units_after(40, &load);
    assert!(after > before, "{before} units before its batches took twice as long, {after} after");
    device.off = 1.0;
    let again = device.units_after(60, &load);
    assert!(again < after, "{again} units, {after} before its batches became faster again");
}

#[test]
fn shares_that_are_too_large_together_are_divided_fairly() {
    let mut device = Machine::new(1);
    let load = [("a", 150), ("b", 150), ("c", 20)];
    (0..40).for_each(|_| device.second(&load));
    device.off = 4.0;
    (0..60).for_each(|_| device.second(&load));
    let [a, b, c] = ["a", "b", "c"].map(|name| device.units(name));
    assert!(a + b + c <= 8 && a.abs_diff(b) <= 1 && a >= c && c >= 1, "{a}, {b} and {c} of 8 units");
}

#[test]
fn other_policies_take_no_notice() {
    let mut device = Machine::new(1);
    let inputs = PlanningInputs {
        policy: Policy::default(),
        ..PlanningInputs::clone(&device.bench.controller.inputs)
    };
    let options = ControlOptions { uses_learned: false, ..device.bench.controller.options.clone() };
    device.bench.controller = Controller::new(options, inputs).unwrap();
    (0..40).for_each(|_| device.second(&[("a", 200)]));
    let before = device.bench.controller.rollout().plan();
    device.off = 2.0;
    (0..40).for_each(|_| device.second(&[("a", 200)]));
    assert_eq!(device.bench.controller.rollout().plan(), before);
}

/// 8 units serve 1,000 rows a second. The rule overshoots, so the last part is enough again and again, but not always.
#[test]
fn a_model_that_needs_several_devices_keeps_them_whatever_is_measured() {
    for (rate, enough) in [(960, 9), (1_400, 11)] {
        let mut devices = Machine::new(4);
        (0..40).for_each(|_| devices.second(&[("a", rate)]));
        let before = devices.units("a");
        for off in [0.8, 1.0, 1.3] {
            devices.off = off;
            let mut most = 0;
            for second in 0..60 {
                devices.second(&[("a", rate)]);
                let now = devices.units("a");
                assert!(now > 8, "{now} units after {second} s at {off} times the profile, {before} before");
                most = if second < 30 { 0 } else { most.max(now) };
            }
            assert!(most >= enough, "at most {most} units at {off} times the profile");
        }
    }
}
