use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::Verdict;

fn spec(rows: u64, by: Option<u64>) -> Spec {
    Spec { rows, committed: 0, by: by.map(Millis) }
}

/// A shell that notes what was sent and appended.
#[derive(Default)]
struct World {
    scheduler: Scheduler,
    now: u64,
    in_flight: Vec<(JobId, u64)>,
    appended: BTreeMap<JobId, u64>,
    committed: BTreeMap<JobId, u64>,
    ended: BTreeSet<JobId>,
    abandoned: BTreeSet<(JobId, u64)>,
    failures: BTreeMap<(JobId, u64), u32>,
    windows: BTreeMap<JobId, u32>,
}

impl World {
    fn handle(&mut self, event: Event) {
        for effect in self.scheduler.handle(Millis(self.now), event) {
            match effect {
                Effect::Send(id, row) => {
                    assert!(
                        !self.in_flight.contains(&(id, row))
                            && row >= self.appended.get(&id).copied().unwrap_or(0)
                    );
                    self.in_flight.push((id, row));
                    let count = self.in_flight.iter().filter(|(of, _)| *of == id).count();
                    assert!(count <= self.windows[&id] as usize, "{count} rows of {id} are in flight");
                }
                Effect::Abandon(id, row) => assert!(self.abandoned.insert((id, row))),
                Effect::Append(id, rows) => {
                    let appended = self.appended.entry(id).or_default();
                    assert_eq!(rows.start, *appended, "results are appended once and in order");
                    *appended = rows.end;
                }
                Effect::Commit(id, rows) => {
                    assert_eq!(rows, self.appended[&id], "only what was appended is committed");
                    assert!(self.committed.insert(id, rows).is_none_or(|before| before < rows));
                }
                Effect::Ended(id) => assert!(self.ended.insert(id)),
            }
        }
    }

    fn submit(&mut self, id: u64, spec: Spec, window: u32) {
        self.handle(Event::Submitted(JobId(id), spec));
        self.windows.insert(JobId(id), window);
        self.handle(Event::Window(JobId(id), window));
    }

    fn sent(&self) -> Vec<(u64, u64)> {
        self.in_flight.iter().map(|(id, row)| (id.0, *row)).collect()
    }

    /// The model fails on a row.
    fn fail(&mut self, at: usize) {
        let (id, row) = self.in_flight.swap_remove(at);
        *self.failures.entry((id, row)).or_default() += 1;
        self.handle(Event::Failed(id, row));
    }

    fn finish(&mut self, at: usize, refused: bool) {
        let (id, row) = self.in_flight.swap_remove(at);
        self.handle(if refused { Event::Refused(id, row) } else { Event::Done(id, row) });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_row_is_appended_once_and_in_order(
        jobs in prop::collection::vec((0..40_u64, prop::option::of(0..1_000_u64), 1..6_u32), 1..5),
        choices in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, 0..3_000_u64), 0..400),
        cancelled in prop::option::of(0..5_u64),
    ) {
        let mut world = World::default();
        for (id, (rows, by, window)) in (0..).zip(&jobs) {
            world.submit(id, spec(*rows, *by), *window);
        }
        for (at, (index, outcome, wait)) in choices.into_iter().enumerate() {
            if at == 20 && let Some(id) = cancelled {
                world.handle(Event::Cancelled(JobId(id)));
            }
            world.now += wait;
            world.handle(Event::Tick);
            if !world.in_flight.is_empty() {
                let at = index.index(world.in_flight.len());
                match outcome {
                    2 => world.fail(at),
                    outcome => world.finish(at, outcome == 1),
                }
            }
        }
        prop_assert!(world.abandoned.iter().all(|row| world.failures[row] == ATTEMPTS));
        if let Some(id) = cancelled {
            world.handle(Event::Cancelled(JobId(id)));
        }
        for _ in 0..10_000 {
            if let Some(wakeup) = world.scheduler.wakeup() {
                world.now = world.now.max(wakeup.0);
                world.handle(Event::Tick);
            }
            if !world.in_flight.is_empty() {
                world.finish(0, false);
            }
        }
        for (id, (rows, _, _)) in (0..).zip(&jobs).filter(|(id, _)| Some(*id) != cancelled) {
            let id = JobId(id);
            prop_assert!(world.ended.contains(&id), "{id} did not end");
            prop_assert_eq!(world.committed.get(&id).copied().unwrap_or(0), *rows);
        }
        prop_assert!(world.scheduler.progress(Millis(world.now)).is_empty());
    }
}

