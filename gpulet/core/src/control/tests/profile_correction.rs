//! Profiles that are corrected while the loop runs.

use super::*;
use crate::profile::Interval;
use crate::rollout::GpuletId;

/// Rows per batch.
const ROWS: u64 = 8;

/// One model. A batch takes `off` times as long as its profile says.
struct Solo {
    bench: Bench,
    model: Model,
    /// Rows a second.
    rate: u64,
    off: f64,
    totals: BTreeMap<GpuletId, (u64, u64)>,
}

impl Solo {
    fn new(devices: usize, model: Model, rate: u64) -> Self {
        Self { bench: Bench::new(devices), model, rate, off: 1.0, totals: BTreeMap::new() }
    }

    /// Seconds of batches of eight, divided among the gpulets.
    fn seconds(&mut self, count: usize) {
        for _ in 0..count {
            let active: Vec<(GpuletId, u32)> =
                self.bench.controller.rollout().active().map(|(id, gpulet)| (id, gpulet.units)).collect();
            let batches = self.rate / ROWS / active.len().max(1) as u64;
            for (id, units) in active {
                let total = self.totals.entry(id).or_default();
                total.0 += batches;
                total.1 += (self.off * 10e3 / f64::from(units)) as u64 * batches;
            }
            let all = self.bench.arrived.entry("a".to_owned()).or_default();
            *all += self.rate;
            let counts = Counts { rows: *all, answered: *all, late: 0, failed: 0 };
            let seen = ModelCounts { number: ModelId(0), counts, ..ModelCounts::default() };
            let ran = self.totals.iter().map(|(&gpulet, &(batches, time_us))| BatchTotals {
                gpulet,
                number: ModelId(0),
                rows: 8,
                batches,
                time_us: Micros(time_us),
            });
            let models = vec![ModelLoad { model: self.model.clone(), seen }];
            let look = LoadReport { models, ran: ran.collect(), ..LoadReport::default() };
            self.bench.handle(Event::Load(look));
            self.bench.now = self.bench.now.after(SECOND);
            self.bench.handle(Event::Rollout(Happened::Tick));
        }
    }

    fn corrections(&self) -> Vec<ProfileCorrection> {
        self.bench.controller.profile_corrections().to_vec()
    }

    /// What the plan in force assumes of a batch of eight on the whole device.
    fn planned_us(&self) -> f64 {
        let problem = self.bench.controller.problem().unwrap();
        let workload = &problem.workloads()[0];
        let profile = problem.profile(workload, &problem.devices()[0].device_type).unwrap();
        profile.latency_us(Quantile::P50, 8, 2).unwrap()
    }
}

#[test]
fn a_model_that_became_slower_is_planned_with_its_measured_times_until_its_profile_holds_again() {
    let mut solo = Solo::new(2, model("a"), 1_040);
    solo.seconds(60);
    assert_eq!((solo.bench.devices(), solo.corrections()), (1, Vec::new()));
    solo.off = 1.8;
    solo.seconds(30);
    let found = solo.corrections();
    let [correction] = &found[..] else { panic!("{found:?}") };
    assert_eq!((correction.model.as_str(), correction.device_type.as_str()), ("a", "toy"));
    assert!((correction.factor - 1.8).abs() < 0.01, "{correction:?}");
    assert_eq!(solo.bench.devices(), 2, "one device serves 890 rows a second now");
    assert!((solo.planned_us() - 9e3).abs() < 50.0, "{}", solo.planned_us());
    solo.off = 1.0;
    solo.seconds(20);
    assert_eq!(solo.corrections(), Vec::new());
}

#[test]
fn usual_differences_from_the_profile_do_not_change_plans() {
    let mut solo = Solo::new(2, model("a"), 1_040);
    solo.seconds(60);
    let asked = solo.bench.controller.questions;
    solo.off = 1.08;
    solo.seconds(200);
    assert_eq!((solo.bench.controller.questions, solo.corrections()), (asked, Vec::new()));
}

#[test]
fn predicted_cells_that_ran_are_replaced_by_what_ran() {
    let lines = profile("a").lines().into_iter().map(|line| match line {
        Line::Cell(cell) => {
            let interval = Interval { low_us: 0.5 * cell.p50_us, high_us: 2.0 * cell.p50_us };
            Line::Cell(Cell { count: 0, predicted: Some(interval), ..cell })
        }
        other => other,
    });
    let predicted = Profile::of_lines(lines).unwrap();
    let mut solo = Solo::new(1, Model { profiles: Ok(Arc::from(predicted)), ..model("a") }, 480);
    solo.off = 1.3;
    solo.seconds(60);
    let found = solo.corrections();
    let [correction] = &found[..] else { panic!("{found:?}") };
    assert_eq!(correction.factor, 1.0, "the interval holds what ran: {correction:?}");
    assert!(correction.replaced_cells >= 1, "{correction:?}");
    assert!((solo.planned_us() - 6.5e3).abs() < 50.0, "{}", solo.planned_us());
}
