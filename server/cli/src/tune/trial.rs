//! Trials: sessions on all lanes that run full batches at the same time, each pinned as a lane of `tessera serve` is.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gpulet_core::profile::RowShape;
use models::engine::ort::GraphLevel;
use models::engine::{Batch, Session};
use models::{EffectiveConfig, EngineChoice, Known, Loader};
use node::catalog::Source;
use node::config::Lanes;
use node::lanes::core_sets;
use tuning::{Engine, Level, Measurement, Setup};

use crate::profile::Halt;
use crate::profile::bench::{in_a_thread, samples_of};
use crate::profile::machine::Machine;
use crate::profile::rotation::{self, INPUT_BYTES_MAX, Shaped};
use crate::profile::subjects::Subject;

/// Batches of a lane that count at least, unless they take [`FACTOR_MAX`] times the time of a trial.
const RUNS_MIN: usize = 4;
const FACTOR_MAX: u32 = 30;
/// Part of the time of a trial that its warm-up takes at least.
const WARM_UP: u32 = 4;
/// Batches of the warm-up at least: the first allocates memory.
const WARM_UP_RUNS: usize = 2;

/// What all trials share.
#[derive(Clone, Copy)]
pub struct Rig<'a> {
    pub source: &'a Source,
    pub loader: &'a Loader,
    pub machine: &'a Machine,
    pub subject: &'a Subject,
    /// Largest batch of the search.
    pub batch_max: u32,
    /// Set by Ctrl-C.
    pub stop: &'a AtomicBool,
}

/// Sessions of one setup.
pub struct Loaded {
    pub setup: Setup,
    lanes: Vec<Lane>,
}

struct Lane {
    cores: Vec<usize>,
    session: Box<dyn Session>,
    shapes: Vec<Shaped>,
}

/// Result of a trial, and how many batches of all lanes it is from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    pub measurement: Measurement,
    pub runs: usize,
}

/// The `[lanes]` section of a setup: whether its lanes share cores is part of it.
pub fn lanes(setup: Setup, cores: u32) -> Lanes {
    let shared = setup.lanes.saturating_mul(setup.threads) > cores;
    let count = usize::try_from(setup.lanes).ok().and_then(NonZeroUsize::new);
    Lanes { count, cores: None, shared }
}

/// The configuration of a model with a setup.
pub fn configured(config: &EffectiveConfig, setup: Setup, batch_max: u32) -> EffectiveConfig {
    let mut config = config.clone();
    config.engine = EngineChoice::Named(setup.engine.as_str());
    if config.max_batch != Some(0) && batch_max > 1 {
        config.max_batch = Some(batch_max);
    }
    if setup.engine == Engine::Ort {
        config.ort.intra_threads = usize::try_from(setup.threads).ok().and_then(NonZeroUsize::new);
        config.ort.spinning = setup.spinning;
        config.ort.graph_level = match setup.level {
            Level::Disable => GraphLevel::Disabled,
            Level::Basic => GraphLevel::Basic,
            Level::Extended => GraphLevel::Extended,
            Level::All => GraphLevel::All,
        };
    }
    config
}

impl Rig<'_> {
    /// Loads a session for each lane of a setup.
    pub fn load(&self, setup: Setup) -> Result<Loaded, Halt> {
        let sets =
            core_sets(&lanes(setup, self.machine.units()), &self.machine.cores).map_err(Halt::Failed)?;
        let config = configured(&self.subject.config, setup, self.batch_max);
        let mut loaded = Loaded { setup, lanes: Vec::new() };
        in_a_thread(|| {
            let files = self.subject.read(self.source).map_err(Halt::Failed)?;
            for cores in sets {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Halt::Stopped);
                }
                gpulet::pin_this_thread(&cores).map_err(|error| Halt::Failed(error.to_string()))?;
                let known = loaded.lanes.first().map(|lane| Known {
                    engine: lane.session.engine(),
                    signature: lane.session.signature().clone(),
                });
                let options = models::LoadOptions { known, ..config.load_options(&cores, false) };
                let session = self.loader.load(&files, &options);
                let mut session = session.map_err(|error| Halt::Failed(error.to_string()))?;
                let shapes = samples_of(session.as_mut(), &self.subject.shapes)?;
                loaded.lanes.push(Lane { cores, session, shapes });
            }
            Ok(())
        })?;
        Ok(loaded)
    }
}

