//! The best configuration and the default settings, measured longer, alternately.

use tuning::{Configuration, Measurement};

use super::attempts::Attempts;
use super::trial::Trial;
use crate::profile::Halt;

/// Times that each of the two is measured, and how much longer than a trial.
const ROUNDS: usize = 3;
const FACTOR: u32 = 4;
/// Configurations that are measured longer until one meets the objective then, too.
const CANDIDATES: usize = 4;

/// A configuration that was measured longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confirmed {
    pub configuration: Configuration,
    /// Mean of the rounds in rows per second, and the middle one of their 99th percentiles.
    pub measurement: Measurement,
    /// Largest difference of two rounds, as a share of the mean.
    pub spread: f64,
}

/// What the longer runs say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Confirmation {
    /// The best configuration; `None` if none meets the objective in longer runs.
    pub winner: Option<Confirmed>,
    /// The default settings with the best batch for the objective; `None` if no batch meets it.
    pub default: Option<Confirmed>,
    /// Trials that were only made for the default settings.
    pub extra_trials: usize,
    /// Whether the default settings served more in longer runs than the configuration with the best trial.
    pub overtaken: bool,
    /// Configurations that met the objective in their trial and not in longer runs.
    pub refuted: usize,
}

impl Confirmation {
    /// How much more the best configuration serves than the default, and whether that is more than rounds of one configuration differ.
    pub fn gain(&self) -> Option<(f64, bool)> {
        let (winner, default) = (self.winner?, self.default?);
        let gain = winner.measurement.rows_per_s / default.measurement.rows_per_s - 1.0;
        let noise = self.noise();
        Some((gain, winner.configuration != default.configuration && gain > noise))
    }

    /// Largest difference of rounds of one configuration, as a share; at least 1 %.
    pub fn noise(&self) -> f64 {
        let spreads = [self.winner, self.default].into_iter().flatten().map(|confirmed| confirmed.spread);
        spreads.fold(0.01, f64::max)
    }
}

/// Measures the best configuration next to the default settings. An interruption ends it early, without a result.
///
/// # Errors
/// When trials cannot be written.
pub fn confirm(attempts: &mut Attempts<'_>) -> anyhow::Result<Confirmation> {
    let mut confirmation = Confirmation::default();
    match confirm_or_halt(attempts, &mut confirmation) {
        Ok(()) => Ok(confirmation),
        Err(Halt::Stopped) => Ok(Confirmation::default()),
        Err(Halt::Lost(error)) => Err(error),
        Err(Halt::Failed(reason)) => anyhow::bail!("model `{}`: {reason}", attempts.rig.subject.name),
    }
}

fn confirm_or_halt(attempts: &mut Attempts<'_>, confirmation: &mut Confirmation) -> Result<(), Halt> {
    let before = attempts.measured.len();
    let default = default_batch(attempts)?;
    confirmation.extra_trials = attempts.measured.len().saturating_sub(before);
    attempts.unload();
    let default = default.and_then(|index| attempts.space.get(index));
    let mut candidates: Vec<(usize, f64)> = attempts
        .measured
        .in_order()
        .filter_map(|(index, result)| Some((index, attempts.objective.capacity(&result?)?)))
        .collect();
    candidates.sort_by(|one, other| other.1.total_cmp(&one.1));
    attempts.bar.expect(ROUNDS);
    for (index, _) in candidates.into_iter().take(CANDIDATES) {
        let Some(candidate) = attempts.space.get(index) else { continue };
        let [winner, default] =
            alternate(attempts, [Some(candidate), default.filter(|default| *default != candidate)])?;
        let Some(winner) = winner else { continue };
        let same = winner.configuration == candidate;
        confirmation.default = default.or(confirmation.default);
        if same && attempts.objective.capacity(&winner.measurement).is_some() {
            confirmation.winner = Some(winner);
            break;
        }
        confirmation.refuted = confirmation.refuted.saturating_add(1);
    }
    // In a space of many configurations, the best trial is often the luckiest.
    if let (Some(winner), Some(of_default)) = (confirmation.winner, confirmation.default)
        && of_default.measurement.rows_per_s >= winner.measurement.rows_per_s
        && attempts.objective.capacity(&of_default.measurement).is_some()
    {
        confirmation.winner = Some(of_default);
        confirmation.overtaken = winner.configuration != of_default.configuration;
    }
    if confirmation.default.is_none() {
        confirmation.default = confirmation.winner.filter(|winner| Some(winner.configuration) == default);
    }
    Ok(())
}