#[test]
fn the_job_with_the_earliest_time_runs_first_and_others_get_what_it_leaves() {
    let mut world = World::default();
    world.submit(1, spec(10, None), 4);
    assert_eq!(world.sent(), [(1, 0), (1, 1), (1, 2), (1, 3)]);
    world.submit(2, spec(3, Some(5_000)), 2);
    assert_eq!(world.sent().iter().filter(|(id, _)| *id == 2).count(), 2);
    world.finish(0, false);
    assert!(
        world.sent().iter().all(|sent| *sent != (1, 4)),
        "the first job is full, so the second one waits"
    );
    let of_second = |world: &World| world.sent().iter().position(|(id, _)| *id == 2).unwrap();
    world.finish(of_second(&world), false);
    assert!(world.sent().contains(&(2, 2)));
    world.finish(of_second(&world), false);
    assert!(world.sent().contains(&(1, 4)), "all rows of the first job are in flight");
}

#[test]
fn a_refused_row_is_sent_again_after_a_pause_and_later_jobs_run_in_it() {
    let mut world = World::default();
    world.submit(1, spec(2, None), 1);
    world.submit(2, spec(1, None), 1);
    assert_eq!(world.sent(), [(1, 0)]);
    world.finish(0, true);
    assert_eq!(world.sent(), [(2, 0)]);
    world.finish(0, false);
    assert_eq!(world.scheduler.progress(Millis(0))[0].1.paused_until, Some(Millis(100)));
    world.now = 100;
    world.handle(Event::Tick);
    assert_eq!(world.sent(), [(1, 0)]);
    world.finish(0, true);
    assert_eq!(world.scheduler.progress(Millis(100))[0].1.paused_until, Some(Millis(300)), "twice as long");
}

#[test]
fn results_wait_for_the_rows_before_them_and_no_more_than_four_windows_are_ahead() {
    let mut world = World::default();
    world.submit(1, spec(100, None), 2);
    while let Some(at) = world.in_flight.iter().position(|(_, row)| *row > 0) {
        world.finish(at, false);
    }
    assert_eq!((world.sent(), world.appended.len()), (vec![(1, 0)], 0));
    assert_eq!(world.scheduler.progress(Millis(0))[0].1.done, 0);
    world.finish(0, false);
    assert_eq!(world.appended[&JobId(1)], 8);
}

#[test]
fn a_job_goes_on_where_it_was_committed() {
    let mut world = World::default();
    world.appended.insert(JobId(7), 5);
    world.submit(7, Spec { rows: 7, committed: 5, by: None }, 9);
    assert_eq!(world.sent(), [(7, 5), (7, 6)]);
    world.finish(1, false);
    world.finish(0, false);
    assert!(world.ended.contains(&JobId(7)) && world.committed[&JobId(7)] == 7);
    world.submit(8, spec(0, None), 1);
    assert!(world.ended.contains(&JobId(8)), "a job without rows has ended");
}

#[test]
fn a_forecast_counts_the_jobs_before() {
    let mut world = World::default();
    world.submit(1, spec(4_000, Some(1_000_000)), 10);
    // Ten rows each 100 ms.
    for _ in 0..200 {
        world.now += 100;
        for _ in 0..10 {
            world.finish(0, false);
        }
        world.handle(Event::Tick);
    }
    world.submit(2, spec(500, None), 10);
    let progress = world.scheduler.progress(Millis(world.now));
    let first = progress[0].1.forecast.unwrap();
    assert!((first.rate - 100.0).abs() < 6.0 && first.end.0.abs_diff(40_000) < 2_000, "{first:?}");
    assert_eq!(Verdict::of(Some(&first), Millis(1_000_000)), Verdict::InTime);
    assert_eq!(progress[1].1.forecast, None, "it has not run yet");
}
