//! Runs of the searches on the grids.

use tuning::{Constants, Limits, Path, Settings, Space, Surface, Tessera, compared_trials, replay, search};

use super::data::Model;

/// Objectives, as multiples of the fastest batch.
pub const MULTIPLES: [f64; 8] = [3.0, 4.0, 6.0, 8.0, 12.0, 18.0, 27.0, 40.0];
/// Seeds of searches that draw random numbers.
pub const SEEDS: std::ops::RangeInclusive<u64> = 101..=120;

/// Trials that count for a run that was never as near to the best: all configurations.
const TRIALS: usize = 720;

/// A run ends once it is within 1 % of the best, but not before the trials after which regret is told.
fn limits(trials: usize) -> Limits {
    Limits { trials, least: 30, within: 0.01 }
}

/// Paths of a search on a model, for all objectives that can be met and all seeds. `morphling` knows the other models.
pub fn paths(space: &Space, models: &[Model], at: usize, word: &str) -> Vec<Path> {
    let Some(model) = models.get(at) else { return Vec::new() };
    let others = if word == "morphling" { others(models, at) } else { Vec::new() };
    let mut paths = Vec::new();
    for multiple in MULTIPLES {
        let objective = model.objective(multiple);
        for seed in SEEDS {
            let settings = Settings { space, objective, seed, others: &others };
            let Ok(mut chosen) = search(word, &settings) else { continue };
            let limit = limits(compared_trials(word, space));
            paths.extend(replay(chosen.as_mut(), &model.table, objective, limit));
            // Searches that draw nothing have one path.
            if matches!(word, "tessera" | "morphling" | "grid") {
                break;
            }
        }
    }
    paths
}

/// Grids of the other models.
pub fn others(models: &[Model], at: usize) -> Vec<Surface> {
    models.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other.surface()).collect()
}

/// Paths of ours whose first trial is any configuration instead of the default settings, one for each seed and objective.
pub fn from_anywhere(space: &Space, model: &Model, constants: Constants) -> Vec<Path> {
    let mut paths = Vec::new();
    for multiple in MULTIPLES {
        let objective = model.objective(multiple);
        for seed in SEEDS {
            let settings = Settings { space, objective, seed, others: &[] };
            // Steps of 37 through 720 configurations: all engines, lanes and batches.
            let first = usize::try_from(seed).unwrap_or(0).wrapping_mul(37) % space.len().max(1);
            let mut chosen = Tessera::new(&settings, constants).starting_at(first);
            paths.extend(replay(
                &mut chosen,
                &model.table,
                objective,
                limits(compared_trials("tessera", space)),
            ));
        }
    }
    paths
}

/// Paths of ours with other constants, on all objectives, with what is known of other models.
pub fn ours(space: &Space, model: &Model, constants: Constants, others: &[Surface]) -> Vec<Path> {
    let paths = MULTIPLES.iter().filter_map(|multiple| {
        let objective = model.objective(*multiple);
        let settings = Settings { space, objective, seed: 1, others };
        replay(
            &mut Tessera::new(&settings, constants),
            &model.table,
            objective,
            limits(compared_trials("tessera", space)),
        )
    });
    paths.collect()
}

/// Mean, median and 90th percentile of a figure of paths. What was never reached counts as all trials.
pub fn summary(paths: &[Path], figure: impl Fn(&Path) -> Option<usize>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = paths.iter().map(|path| figure(path).unwrap_or(TRIALS) as f64).collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let rank = (share * values.len() as f64).ceil() as usize;
        values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    };
    (values.iter().sum::<f64>() / values.len().max(1) as f64, at(0.5), at(0.9))
}

/// Part of the paths that never came within a share of the best.
pub fn never(paths: &[Path], within: f64) -> f64 {
    paths.iter().filter(|path| path.trials_to(within).is_none()).count() as f64 / paths.len().max(1) as f64
}

/// Mean regret after a number of trials.
pub fn regret(paths: &[Path], trials: usize) -> f64 {
    paths.iter().map(|path| path.regret_after(trials)).sum::<f64>() / paths.len().max(1) as f64
}