impl Loaded {
    /// Largest batch that its sessions take; 0 if the model is not batched.
    pub fn batch_max(&self) -> u32 {
        self.lanes.first().map_or(0, |lane| lane.session.signature().max_batch)
    }

    /// The open dimensions of the inputs that are run.
    pub fn shapes(&self, wanted: &[RowShape]) -> Vec<RowShape> {
        let shaped = self.lanes.first().map(|lane| lane.shapes.as_slice()).unwrap_or_default();
        crate::profile::bench::measured_shapes(wanted, shaped)
    }

    /// Runs full batches on all lanes for a time.
    pub fn run(&mut self, batch: u32, time: Duration, stop: &AtomicBool) -> Result<Trial, Halt> {
        let together = Together {
            stop,
            failed: AtomicBool::new(false),
            warm: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            lanes: self.lanes.len(),
        };
        let of_lanes: Vec<Result<Vec<(Instant, Instant)>, Halt>> = thread::scope(|scope| {
            let threads: Vec<_> = self
                .lanes
                .iter_mut()
                .map(|lane| {
                    let together = &together;
                    let work = move || {
                        let runs = lane.run(batch, time, together);
                        if runs.is_err() {
                            together.failed.store(true, Ordering::Relaxed);
                        }
                        runs
                    };
                    thread::Builder::new().name("tune".to_owned()).spawn_scoped(scope, work)
                })
                .collect();
            let ended = threads.into_iter().map(|thread| match thread {
                Ok(thread) => thread
                    .join()
                    .unwrap_or_else(|_| Err(Halt::Failed("a thread that measured it panicked".to_owned()))),
                Err(error) => {
                    together.failed.store(true, Ordering::Relaxed);
                    Err(Halt::Failed(format!("cannot start a thread: {error}")))
                }
            });
            ended.collect()
        });
        // The reason of the lane that failed, not that of those which stopped because of it.
        let mut stopped = None;
        let mut runs = Vec::new();
        for lane in of_lanes {
            match lane {
                Ok(lane) => runs.push(lane),
                Err(Halt::Stopped) => stopped = Some(Halt::Stopped),
                Err(failed) => return Err(failed),
            }
        }
        match stopped {
            Some(halt) => Err(halt),
            None => summary(&runs, batch),
        }
    }
}

/// What the lanes of a trial tell each other. All run until the last is warm, and then until the last has enough batches, so that none is
/// measured alone.
struct Together<'a> {
    stop: &'a AtomicBool,
    failed: AtomicBool,
    warm: AtomicUsize,
    done: AtomicUsize,
    lanes: usize,
}

impl Together<'_> {
    fn check(&self) -> Result<(), Halt> {
        let ended = self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed);
        if ended { Err(Halt::Stopped) } else { Ok(()) }
    }
}