/// The default settings with the batch that serves most within the objective. Times rise with the batch, so halving finds the largest.
fn default_batch(attempts: &mut Attempts<'_>) -> Result<Option<usize>, Halt> {
    let Some(setup) = attempts.space.default_setup() else { return Ok(None) };
    let (mut fits, mut misses) = (0_usize, attempts.space.batches().len());
    while fits < misses {
        let middle = fits.midpoint(misses);
        let index = attempts.space.at(setup, middle);
        if !attempts.measured.contains(index) {
            attempts.bar.expect(1);
            attempts.attempt(index)?;
        }
        let feasible =
            attempts.measured.get(index).is_some_and(|one| attempts.objective.capacity(&one).is_some());
        if feasible { fits = middle.saturating_add(1) } else { misses = middle }
    }
    let batches = (0..attempts.space.batches().len()).map(|batch| attempts.space.at(setup, batch));
    let able = batches
        .filter_map(|index| Some((index, attempts.objective.capacity(&attempts.measured.get(index)?)?)));
    Ok(able.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(index, _)| index))
}

/// Measures configurations alternately, so that a drift of the machine meets all of them.
fn alternate(
    attempts: &mut Attempts<'_>,
    of: [Option<Configuration>; 2],
) -> Result<[Option<Confirmed>; 2], Halt> {
    let mut loaded = [None, None];
    for (slot, configuration) in loaded.iter_mut().zip(of) {
        *slot = configuration.map(|configuration| attempts.rig.load(configuration.setup)).transpose()?;
    }
    let mut rounds: [Vec<Trial>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for ((loaded, rounds), configuration) in loaded.iter_mut().zip(&mut rounds).zip(of) {
            if let (Some(loaded), Some(configuration)) = (loaded, configuration) {
                attempts.bar.say(format!("{configuration}, longer"));
                let time = attempts.time.saturating_mul(FACTOR);
                rounds.push(loaded.run(configuration.batch, time, attempts.rig.stop)?);
            }
        }
        attempts.bar.finish_cell();
    }
    let mut confirmed = [None, None];
    for ((confirmed, rounds), configuration) in confirmed.iter_mut().zip(&rounds).zip(of) {
        *confirmed = configuration.and_then(|configuration| summary(configuration, rounds));
    }
    Ok(confirmed)
}

fn summary(configuration: Configuration, rounds: &[Trial]) -> Option<Confirmed> {
    let rates = || rounds.iter().map(|trial| trial.measurement.rows_per_s);
    let mean = rates().sum::<f64>() / rounds.len() as f64;
    let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    // The middle of the tails of the rounds: the longest of all would be that of the one worst disturbance.
    let mut tails: Vec<f64> = rounds.iter().map(|trial| trial.measurement.p99_us).collect();
    tails.sort_by(f64::total_cmp);
    let p99_us = tails.get(tails.len() / 2).copied()?;
    let measurement = Measurement { p99_us, rows_per_s: mean };
    Some(Confirmed { configuration, measurement, spread: (most - least) / mean })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tuning::{Engine, Level, Setup};

    fn confirmed(batch: u32, rates: [f64; 3]) -> Confirmed {
        let setup = Setup { engine: Engine::Ort, lanes: 2, threads: 1, level: Level::All, spinning: false };
        let trial = |(at, rows_per_s): (usize, f64)| Trial {
            measurement: Measurement { p99_us: 10.0 * (at + 1) as f64, rows_per_s },
            runs: 9,
        };
        let rounds: Vec<Trial> = rates.into_iter().enumerate().map(trial).collect();
        summary(Configuration { setup, batch }, &rounds).unwrap()
    }

    #[test]
    fn a_gain_within_the_noise_does_not_count() {
        let of = |winner, default| Confirmation {
            winner: Some(winner),
            default: Some(default),
            ..Confirmation::default()
        };
        let winner = confirmed(8, [108.0, 110.0, 112.0]);
        assert_eq!((winner.measurement.p99_us, winner.measurement.rows_per_s), (20.0, 110.0));
        let clear = of(winner, confirmed(4, [100.0, 101.0, 99.0]));
        let (gain, is_clear) = clear.gain().unwrap();
        assert!((gain - 0.1).abs() < 1e-9 && is_clear, "{gain}");
        assert!(!of(winner, confirmed(4, [95.0, 125.0, 104.0])).gain().unwrap().1, "rounds differ by more");
        assert!(!of(winner, winner).gain().unwrap().1);
        assert_eq!(Confirmation::default().gain(), None);
    }
}