impl Lane {
    fn run(
        &mut self,
        rows: u32,
        time: Duration,
        together: &Together<'_>,
    ) -> Result<Vec<(Instant, Instant)>, Halt> {
        gpulet::pin_this_thread(&self.cores).map_err(|error| Halt::Failed(error.to_string()))?;
        let batches = rotation::batches(&self.shapes, rows).ok_or_else(|| {
            Halt::Failed(format!(
                "inputs of batch {rows} would be larger than {INPUT_BYTES_MAX} bytes: leave it out of --batches"
            ))
        })?;
        let mut batches = batches.iter().cycle();
        let session = &mut self.session;
        let mut once = || -> Result<(Instant, Instant), Halt> {
            together.check()?;
            let batch: &Batch = batches.next().ok_or(Halt::Stopped)?;
            let started = Instant::now();
            session.run(batch).map_err(|error| Halt::Failed(error.to_string()))?;
            Ok((started, Instant::now()))
        };
        let (begun, mut warm_ups, mut is_warm) = (Instant::now(), 0_usize, false);
        while together.warm.load(Ordering::Relaxed) < together.lanes {
            once()?;
            warm_ups = warm_ups.saturating_add(1);
            if !is_warm && warm_ups >= WARM_UP_RUNS && begun.elapsed() >= time / WARM_UP {
                is_warm = true;
                together.warm.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (begun, mut runs, mut is_done) = (Instant::now(), Vec::new(), false);
        while together.done.load(Ordering::Relaxed) < together.lanes {
            runs.push(once()?);
            let passed = begun.elapsed();
            let enough = runs.len() >= RUNS_MIN || passed >= time.saturating_mul(FACTOR_MAX);
            if !is_done && enough && passed >= time {
                is_done = true;
                together.done.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(runs)
    }
}

/// Statistics of the runs of all lanes: when each began and ended.
fn summary(lanes: &[Vec<(Instant, Instant)>], rows: u32) -> Result<Trial, Halt> {
    let mut times: Vec<Duration> =
        lanes.iter().flatten().map(|(from, to)| to.saturating_duration_since(*from)).collect();
    times.sort_unstable();
    let rank = (0.99 * times.len() as f64).ceil() as usize;
    let p99 = times.get(rank.saturating_sub(1)).copied().unwrap_or_default();
    let rate = rows_per_s(lanes, rows);
    match rate {
        Some(rows_per_s) if !p99.is_zero() => Ok(Trial {
            measurement: Measurement { p99_us: p99.as_nanos() as f64 / 1e3, rows_per_s },
            runs: times.len(),
        }),
        _ => Err(Halt::Failed("its batches take no time that the clock can measure".to_owned())),
    }
}

/// Rows per second while all lanes ran. Of a batch that began before or ended after that, its part counts. `None` without such a time.
fn rows_per_s(lanes: &[Vec<(Instant, Instant)>], rows: u32) -> Option<f64> {
    let starts = lanes.iter().map(|runs| runs.first().map(|run| run.0)).collect::<Option<Vec<_>>>()?;
    let ends = lanes.iter().map(|runs| runs.last().map(|run| run.1)).collect::<Option<Vec<_>>>()?;
    let (all_from, all_to) = (starts.iter().max()?, ends.iter().min()?);
    // Where one lane ended before another began: from the first to the last.
    let (from, to) =
        if all_from < all_to { (*all_from, *all_to) } else { (*starts.iter().min()?, *ends.iter().max()?) };
    let passed = to.saturating_duration_since(from).as_secs_f64();
    let part = |(begun, ended): &(Instant, Instant)| {
        let within = (*ended).min(to).saturating_duration_since((*begun).max(from)).as_secs_f64();
        within / ended.saturating_duration_since(*begun).as_secs_f64().max(1e-9)
    };
    let batches: f64 = lanes.iter().flatten().map(part).sum();
    (passed > 0.0 && batches > 0.0).then(|| batches * f64::from(rows) / passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_all_lanes_and_the_tail_that_of_any() {
        let start = Instant::now();
        let lane = |millis: &[u64]| {
            let mut at = start;
            let runs = millis.iter().map(|took| {
                let from = at;
                at += Duration::from_millis(*took);
                (from, at)
            });
            runs.collect::<Vec<_>>()
        };
        let trial = summary(&[lane(&[10, 10, 20]), lane(&[5, 5])], 4).unwrap();
        assert_eq!((trial.runs, trial.measurement.p99_us), (5, 20_000.0));
        // Both lanes ran for 10 ms: one batch of the first, and two of the second.
        assert!((trial.measurement.rows_per_s - 1_200.0).abs() < 1e-6, "{trial:?}");
        let parts = rows_per_s(&[lane(&[20]), lane(&[5, 5])], 4).unwrap();
        assert!((parts - 1_000.0).abs() < 1e-6, "half of the first batch, and two of the second: {parts}");
        assert!(summary(&[Vec::new()], 4).is_err());
    }

    #[test]
    fn lanes_share_cores_when_there_are_more_threads_than_cores() {
        let setup = |lanes, threads| Setup {
            engine: Engine::Ort,
            lanes,
            threads,
            level: Level::All,
            spinning: false,
        };
        let shared = |count, threads| lanes(setup(count, threads), 2).shared;
        assert_eq!((shared(1, 2), shared(2, 1), shared(2, 2), shared(3, 1)), (false, false, true, true));
        assert_eq!(lanes(setup(3, 1), 2).count.map(NonZeroUsize::get), Some(3));
    }
}
